"""What a person sees."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from precision_plan.plan import Diagnostic, Origin
from precision_plan.render import render_lint, render_plan
from tests.render.samples import ADVICE, CLEAN, COMPILED, ERROR, REPORT

SNAPSHOTS = Path(__file__).parent / "snapshots"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [80, 120])
def test_plan(committed, width: int) -> None:
    text = render_plan(COMPILED, "text", width=width)
    committed(SNAPSHOTS / f"plan-{width}.txt", text)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_lint(committed, width: int) -> None:
    committed(SNAPSHOTS / f"lint-{width}.txt", render_lint(REPORT, "text", width=width))


def test_a_finding_has_the_look_that_was_agreed() -> None:
    text = render_lint(replace(REPORT, diagnostics=(ERROR,)), "text", width=100)
    assert text.splitlines()[:6] == [
        "error[PP204] mxfp8-needs-sm100        conf/recipes/my-mxfp8.yaml:14:3",
        "  training.fp8_recipe = mxfp8 needs compute capability 10.0 up to 12.0; the target h200 "
        "has 9.0",
        "  because  hardware.gpu = h200    conf/hardware/h200.yaml:1",
        "  fix      training.fp8_recipe: blockwise    or    hardware: b200",
        "  more     precision-plan explain PP204",
        "",
    ]


def test_the_closing_line_counts() -> None:
    assert render_plan(COMPILED, "text").endswith(
        "1 error, 1 warning, 1 advice, 64 rules, 0.21 s\n"
    )
    assert render_plan(CLEAN, "text").endswith("\n0 errors, 0 warnings, 64 rules, 0.21 s\n")
    assert render_lint(REPORT, "text").endswith(
        "1 error, 0 warnings, 1 advice, 64 rules, 2 files, 1 skipped, 0.50 s\n"
    )


def test_rules_that_could_not_speak_are_summed_up() -> None:
    lines = render_plan(COMPILED, "text").splitlines()
    assert "2 rules not checked: hardware.gpu, software.vllm are not declared" in lines
    one = replace(COMPILED, unchecked={"PP211": ("gpu",)})
    assert "1 rule not checked: hardware.gpu is not declared" in render_plan(one, "text")


def test_colour_changes_nothing_but_colour() -> None:
    plain = render_plan(COMPILED, "text", width=80)
    colored = render_plan(COMPILED, "text", width=80, color=True)
    assert "\x1b[" in colored and "\x1b" not in plain
    assert ESCAPE.sub("", colored) == plain


def test_without_a_plan_only_the_findings_are_shown() -> None:
    broken = replace(COMPILED, lowering=None, diagnostics=(ERROR,), unchecked={})
    lines = render_plan(broken, "text").splitlines()
    assert lines[2] == "" and lines[3].startswith("error[PP204]")
    assert "fingerprint" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_position_is_never_cut(width: int) -> None:
    text = render_lint(replace(REPORT, diagnostics=(ADVICE,)), "text", width=width)
    assert str(ADVICE.origin) in text


def test_control_characters_are_shown_not_obeyed() -> None:
    nasty = Diagnostic(
        id="PP003",
        slug="invalid-value",
        severity="error",
        message="value \x1b[2Jwiped\nnext \u202egnp.exe \x9b31m \ud800",
        origin=Origin("training.fp8_recipe=\x1b]0;title\x07", layer="override"),
    )
    text = render_lint(replace(REPORT, diagnostics=(nasty,)), "text")
    assert r"value \x1b[2Jwiped\nnext \u202egnp.exe \x9b31m \ud800" in text
    assert r"\x1b]0;title\x07" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no format 'pdf'; known: text, json, shell"):
        render_plan(COMPILED, "pdf")
    with pytest.raises(ValueError, match="no format 'shell'"):
        render_lint(REPORT, "shell")

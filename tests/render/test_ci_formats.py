"""What holds for every format of ``lint``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan import Because, Diagnostic, Fix, Origin
from precision_plan.plan.compiled import BaselineUse, LintReport
from precision_plan.render import LINT_FORMATS, PREFLIGHT_FORMATS, render_lint, render_preflight
from precision_plan.render._mask import Mask
from precision_plan.render._run import Run
from precision_plan.render._told import key_of
from tests.render.ci_samples import CLEAN, FORMATS, REPORT, RUN, WITH_BASELINE


def test_the_formats() -> None:
    assert LINT_FORMATS == FORMATS


@pytest.mark.parametrize("format", LINT_FORMATS)
@pytest.mark.parametrize("report", [REPORT, CLEAN, WITH_BASELINE], ids=["mixed", "clean", "base"])
def test_text_ends_with_a_newline_and_repeats(format: str, report: LintReport) -> None:
    text = render_lint(report, format, run=RUN)
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert render_lint(report, format, run=RUN) == text


@pytest.mark.parametrize("format", ["github", "sarif", "junit", "markdown"])
def test_a_preflight_has_no_such_format(format: str) -> None:
    with pytest.raises(ValueError, match="known: text, json"):
        render_preflight(None, format)  # type: ignore[arg-type]
    assert PREFLIGHT_FORMATS == ("text", "json")


def report_with(name: str, value: str) -> LintReport:
    """A secret in every place of a report that a recipe or script can put it."""
    text = f"{name}={value}"
    found = Diagnostic(
        id="PP601",
        slug="variable-and-field-disagree",
        severity="error",
        message=f"the setting {text} is odd",
        field=f"env.all.{name}",
        origin=Origin(f"env.all.{text}", layer="override"),
        because=(Because(text, origin=Origin(f"conf/{text}/a.yaml", 3)),),
        fix=(Fix(f"remove {text}", {f"env.all.{name}": value}),),
        resolved={name: value},
    )
    used = BaselineUse(f"{text}.json", hidden=(replace(found, message=f"{text} again"),), gone=2)
    return replace(REPORT, diagnostics=(found,), files=(f"conf/{text}.yaml",), baseline=used)


@pytest.mark.parametrize("format", LINT_FORMATS)
@given(
    name=st.sampled_from(["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD"]),
    value=st.from_regex(r"[A-Za-z0-9_-]{8,30}", fullmatch=True),
)
def test_no_format_shows_a_secret(format: str, name: str, value: str) -> None:
    text = render_lint(report_with(name, f"S3{value}"), format, width=400, run=RUN)
    assert f"S3{value}" not in text.replace("&#95;", "_")


def test_no_baseline_holds_a_secret() -> None:
    (found,) = report_with("HF_TOKEN", "hf_abcdefgh").diagnostics
    assert "hf_abcdefgh" not in "".join(key_of(found, RUN, Mask()))


@pytest.mark.parametrize(
    ("here", "root", "file", "path"),
    [
        ("/r", "/r", "conf/a.yaml", "conf/a.yaml"),
        ("/r/train", "/r", "a.yaml", "train/a.yaml"),
        ("/r/train", "/r", "/r/conf/a.yaml", "conf/a.yaml"),
        ("/r/train", "/r", "./x/../a.yaml", "train/a.yaml"),
        ("/r", "/r", "/other/a.yaml", "/other/a.yaml"),
        ("/r", "/r", "/rest/a.yaml", "/rest/a.yaml"),
        ("/r", "/r", "..", "/"),
        ("/r/train", "/r", "..", "."),
        ("/", "/", "a.yaml", "a.yaml"),
        ("", "", "conf/a.yaml", "conf/a.yaml"),
    ],
)
def test_paths(here: str, root: str, file: str, path: str) -> None:
    assert Run(here, root).path(file) == path


def test_what_a_baseline_did_stands_in_the_summary() -> None:
    summary = json.loads(render_lint(WITH_BASELINE, "json"))["summary"]
    assert summary["baseline"] == {"file": "ci/baseline.json", "hidden": 2, "gone": 1}
    lines = render_lint(WITH_BASELINE, "text", width=200).splitlines()
    assert lines[-3:] == [
        "2 findings hidden by the baseline ci/baseline.json",
        "1 entry of the baseline ci/baseline.json is no longer found: "
        "run again with --update-baseline to drop what is gone",
        "0 errors, 0 warnings, 1 advice, 64 rules, 2 files, 1 skipped, 0.50 s",
    ]
    recorded = replace(CLEAN, baseline=BaselineUse("b.json", recorded=1))
    assert "1 finding recorded in the baseline b.json\n" in render_lint(recorded, "text")
    assert json.loads(render_lint(recorded, "json"))["summary"]["baseline"]["recorded"] == 1

"""Annotations, read as the runner reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given

from precision_plan.plan import Origin
from precision_plan.plan.compiled import LintReport
from precision_plan.render import render_lint
from precision_plan.render._mask import Mask
from precision_plan.render._run import Run, in_order
from precision_plan.render._told import told
from tests.render.ci_samples import CLEAN, NOWHERE, OF_ARGUMENT, REPORT, REPORTS, RUN
from tests.render.runner import Command, read
from tests.render.samples import ERROR, RECIPE, WARNING

SNAPSHOTS = Path(__file__).parent / "snapshots"


def commands(report: LintReport, run: Run = RUN) -> list[Command]:
    found = map(read, render_lint(report, "github", run=run).splitlines())
    return [command for command in found if command is not None]


def test_what_the_log_holds(committed) -> None:
    committed(SNAPSHOTS / "lint.github.txt", render_lint(REPORT, "github", run=RUN))


def test_errors_come_first() -> None:
    assert [each.name for each in commands(REPORT)] == ["error", "error", "warning", "notice"]


def test_position_title_and_text() -> None:
    (command,) = commands(replace(REPORT, diagnostics=(ERROR,)))
    assert command.properties == {
        "file": RECIPE, "line": "14", "col": "3", "title": "PP204 mxfp8-needs-sm100",
    }  # fmt: skip
    assert command.data.splitlines() == [
        ERROR.message,
        "because: hardware.gpu = h200 in conf/hardware/h200.yaml:1",
        "fix: training.fp8_recipe: blockwise",
        "or: hardware: b200",
        "more: precision-plan explain PP204",
    ]


def test_what_is_not_known_is_left_out() -> None:
    (file_only,) = commands(replace(REPORT, diagnostics=(WARNING,)))
    assert file_only.properties.keys() == {"file", "title"}
    (nowhere,) = commands(replace(REPORT, diagnostics=(NOWHERE,)))
    assert nowhere.properties == {"title": "PP010 unreadable-file"}


def test_a_finding_about_an_argument_stands_at_its_first_premise() -> None:
    (command,) = commands(replace(REPORT, diagnostics=(OF_ARGUMENT,)))
    assert (command.properties["file"], command.properties["line"]) == ("m/config.json", "10")
    assert "set by: --target tensor_parallel_size=4" in command.data.splitlines()


def test_paths_start_at_the_repository() -> None:
    below = replace(RUN, here="/work/repository/train")
    report = replace(REPORT, diagnostics=(replace(ERROR, origin=Origin("../conf/a.yaml", 1)),))
    assert commands(report, below)[0].properties["file"] == "conf/a.yaml"
    report = replace(REPORT, diagnostics=(replace(ERROR, origin=Origin("/etc/a.yaml", 1)),))
    assert commands(report, below)[0].properties["file"] == "/etc/a.yaml"


def test_a_clean_report_annotates_nothing() -> None:
    assert render_lint(CLEAN, "github", run=RUN) == (
        "0 errors, 0 warnings, 64 rules, 2 files, 1 skipped, 0.50 s\n"
    )


def test_an_annotation_is_one_line_and_cannot_command() -> None:
    nasty = "50%\r\n::add-mask::x\n::error file=a::b %0A"
    report = replace(
        REPORT, diagnostics=(replace(ERROR, message=nasty, origin=Origin("a:b,c=d%.yaml", 2)),)
    )
    (command,) = commands(report)
    assert command.properties["file"] == "a:b,c=d%.yaml"
    assert command.data.startswith("50%\\r\\n::add-mask::x\\n::error file=a::b %0A\n")


@given(REPORTS)
def test_every_text_arrives(report: LintReport) -> None:
    found = in_order(report)
    read_back = commands(report)
    assert len(read_back) == len(found)
    for command, each in zip(read_back, found, strict=True):
        more = f"\nmore: precision-plan explain {each.id}"
        assert command.data == told(each, RUN, Mask()).lines + more
        place = RUN.place_of(each, Mask())
        assert place is not None
        number = command.properties.get("line", "")
        assert f"{command.properties['file']}:{number}".rstrip(":") in (
            f"{str(place).rsplit(':', 1)[0] if place.column else place}".rstrip(":"),
            str(place).rstrip(":"),
        )

"""Suppression comments."""

from __future__ import annotations

import pytest

from precision_plan.plan import Because, Diagnostic, Origin
from precision_plan.plan.suppression import Suppression
from precision_plan.rules.suppress import suppress

FILE = "conf/recipes/mine.yaml"
MXFP8 = Diagnostic(
    "PP204",
    "mxfp8-needs-sm100",
    "error",
    "message",
    origin=Origin(FILE, 14, 3),
    because=(Because("hardware.gpu = h200", "hardware.gpu", Origin("conf/hardware/h200.yaml", 1)),),
)


def comment(
    *ids: str, line: int = 14, reason: str = "tested on a simulator", file: str = FILE
) -> Suppression:
    return Suppression(ids, reason, line, Origin(file, line or 1, 1, "recipe"))


@pytest.mark.parametrize(
    "silencer",
    [
        comment("PP204"),
        comment("PP101", "PP204"),
        comment("PP204", line=0),
        comment("PP204", line=1, file="conf/hardware/h200.yaml"),
    ],
    ids=["same line", "one of two ids", "whole file", "line of a premise"],
)
def test_silences(silencer: Suppression) -> None:
    assert suppress([MXFP8], [silencer]) == ()


@pytest.mark.parametrize(
    "silencer",
    [comment("PP101"), comment("PP204", line=13), comment("PP204", file="other.yaml")],
    ids=["other rule", "other line", "other file"],
)
def test_a_comment_that_silences_nothing_is_reported(silencer: Suppression) -> None:
    found = suppress([MXFP8], [silencer])
    assert [one.id for one in found] == ["PP204", "PP021"]
    assert found[1].origin == silencer.origin


def test_a_comment_without_reason_is_not_obeyed() -> None:
    found = suppress([MXFP8], [comment("PP204", reason="  ")])
    assert {one.id for one in found} == {"PP204", "PP020"}


def test_a_rule_that_could_not_speak_leaves_its_comment_alone() -> None:
    assert suppress([], [comment("PP204")], unchecked={"PP204"}) == ()


def test_broken_input_and_findings_about_comments_cannot_be_silenced() -> None:
    broken = Diagnostic("PP001", "broken-yaml", "error", "message", origin=Origin(FILE, 14, 1))
    found = suppress([broken], [comment("PP001", "PP021", line=0)])
    assert [one.id for one in found] == ["PP001", "PP021"]

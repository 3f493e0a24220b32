"""Public reports of wrong precision settings, each with the verdict that it should have got."""

from __future__ import annotations

import re

import pytest

from tests.cases.judging import HERE, Case, cases, faults

REPORTS = tuple((HERE / "reports.txt").read_text(encoding="utf-8").split())
"""Every report that was to be retold."""

CASES = cases()


def marked(case: Case) -> object:
    """A case whose rule is not there yet fails strictly: it must be un-marked when the rule is."""
    reason = f"waits for {case.pending}"
    marks = pytest.mark.xfail(reason=reason, strict=True) if case.pending else ()
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES if case.inputs])
def test_case(case: Case) -> None:
    assert not faults(case)


def test_every_report_is_retold() -> None:
    assert [case.name for case in CASES] == sorted(REPORTS)
    assert len(REPORTS) == 128


def test_every_folder_is_a_case() -> None:
    folders = {path.name for path in HERE.iterdir() if re.match(r"case\d", path.name)}
    assert folders == {case.name for case in CASES}


def test_few_reports_cannot_be_said() -> None:
    """Each with its reason; a case that is not expressible holds no inputs."""
    silent = [case for case in CASES if case.not_expressible]
    assert all(not case.pending for case in silent)
    assert len(silent) <= len(CASES) // 5

"""JUnit against the schema of Jenkins' xunit plugin, and as junitparser reads it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import junitparser
import pytest
from hypothesis import given
from lxml import etree

from precision_plan.plan.compiled import LintReport
from precision_plan.render import render_lint
from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask
from precision_plan.render._run import Run, in_order
from precision_plan.render._told import told
from tests.render.ci_samples import BROKEN, CLEAN, NOWHERE, REPORT, REPORTS, RUN, WITH_BASELINE
from tests.render.samples import ADVICE, ERROR, RECIPE, WARNING

HERE = Path(__file__).parent


@cache
def schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(HERE / "schemas" / "junit-10.xsd"))


def suite_of(report: LintReport, run: Run = RUN) -> junitparser.TestSuite:
    text = render_lint(report, "junit", run=run)
    schema().assertValid(etree.fromstring(text.encode()))
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    return suite


def cases_of(report: LintReport, run: Run = RUN) -> dict[str, junitparser.TestCase]:
    return {case.name: case for case in suite_of(report, run)}


def test_the_schema_refuses_what_is_no_report() -> None:
    text = render_lint(REPORT, "junit", run=RUN).replace("<testcase classname", "<testcase klass")
    assert not schema().validate(etree.fromstring(text.encode()))


def test_what_is_written(committed) -> None:
    committed(HERE / "snapshots" / "lint.junit.xml", render_lint(REPORT, "junit", run=RUN))


def test_every_linted_file_is_a_case() -> None:
    suite = suite_of(CLEAN)
    assert [(case.classname, case.name) for case in suite] == [
        ("precision-plan", RECIPE),
        ("precision-plan", "conf/recipes/clean.yaml"),
    ]
    assert (suite.tests, suite.failures, suite.errors, suite.time) == (2, 0, 0, 0.5)
    assert all(case.is_passed for case in suite)


def test_a_file_fails_once_with_all_that_fails_it() -> None:
    second = replace(ERROR, id="PP101", slug="fp16-with-bf16", message="both")
    found = replace(REPORT, diagnostics=(ERROR, second, WARNING))
    case = cases_of(found)[RECIPE]
    (failure,) = case.result
    assert isinstance(failure, junitparser.Failure)
    assert failure.type == "PP204"
    assert failure.message == f"PP204 mxfp8-needs-sm100: {ERROR.message} (and 1 more finding)"
    assert f"error[PP204] mxfp8-needs-sm100  {RECIPE}:14:3\n" in failure.text
    assert "error[PP101] fp16-with-bf16" in failure.text and "PP013" not in failure.text
    assert case.system_out.startswith("warning[PP013]")
    suite = suite_of(found)
    assert (suite.tests, suite.failures, suite.errors) == (2, 1, 0)


@pytest.mark.parametrize(
    ("fail_on", "failing"), [("error", {RECIPE}), ("advice", {RECIPE, ADVICE.origin.file})]
)
def test_what_fails_is_what_makes_the_run_fail(fail_on: str, failing: set[str]) -> None:
    cases = cases_of(replace(REPORT, diagnostics=(ERROR, ADVICE)), replace(RUN, fail_on=fail_on))
    assert {name for name, case in cases.items() if not case.is_passed} == failing
    assert len(cases) == 3  # the file of the advice was not named, but something is said of it


def test_broken_input_is_an_error() -> None:
    (result,) = cases_of(replace(REPORT, diagnostics=(BROKEN,)))["other.yaml"].result
    assert isinstance(result, junitparser.Error)


def test_a_finding_without_a_file() -> None:
    assert "command line" in cases_of(replace(REPORT, diagnostics=(NOWHERE,)))


def test_the_suite_tells_what_is_not_seen() -> None:
    text = render_lint(WITH_BASELINE, "junit", run=RUN)
    told_at_end = etree.fromstring(text.encode()).findtext("testsuite/system-out")
    assert told_at_end.startswith("2 findings hidden by the baseline ci/baseline.json\n")


def legal(text: str) -> str:
    return text.replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")


@given(REPORTS)
def test_every_text_arrives(report: LintReport) -> None:
    cases: dict[str, Any] = cases_of(report, replace(RUN, fail_on="advice"))
    for found in in_order(report):
        place = RUN.place_of(found, Mask())
        assert place is not None
        (result,) = cases[legal(printable(place.path))].result
        assert legal(f"\n  {told(found, RUN, Mask()).message}\n") in result.text
    assert all(case.is_passed for name, case in cases.items() if not case.result)

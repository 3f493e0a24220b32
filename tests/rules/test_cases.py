"""Every rule against its cases, and the promises that each rule's page and metadata make.

A case is ``{name, plan: {section: {...}}}`` with either ``expect: [ids]`` (every id listed
fires and no other *error* does) or ``good: true`` (the rule is silent and there is no error).
``files`` beside ``plan`` is the rollout checkpoint's folder, see ``tests.checkpoints.described``;
in a page's example it stands beside the plan's sections.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.plan import PrecisionPlan
from precision_plan.rules.base import Rule
from precision_plan.rules.engine import Report, check
from precision_plan.rules.registry import rules
from tests.checkpoints import described

HERE = Path(__file__).parent
SECTION = re.compile(r"^(Why|Bad|Good):\n((?:    .*\n|\n)+)", re.MULTILINE)
# repo@version:path, an issue, or a documentation address
SOURCE = re.compile(r"[\w.-]+(/[\w.-]+)?@[\w.-]+:\S+|[\w.-]+/[\w.-]+#\d+|https://\S+")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def cases_of(rule_id: str) -> tuple[dict[str, Any], ...]:
    path = HERE / rule_id / "cases.yaml"
    return tuple(yaml.load(path.read_text(), LOADER)) if path.exists() else ()


def all_cases() -> list[Any]:
    return [
        pytest.param(rule_id, case, id=f"{rule_id}-{case['name']}")
        for rule_id in rules()
        for case in cases_of(rule_id)
    ]


def run(settings: dict[str, Any], files: dict[str, Any] | None = None) -> Report:
    sections = {name: values for name, values in settings.items() if name != "files"}
    files = files or settings.get("files")
    checkpoint = described(files) if files is not None else None
    return check(PrecisionPlan.model_validate(sections), checkpoint=checkpoint)


def ids(report: Report, *severities: str) -> set[str]:
    return {
        found.id for found in report.diagnostics if not severities or found.severity in severities
    }


def sections(rule: Rule) -> dict[str, str]:
    return dict(SECTION.findall(rule.page + "\n"))


@pytest.mark.parametrize(("rule_id", "case"), all_cases())
def test_case(rule_id: str, case: dict[str, Any]) -> None:
    assert case.keys() <= {"name", "plan", "files", "expect", "good"}
    report = run(case.get("plan", {}), case.get("files"))
    if case.get("good"):
        assert rule_id not in ids(report)
        assert rule_id not in report.unchecked, "a good case must reach the rule"
        assert not ids(report, "error")
        return
    expected = set(case["expect"])
    assert rule_id in expected
    assert expected <= ids(report)
    assert ids(report, "error") <= expected


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
class TestRule:
    def test_has_a_bad_and_a_good_case(self, rule: Rule) -> None:
        good = [bool(case.get("good")) for case in cases_of(rule.id)]
        assert True in good and False in good
        names = [case["name"] for case in cases_of(rule.id)]
        assert len(set(names)) == len(names)

    def test_identity(self, rule: Rule) -> None:
        assert re.fullmatch(r"PP[1-9]\d\d", rule.id)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.slug)

    def test_every_source_can_be_looked_up(self, rule: Rule) -> None:
        assert rule.source
        for source in rule.source:
            assert SOURCE.fullmatch(source), source

    def test_page_has_its_sections(self, rule: Rule) -> None:
        assert rule.summary
        assert list(sections(rule)) == ["Why", "Bad", "Good"]

    def test_the_examples_of_the_page_are_true(self, rule: Rule) -> None:
        page = sections(rule)
        assert rule.id in ids(run(yaml.load(page["Bad"], LOADER)))
        assert rule.id not in ids(run(yaml.load(page["Good"], LOADER)))


def test_every_folder_belongs_to_a_rule() -> None:
    folders = {path.name for path in HERE.glob("PP*")}
    assert folders == set(rules())

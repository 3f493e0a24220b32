"""Every rule's finding as a person sees it, from the first bad case of its ``cases.yaml``.

The text is ``tests/rules/<ID>/snapshot.txt``: the case as a recipe, then the finding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.compose.document import parse_document
from precision_plan.plan import Diagnostic, Origin, PrecisionPlan
from precision_plan.render._findings import finding
from precision_plan.render._layout import Style
from precision_plan.render._mask import Mask
from precision_plan.rules.engine import check
from precision_plan.rules.registry import rules
from tests.checkpoints import described

CASES = Path(__file__).parents[1] / "rules"
FILE = "recipe.yaml"


def first_bad_case(rule_id: str) -> dict[str, Any]:
    cases = yaml.safe_load((CASES / rule_id / "cases.yaml").read_text(encoding="utf-8"))
    case: dict[str, Any] = next(case for case in cases if not case.get("good"))
    return case


def findings(rule_id: str, recipe: str, files: dict[str, Any] | None = None) -> list[Diagnostic]:
    """What the rule says of a recipe (and a checkpoint folder), with positions in its text."""
    checkpoint = None if files is None else described(files)
    document = parse_document(recipe, Path(FILE), FILE)
    plan = PrecisionPlan.model_validate(
        {
            **document.data,
            "origins": {key: Origin(FILE, *mark) for key, mark in document.marks.items()},
        }
    )
    return [
        found for found in check(plan, checkpoint=checkpoint).diagnostics if found.id == rule_id
    ]


@pytest.mark.parametrize("rule_id", rules())
def test_finding(committed, rule_id: str) -> None:
    case = first_bad_case(rule_id)
    recipe = yaml.safe_dump(case.get("plan", {}), sort_keys=False, allow_unicode=True)
    found = findings(rule_id, recipe, case.get("files"))
    assert found
    blocks = ["\n".join(finding(each, Mask(), 80, Style(False))) for each in found]
    text = recipe + "---\n" + "\n\n".join(blocks) + "\n"
    committed(CASES / rule_id / "snapshot.txt", text)
    for each in found:
        assert each.message and each.fix, "a finding says what and names a way out"


def test_no_line_is_wider_than_a_terminal() -> None:
    for path in CASES.glob("PP*/snapshot.txt"):
        shown = path.read_text(encoding="utf-8").partition("---\n")[2]
        assert all(len(line) <= 80 for line in shown.splitlines()), path

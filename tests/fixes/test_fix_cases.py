"""Recipes before and after ``lint --fix``, as a person would read them.

A case is ``{name, before, after, fixed: [ids]}``; without ``after`` the text stays as it was, and
``remain`` names the findings that are left. ``why`` has a part of the reason for each finding that
a safe fix could not end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.api import lint
from precision_plan.api.fixing import fix
from precision_plan.plan.fixes import Fixes

HERE = Path(__file__).parent


def all_cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{file.stem}: {case['name']}")
        for file in sorted(HERE.glob("*.yaml"))
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]


def fixed(path: Path) -> Fixes:
    """What is fixed; the file is written."""
    fixes = fix([path])
    for change in fixes.changes:
        assert change.before.encode() == change.path.read_bytes()
        change.path.write_bytes(change.after.encode())
    return fixes


@pytest.mark.parametrize("case", all_cases())
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_case(case: dict[str, Any], ending: str, tmp_path: Path) -> None:
    assert case.keys() <= {"name", "before", "after", "fixed", "remain", "why"}
    path = tmp_path / "recipe.yaml"
    path.write_bytes(case["before"].replace("\n", ending).encode())
    fixes = fixed(path)
    after = case.get("after", case["before"])
    assert path.read_bytes().decode() == after.replace("\n", ending)
    assert sorted(each.diagnostic.id for each in fixes.fixed) == case.get("fixed", [])
    reasons = {each.diagnostic.id: each.why for each in fixes.unfixed}
    assert reasons.keys() == case.get("why", {}).keys()
    assert all(part in reasons[id] for id, part in case.get("why", {}).items())
    left = {each.id for each in lint([path]).diagnostics if each.severity != "advice"}
    assert left == set(case.get("remain", []))
    assert fix([path]).changes == ()

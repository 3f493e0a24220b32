"""Launch scripts with a planted mistake: the findings are exactly those expected, and where.

``tests/fixtures/scripts/expected.yaml`` names the keys. Every folder is checked in a copy, so that
a repair leaves the original alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.api import lint
from tests.cases.judging import cases

HERE = Path(__file__).parent.parent / "fixtures" / "scripts"
_KEYS = {"about", "report", "expect", "advice", "repair", "repaired_advice"}
_FAMILIES = frozenset("BFGLM")

Place = tuple[str, str, int]


@lru_cache(maxsize=1)
def expected() -> Mapping[str, Any]:
    read = yaml.safe_load((HERE / "expected.yaml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


SCRIPTS: Mapping[str, Mapping[str, Any]] = expected()["scripts"]
REPAIRED = tuple(name for name, script in SCRIPTS.items() if "repair" in script)


def findings(folder: Path) -> tuple[list[Place], list[Place]]:
    """Errors and warnings, and advice, as ``(id, file, line)`` below ``folder``."""
    report = lint([folder])
    assert report.files, "no script of the folder starts anything"
    loud: list[Place] = []
    advice: list[Place] = []
    for found in report.diagnostics:
        file = Path(found.origin.file).resolve().relative_to(folder.resolve()).as_posix()
        kind = advice if found.severity == "advice" else loud
        kind.append((found.id, file, found.origin.line))
    return sorted(loud), sorted(advice)


def places(listed: list[list[Any]]) -> list[Place]:
    return sorted((id, file, line) for id, file, line in listed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_mistake_is_found_where_it_is(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    assert script.keys() <= _KEYS
    folder = shutil.copytree(HERE / name, tmp_path / name)
    assert findings(folder) == (places(script["expect"]), places(script.get("advice", [])))


@pytest.mark.parametrize("name", REPAIRED)
def test_the_repaired_twin_has_no_finding(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    folder = shutil.copytree(HERE / name, tmp_path / name)
    for file, old, new in script["repair"]:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} in {file}"
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    assert findings(folder) == ([], places(script.get("repaired_advice", [])))


def test_every_folder_is_listed() -> None:
    assert {path.name for path in HERE.iterdir() if path.is_dir()} == SCRIPTS.keys()


def test_a_script_without_a_repair_has_no_mistake() -> None:
    right = {name for name in SCRIPTS if name not in REPAIRED}
    assert all(SCRIPTS[name]["expect"] == [] for name in right)
    assert len(REPAIRED) >= 60


def test_every_report_of_a_launch_is_told_or_has_a_reason() -> None:
    known = {case.name for case in cases()}
    wanted = {case.name for case in cases() if case.family in _FAMILIES}
    told = {script["report"] for script in SCRIPTS.values() if "report" in script}
    reasons = expected()["not_told"]
    assert wanted <= told | reasons.keys() <= known
    assert not told & reasons.keys()
    assert all(isinstance(reason, str) and reason for reason in reasons.values())
    assert len(told) > len(reasons)

"""Every token of every script in the fixtures is read, passed on, or listed as left over."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from precision_plan.importers.python.reader import read_launcher
from precision_plan.importers.shell.reader import read_script
from precision_plan.importers.texts import Source
from tests.importers.accounting import lost_words, tokens_of, unaccounted

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCRIPTS = sorted(FIXTURES.rglob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_nothing_vanishes(script: Path) -> None:
    reading = read_script(Source(str(script), script.read_bytes()))
    assert unaccounted(reading) == []
    counted = tokens_of(reading)
    assert counted["read"] > 0 or counted["left"] > 0


@pytest.mark.parametrize(
    "launcher", sorted(FIXTURES.glob("launchers/*.py")), ids=lambda path: path.stem
)
def test_nothing_vanishes_from_a_launcher(launcher: Path) -> None:
    """Every simple statement is read or left, and every word of a launch became something."""
    reading = read_launcher(Source(str(launcher), launcher.read_bytes()))
    assert reading.commands
    statements = {
        (node.lineno, node.end_lineno)
        for node in ast.walk(ast.parse(launcher.read_bytes()))
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
        if not isinstance(node, (ast.AnnAssign, ast.Match))  # parameters, frames
    }
    (source, *_) = reading.sources
    found = {
        (source.origin(start).line, source.origin(end).line)
        for (file, start, end) in reading.tokens
        if file == source.file
    }
    assert found == statements
    assert lost_words(reading) == []


def test_what_is_left_is_counted() -> None:
    script = (
        "echo a | tee b\n"  # no setting, and no launch
        "if [ $X = 1 ]; then\n  A=1\nfi\n"
        "f() {\n  B=2\n}\n"  # nobody calls it
        "exit 0\nC=3\n"
    )
    reading = read_script(Source("run.sh", script.encode()))
    counted = tokens_of(reading)
    assert counted["left"] >= 6  # B = 2, C = 3
    assert unaccounted(reading) == []
    assert {each.text for each in reading.leftovers} >= {"B=2", "C=3"}

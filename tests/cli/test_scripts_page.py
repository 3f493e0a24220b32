"""docs/scripts.md shows what the commands print, and the recipe that they write."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from precision_plan.cli import run

PAGE = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.S)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (script,) = (text for kind, text in BLOCKS if kind == "bash")
    (tmp_path / "run-moe.sh").write_text(script)
    return tmp_path


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = run(shlex.split(command)[1:])
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, shown.out.splitlines()


def test_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    lint, _ = (text for kind, text in BLOCKS if not kind)
    command, *shown = lint.removeprefix("$ ").splitlines()
    code, lines = printed(command, capsys)
    assert code == 1
    begins, ends = shown[: shown.index("...")], shown[shown.index("...") + 1 :]
    assert lines[: len(begins)] == begins
    assert ends and set(ends) <= set(lines)


def test_the_recipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, imported = (text for kind, text in BLOCKS if not kind)
    (recipe,) = (text for kind, text in BLOCKS if kind == "yaml")
    command, *shown = imported.removeprefix("$ ").splitlines()
    assert printed(command, capsys) == (0, shown)
    text = (here / "small.yaml").read_text()
    assert text.startswith(recipe)
    assert text[len(recipe) :].startswith("\n# Left over: ")
    code, lines = printed("precision-plan plan small.yaml --format shell", capsys)
    assert code == 0
    flags = ("--fp8-recipe blockwise", "--tensor-model-parallel-size 2", "--optimizer adam")
    assert {f"  {flag}" for flag in flags} <= set(lines)


def test_a_suppression_as_the_page_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (comment,) = re.findall(r"`(# precision-plan: ignore.*?)`", PAGE)
    script = here / "run-moe.sh"
    line = "  PRECISION+=(--fp8-recipe mxfp8)"
    script.write_text(script.read_text().replace(line, f"{line}  {comment}"))
    _, lines = printed("precision-plan lint run-moe.sh", capsys)
    assert not [each for each in lines if "PP204" in each]

"""docs/checkpoints.md shows what the code says of the folder that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from precision_plan.__main__ import main
from tests.cases.folders import write

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(\w*)\n(.*?)```", PAGE, re.S))
CHANGING = re.compile(r"^\d+ rules not checked|\d+ rules, |, \d+\.\d\d s$", re.MULTILINE)


def test_the_transcript_is_what_is_printed(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    files = yaml.safe_load(BLOCKS["yaml"])
    write(files, tmp_path / files["folder"])
    command, _, shown = BLOCKS[""].partition("\n")
    assert main(command.removeprefix("$ precision-plan ").split()) == 1
    assert CHANGING.sub("", capsys.readouterr().out) == CHANGING.sub("", shown)


def test_every_rule_that_it_names_has_a_page() -> None:
    named = re.findall(r"PP\d+", PAGE.partition("## An example")[0])
    pages = {path.stem for path in (ROOT / "docs" / "rules").glob("PP*.md")}
    assert "PP710" in named
    assert {each for each in named if each != "PP869"} <= pages

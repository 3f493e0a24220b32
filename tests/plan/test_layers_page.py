"""docs/layers.md shows what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from precision_plan.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "layers.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(\w*)\n(.*?)```", PAGE, re.S))


def test_the_example_is_the_group_choice() -> None:
    example = yaml.safe_load(BLOCKS["yaml"])["training"]
    choice = yaml.safe_load((ROOT / "conf" / "training" / "nvfp4-experts.yaml").read_text())
    assert example.items() <= choice.items()


def test_the_transcript_is_what_is_printed(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    command, *shown = BLOCKS[""].splitlines()
    assert main(command.removeprefix("$ precision-plan ").split()) == 0
    printed = capsys.readouterr().out
    assert "\n".join(line for line in shown if line != "...") in printed


def test_links_to_the_rules_and_facts_it_names() -> None:
    assert (ROOT / "precision_plan" / "facts" / "data" / "te_modules.json").exists()
    first, last = re.search(r"Rules (PP\d+) to (PP\d+)", PAGE).groups()
    numbers = range(int(first[2:]), int(last[2:]) + 1)
    assert all((ROOT / "docs" / "rules" / f"PP{number}.md").exists() for number in numbers)

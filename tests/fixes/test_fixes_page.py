"""docs/fixes.md shows what the command prints and lists the rules that have safe fixes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_plan.__main__ import main
from precision_plan.plan.codes import CODES
from precision_plan.rules.registry import rules

PAGE = (Path(__file__).parents[2] / "docs" / "fixes.md").read_text(encoding="utf-8")


def test_the_transcripts_are_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcripts = re.findall(r"```\n\$ precision-plan (.*?)```", PAGE, re.S)
    monkeypatch.chdir(tmp_path)
    for transcript in transcripts:
        command, _, diff = transcript.partition("\n")
        lines = diff.splitlines()[3:]
        before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", "-"))
        (tmp_path / command.split()[-1]).write_text(before)
        assert main(command.split()) == 1
        assert capsys.readouterr().out == diff
    assert len(transcripts) == 2


def test_the_page_lists_the_rules_with_safe_fixes() -> None:
    listed = set(re.findall(r"\bPP\d{3}\b", PAGE))
    known = [*rules().values(), *CODES.values()]
    assert listed == {each.id for each in known if each.fixable}

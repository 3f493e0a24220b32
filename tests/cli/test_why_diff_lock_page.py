"""The transcripts of docs/why-diff-lock.md are what the commands print."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from precision_plan.cli import run
from precision_plan.plan.codes import CODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "why-diff-lock.md").read_text(encoding="utf-8")
BLOCKS = [text for kind, text in re.findall(r"```(\w*)\n(.*?)```", PAGE, re.S) if not kind]


def parts(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a block with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def execute(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    program, *words = command.split()
    if program != "precision-plan":
        subprocess.run([program, *words], check=True)
        return []
    run(words)
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out.splitlines()


def matches(shown: str, line: str) -> bool:
    """True if a line of the page is what was printed; ``...`` at its end leaves out the rest."""
    return line.startswith(shown[:-3]) if shown.endswith("...") else line == shown


def test_there_are_transcripts() -> None:
    verbs = {command.split()[1] for block in BLOCKS for command, _ in parts(block)
             if command.startswith("precision-plan")}  # fmt: skip
    assert verbs == {"why", "diff", "lock", "lint"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda text: text.splitlines()[0][2:50])
def test_a_transcript_is_what_is_printed(
    block: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in ("conf", "docs/examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "88")
    for command, shown in parts(block):
        printed, position = execute(command, capsys), 0
        for line in shown:
            if line.strip() == "...":
                continue
            rest = printed[position:]
            at = next((at for at, each in enumerate(rest) if matches(line, each)), None)
            assert at is not None, f"{command} does not print {line!r} after line {position}"
            position += at + 1


def test_the_findings_it_names_exist() -> None:
    named = set(re.findall(r"PP03\d", PAGE))
    assert named == {id for id in CODES if id.startswith("PP03")}

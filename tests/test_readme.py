"""README's transcripts are what the commands print, and its example recipe compiles."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from precision_plan import compile

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
TRANSCRIPTS = [text for kind, text in BLOCKS if not kind and text.startswith("$ ")]
CHANGING = re.compile(r"\d+ rules, \d+\.\d\d s$")
"""The number of rules grows, and no two runs take equally long."""


def run(command: str) -> list[str]:
    words = shlex.split(command)
    start = [sys.executable, "launch.py"] if words[0] == "python" else [sys.executable, "-m"]
    rest = words[2:] if words[0] == "python" else ["precision_plan", *words[1:]]
    done = subprocess.run(
        [*start, *rest], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False
    )
    return done.stdout.splitlines()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) == 3


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda text: text.splitlines()[0])
def test_a_transcript_is_what_is_printed(transcript: str) -> None:
    command, *shown = transcript.splitlines()
    printed = [CHANGING.sub("", line) for line in run(command.removeprefix("$ "))]
    position = 0
    for line in (CHANGING.sub("", line) for line in shown):
        if line.strip() == "...":
            continue
        assert line in printed[position:], f"{command} does not print {line!r} after {position}"
        position = printed.index(line, position) + 1


def test_the_example_recipe_compiles(tmp_path: Path) -> None:
    (recipe,) = (text for kind, text in BLOCKS if kind == "yaml")
    file = tmp_path / "example.yaml"
    file.write_text(recipe)
    compiled = compile(file, conf_dir=ROOT / "conf")
    assert [found.message for found in compiled.diagnostics if found.severity == "error"] == []
    assert compiled.plan.training.fp8_recipe == "blockwise"
    assert compiled.plan.hardware.nodes == 2


def test_the_library_example() -> None:
    (example,) = (text for kind, text in BLOCKS if kind == "python")
    exec(example, {})

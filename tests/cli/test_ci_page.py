"""docs/ci.md shows what the command prints, and its configurations are what their readers take."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pre_commit.clientlib import load_config

from precision_plan.__main__ import main
from precision_plan.render import LINT_FORMATS
from tests.test_action import ACTION
from tests.test_hooks import HOOKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.S)
FILES = {
    text.partition("\n")[0].removeprefix("# "): text for kind, text in BLOCKS if kind == "yaml"
}
TRANSCRIPTS = [text for kind, text in BLOCKS if not kind]
CHANGING = re.compile(r"^\d+ rules not checked|\d+ rules, |, \d+\.\d\d s$|\"ruleIndex\": \d+")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_format_has_a_transcript() -> None:
    commands = [text.partition("\n")[0] for text in TRANSCRIPTS]
    shown = [re.search(r"--format (\w+)", command) for command in commands]
    assert {match[1] for match in shown if match} | {"text"} == set(LINT_FORMATS)
    assert sum("--baseline" in command for command in commands) == 2


def test_the_transcripts_are_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for transcript in TRANSCRIPTS:  # in their order: a baseline is recorded, then used
        command, *shown = transcript.splitlines()
        code = main(shlex.split(command)[2:])
        assert code == (0 if "--baseline" in command else 1)
        printed = [CHANGING.sub("", line) for line in capsys.readouterr().out.splitlines()]
        position = 0
        for line in (CHANGING.sub("", line) for line in shown if line != "..."):
            assert line in printed[position:], f"{command} does not print {line!r}"
            position = printed.index(line, position) + 1


def schema_takes(builtin: str, file: str, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", builtin, *options, file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout


def test_the_configuration_of_pre_commit() -> None:
    (repository,) = load_config(".pre-commit-config.yaml")["repos"]
    assert {hook["id"] for hook in repository["hooks"]} == set(HOOKS)


def test_the_workflow() -> None:
    schema_takes("vendor.github-workflows", ".github/workflows/precision.yml")
    given = re.findall(r"^          ([\w-]+):", FILES[".github/workflows/precision.yml"], re.M)
    assert set(given) <= {*ACTION["inputs"], "sarif_file", "category"}


def test_every_input_and_output_of_the_action_is_named() -> None:
    names = set(re.findall(r"`([\w-]+)`", PAGE.partition("## GitHub Actions")[2]))
    assert {*ACTION["inputs"], *ACTION["outputs"]} <= names


def test_the_pipeline() -> None:
    schema_takes("vendor.gitlab-ci", ".gitlab-ci.yml", "--data-transform", "gitlab-ci")

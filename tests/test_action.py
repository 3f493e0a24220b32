"""The GitHub Action: its schema, and its shell steps run as the runner runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.render.runner import read

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALL, LINT = ACTION["runs"]["steps"]
WRONG = "recipe: {title: t, source: [s], maturity: stable}\ntraining: {bf16: true, fp16: true}\n"


def test_it_is_a_valid_action() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions",
         ROOT / "action.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stderr


def test_inputs_reach_the_shell_as_variables_only() -> None:
    given = []
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        given += [value.strip("${} ").removeprefix("inputs.") for value in step["env"].values()]
    assert sorted(given) == sorted(ACTION["inputs"])


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """A runner's files and folders; the installed program is this one."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / ".git").mkdir()
    program = tmp_path / "temp" / "precision-plan" / "bin" / "precision-plan"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m precision_plan "$@"\n')
    program.chmod(0o755)
    (tmp_path / "repository" / "a.yaml").write_text(WRONG)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_ACTION_PATH": str(tmp_path / "the action"),
    }


def step(
    which: dict[str, Any], runner: dict[str, str], **given: str
) -> subprocess.CompletedProcess[str]:
    inputs = {name: str(each["default"]) for name, each in ACTION["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in given.items()
    }
    env = {
        name: inputs[value.strip("${} ").removeprefix("inputs.")]
        for name, value in which["env"].items()
    }
    folder = Path(runner["RUNNER_TEMP"]).parent
    script = folder / "step.sh"
    script.write_text(which["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder / "repository", env={**runner, **env}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def outputs(runner: dict[str, str]) -> dict[str, str]:
    lines = Path(runner["GITHUB_OUTPUT"]).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_annotations_and_a_summary(runner: dict[str, str]) -> None:
    done = step(LINT, runner)
    assert done.returncode == 1, done.stderr
    found = [each for each in map(read, done.stdout.splitlines()) if each]
    assert [(each.name, each.properties["file"]) for each in found] == [("error", "a.yaml")]
    assert outputs(runner) == {"exit-code": "1"}
    summary = Path(runner["GITHUB_STEP_SUMMARY"]).read_text()
    assert summary.startswith("## precision-plan: 1 error, 0 warnings\n")


def test_every_input_arrives(runner: dict[str, str]) -> None:
    folder = Path(runner["RUNNER_TEMP"]).parent / "repository"
    (folder / "two words.yaml").write_text(WRONG)
    (folder / "-b.yaml").write_text("training: {bf16: true}\n")
    done = step(
        LINT, runner, path="two words.yaml\n\n-b.yaml\n", format="json", profile="production",
        target="gpu=h100\n vllm=0.33.0 ", fail_on="warning", summary="false",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["summary"]["files"] == ["two words.yaml", "-b.yaml"]
    assert not any("gpu" in needs for needs in data["summary"]["unchecked"].values())
    assert not Path(runner["GITHUB_STEP_SUMMARY"]).exists()
    assert step(LINT, runner, path="./-b.yaml").returncode == 0


@pytest.mark.parametrize(("format", "name"), [("sarif", "precision-plan.sarif"),
                                              ("junit", "precision-plan.xml")])  # fmt: skip
def test_reports_are_files(format: str, name: str, runner: dict[str, str]) -> None:
    done = step(LINT, runner, format=format)
    assert (done.returncode, done.stdout) == (1, "")
    report = Path(runner["RUNNER_TEMP"]) / name
    assert outputs(runner) == {"exit-code": "1", "report": str(report)}
    assert "PP101" in report.read_text()
    done = step(LINT, runner, format=format, output="mine", path="a.yaml")
    assert outputs(runner)["report"] == "mine"
    assert "PP101" in (Path(runner["RUNNER_TEMP"]).parent / "repository" / "mine").read_text()


def test_a_baseline(runner: dict[str, str]) -> None:
    program = Path(runner["RUNNER_TEMP"]) / "precision-plan" / "bin" / "precision-plan"
    command = [program, "lint", ".", "--baseline", "base.json", "--update-baseline"]
    folder = Path(runner["RUNNER_TEMP"]).parent / "repository"
    subprocess.run(command, cwd=folder, env=runner, check=True, capture_output=True)
    assert step(LINT, runner, baseline="base.json").returncode == 0
    assert step(LINT, runner, baseline="").returncode == 1


@pytest.mark.parametrize("name", ["path", "output", "profile", "target", "fail_on", "baseline",
                                  "format"])  # fmt: skip
def test_an_input_is_never_run(name: str, runner: dict[str, str]) -> None:
    value = """$(touch pwned) `touch pwned` "; touch pwned; ' ; touch pwned\n*; touch pwned"""
    step(LINT, runner, **{name: value}, summary="false")
    assert not list(Path(runner["RUNNER_TEMP"]).parent.rglob("pwned"))
    assert outputs(runner).keys() <= {"exit-code", "report"}


@pytest.mark.parametrize(
    ("version", "wanted"), [("", "the action"), ("1.2.3", "precision-plan==1.2.3")]
)
def test_what_is_installed(version: str, wanted: str, runner: dict[str, str]) -> None:
    tools = Path(runner["RUNNER_TEMP"]) / "tools"
    tools.mkdir()
    # Stands in for python3: "makes" the environment, whose python writes down what it is given.
    (tools / "python3").write_text(
        '#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exit 9\nmkdir -p "$3/bin"\ncat > "$3/bin/python" '
        '<<\'E\'\n#!/bin/sh\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/arguments"\nE\n'
        'chmod 755 "$3/bin/python"\n'
    )
    (tools / "python3").chmod(0o755)
    done = step(INSTALL, {**runner, "PATH": f"{tools}:{runner['PATH']}"}, version=version)
    assert done.returncode == 0, done.stderr
    arguments = (Path(runner["RUNNER_TEMP"]) / "arguments").read_text().splitlines()
    assert arguments[:3] == ["-m", "pip", "install"] and arguments[-1].endswith(wanted)

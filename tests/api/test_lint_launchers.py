"""Launchers in Python are linted and imported like scripts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from precision_plan.api import import_script, lint

FIXTURES = Path(__file__).parents[1] / "fixtures" / "launchers"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(FIXTURES, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_findings_name_the_branch_and_the_line(folder: Path) -> None:
    report = lint([folder / "tiny_moe.py"], target={"gpu": "h100"})
    assert report.files == ("run/tiny_moe.py",)
    (found,) = (each for each in report.diagnostics if each.id == "PP204")
    lines = (folder / "tiny_moe.py").read_text().splitlines()
    assert lines[found.origin.line - 1][found.origin.column - 1 :].startswith("--fp8-recipe mxfp8")
    told = [(each.text, each.origin.line) for each in found.because]
    assert ("where options.machine == 'B200'", lines.index('            case "B200":') + 1) in told
    assert not [each for each in report.diagnostics if each.severity == "error" and each != found]


def test_a_suppression_between_literals(folder: Path) -> None:
    file = folder / "tiny_moe.py"
    text = file.read_text()
    line = '                precision += "--fp8-recipe mxfp8 "'
    text = text.replace(line, f"{line}  # precision-plan: ignore[PP204] for later machines")
    text = text.replace(
        'name = "tiny-moe"', 'name = "# precision-plan: ignore[PP101] a text" and "tiny-moe"'
    )
    file.write_text(text)
    report = lint([file], target={"gpu": "h100"})
    assert {each.id for each in report.diagnostics if each.severity != "advice"} == set()


def test_of_a_folder_only_launchers_are_read(folder: Path) -> None:
    (folder / "tools.py").write_text("import subprocess\n\nsubprocess.run(['ls'])\n")
    (folder / "broken.py").write_text("def (:\n")
    report = lint([folder])
    assert report.files == ("run/tiny_moe.py",)
    assert report.skipped == ()
    broken = lint([folder / "broken.py"])
    assert [each.id for each in broken.diagnostics] == ["PP960"]


def test_a_launcher_becomes_a_recipe(folder: Path) -> None:
    found = import_script(folder / "tiny_moe.py", branches=["B200"])
    assert found.data["training"]["fp8_recipe"] == "mxfp8"
    assert found.data["model"]["num_experts"] == 8
    assert found.data["env"]["all"]["NVTE_DEBUG"] == "0"
    assert "num_layers: 4  # models/tiny-moe.py:" in found.text
    usual = import_script(folder / "tiny_moe.py")
    assert "fp8_recipe" not in usual.data["training"]
    assert "save_interval: 50  # tiny_moe.py:" in usual.text

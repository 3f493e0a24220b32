"""The hooks for pre-commit: what pre-commit reads, and what they run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from identify.identify import tags_from_path
from pre_commit.clientlib import load_manifest

from precision_plan.__main__ import main

ROOT = Path(__file__).parents[1]
HOOKS = {hook["id"]: hook for hook in load_manifest(ROOT / ".pre-commit-hooks.yaml")}
GOOD = "recipe: {title: t, source: [s], maturity: stable}\ntraining: {bf16: true}\n"
WRONG = GOOD.replace("bf16: true", "bf16: true, fp16: true")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "a.yaml": GOOD,
        ".github/workflows/ci.yaml": "name: ci\non: push\njobs: {}\n",
        "docker-compose.yml": "services: {web: {image: x}}\n",
        "conf/config.yaml": "defaults: [_self_]\n",
        "conf/recipes/b.yaml": f"# @package _global_\n{GOOD}",
        "clean.sh": "#!/bin/bash\nrm -rf build\n",
        "notes.txt": "training: x\n",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return tmp_path


def run(id: str) -> int:
    """What pre-commit starts for all files of the current folder."""
    hook = HOOKS[id]
    names = sorted(str(path) for path in Path().rglob("*") if path.is_file())
    chosen = [
        name
        for name in names
        if re.search(hook["files"], name)
        and (not hook["types_or"] or tags_from_path(name) & set(hook["types_or"]))
    ]
    assert chosen and "notes.txt" not in chosen
    program, *words = hook["entry"].split()
    assert program == "precision-plan"
    return main([*words, *hook["args"], *(chosen if hook["pass_filenames"] else [])])


def test_the_hooks() -> None:
    assert set(HOOKS) == {"precision-plan-lint", "precision-plan-lint-folder"}
    assert {hook["language"] for hook in HOOKS.values()} == {"python"}


@pytest.mark.parametrize("id", HOOKS)
def test_other_files_are_left_alone(id: str, repository: Path) -> None:
    assert run(id) == 0


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("precision-plan-lint", "a.yaml"),
        ("precision-plan-lint", "conf/recipes/b.yaml"),
        ("precision-plan-lint-folder", "conf/recipes/b.yaml"),
    ],
)
def test_a_wrong_recipe_is_refused(
    id: str, name: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(name)
    path.write_text(path.read_text().replace(GOOD, WRONG))
    assert run(id) == 1
    assert "error[PP101]" in capsys.readouterr().out


def test_this_repository_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = [str(path) for path in Path("conf").rglob("*.yaml")]
    assert len(names) > 50
    assert main(["lint", "--skip-others", *names]) == 0

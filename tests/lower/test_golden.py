"""Every recipe lowers to its committed files, and every script is valid bash."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lower import golden

Committed = Callable[[Path, str], None]


@pytest.mark.parametrize("recipe", golden.RECIPES)
def test_recipe_lowers_to_its_golden_files(recipe: str, committed: Committed) -> None:
    plan = golden.compiled(recipe)
    assert plan.exit_code == 0, plan.diagnostics
    committed(golden.GOLDEN / f"{recipe}.json", golden.json_text(plan))
    committed(golden.GOLDEN / f"{recipe}.sh", golden.shell_text(plan))


def test_no_golden_file_without_a_recipe() -> None:
    assert {path.stem for path in golden.GOLDEN.iterdir()} == set(golden.RECIPES)


@pytest.mark.parametrize("script", sorted(golden.GOLDEN.glob("*.sh")), ids=lambda path: path.stem)
def test_bash_accepts_the_script(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr

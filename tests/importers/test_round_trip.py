"""Importing and lowering gives back what a script says: its flags, and the variables by role."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import compile, import_script
from precision_plan.api.launch_files import read_launches
from precision_plan.plan.unknown import is_reference
from tests.importers.round_trip import (
    again,
    as_script,
    differences,
    explained,
    flags,
    sections,
    settings_of,
    target_of,
)

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "import"
SCRIPTS = [*sorted(FIXTURES.glob("*.sh")), *sorted(FIXTURES.parent.glob("launchers/*.py"))]
RECIPES = sorted(path.stem for path in (ROOT / "conf" / "recipes").glob("*.yaml"))
SERVES = {"megadlm-fp16-inference": ["--no-check-for-nan-in-loss-and-grad"]}
"""A server in FP16 is started by flags that training has, too: the recipe is one of training, for
which Megatron would switch this check off without a word."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_as_a_script(name: str, tmp_path: Path) -> None:
    before = compile(name, conf_dir=ROOT / "conf")
    script = as_script(before, tmp_path / "run.sh")
    imported = import_script(script, target=target_of(before))
    assert imported.gaps == ()
    assert [each.text for each in imported.leftovers if each.text != "$@"] == []
    recipe = tmp_path / "run.yaml"
    recipe.write_text(imported.text, encoding="utf-8")
    after = compile(recipe, conf_dir=ROOT / "conf")
    assert before.lowering is not None and after.lowering is not None
    wanted, found = before.lowering, after.lowering
    assert flags(wanted.megatron.argv)
    added = [(flag,) for flag in SERVES.get(name, ())]
    assert flags(found.megatron.argv) == sorted([*flags(wanted.megatron.argv), *added])
    assert flags(found.vllm.argv) == flags(wanted.vllm.argv)
    assert flags(found.vllm.passthrough) == flags(wanted.vllm.passthrough)
    assert found.ray.runtime_env == wanted.ray.runtime_env
    started = set(wanted.ray.roles) - {"converter"}  # which no launch starts
    assert started <= set(found.ray.roles)
    assert {role: found.ray.roles[role] for role in started} == {
        role: wanted.ray.roles[role] for role in started
    }


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_survives_as_a_recipe(script: Path, tmp_path: Path) -> None:
    imported = import_script(script)
    assert imported.plan is not None
    back, compiled = again(imported, tmp_path)
    wanted, found = settings_of(imported), settings_of(back)
    assert len(wanted) > 8
    unsure = {key for key, value in wanted.items() if is_reference(str(value))}
    assert set(differences(wanted, found)) <= unsure
    because = explained(compiled)
    new = {key.rpartition(".")[2] for key in found.keys() - wanted.keys()}
    assert {name for name in new if not {name, f"--{name.replace('_', '-')}"} & because} == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_way_is_a_recipe_that_says_the_same(script: Path, tmp_path: Path) -> None:
    """The text, composed, is the data; whatever the values look like."""
    read = read_launches(script, {})
    ways: dict[int, int] = {}
    for job in read.jobs:
        launch = len({each.command.origin for each in read.jobs[: read.jobs.index(job) + 1]})
        ways[launch] = ways.get(launch, 0) + 1
        branches = [str(branch) for branch in job.branches]
        imported = import_script(script, launch=launch, branches=branches)
        recipe = tmp_path / f"{script.stem}.yaml"
        recipe.write_text(imported.text, encoding="utf-8")
        plan = compile(recipe, conf_dir=ROOT / "conf").plan
        assert sections(plan.settings()) == sections(imported.data)
    assert ways

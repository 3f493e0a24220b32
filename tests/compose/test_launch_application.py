"""``launch.py`` as a person runs it: ours where a recipe is compiled, Hydra's own elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch.py"


@pytest.fixture
def run(tmp_path: Path) -> object:
    """Run launch.py in an empty folder, which must stay empty; ``(code, stdout, stderr)``."""

    def call(*arguments: str, **environment: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, str(LAUNCH), *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stdout + done.stderr
        assert list(tmp_path.iterdir()) == []
        return done.returncode, done.stdout, done.stderr

    return call


def test_dry_run_from_any_folder(run) -> None:
    code, out, _ = run("+recipe=qwen3-30b-fp8", "dry_run=true")
    assert code == 0
    assert "qwen3-30b-fp8" in out and "--fp8-recipe" in out


def test_without_dry_run_nothing_is_started(run) -> None:
    code, out, err = run("+recipe=qwen3-30b-fp8", "launcher=ray")
    assert code == 2
    assert "--fp8-recipe" in out and "launcher=ray is not available" in err


def test_errors_of_a_person_are_told_by_us(run) -> None:
    code, out, _ = run(
        "+recipe=qwen3-30b-fp8", "training.fp8_recip=mxfp8", "hardwere=h100", "a b=1"
    )
    assert code == 2
    assert all(id in out for id in ("error[PP002]", "error[PP009]"))
    assert "did you mean training.fp8_recipe?" in out
    assert run("+recipe=qwen3-30b-fp8", "nope.x=1", "dry_run=true")[0] == 1
    assert run("+recipe=qwen3", "dry_run=true")[0] == 2


def test_help_and_composed_configuration_are_hydras(run) -> None:
    code, out, _ = run("--help")
    assert code == 0 and "powered by Hydra" in out and "recipe: " in out
    code, out, _ = run("+recipe=qwen3-30b-fp8", "hardware=b200", "qat.int4_group_size=32",
                       "--cfg", "job")  # fmt: skip
    assert code == 0
    assert "  gpu: b200\n" in out and "qat:\n  int4_group_size: 32\n" in out
    code, out, _ = run("+recipe=qwen3-30b-fp8", "--info", "defaults-tree")
    assert code == 0 and "recipe: qwen3-30b-fp8" in out and "hardware: h100" in out


def test_completion(run) -> None:
    line = "launch.py +recipe=qwen3-30b-m"
    code, out, _ = run("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert (code, out.strip()) == (0, "+recipe=qwen3-30b-mxfp8")
    line = "launch.py +recipe=qwen3-30b-fp8 hardware=b3"
    code, out, _ = run("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert (code, out.strip()) == (0, "hardware=b300")


def test_a_sweep_runs_every_job_and_keeps_the_worst_code(run) -> None:
    code, out, _ = run(
        "-m", "+recipe=qwen3-30b-fp8", "training.fp16=false,true", "dry_run=true", "qat.nope=1"
    )
    assert code == 1
    assert out.count("error[PP002]") == 2 and out.count("error[PP101]") == 1


def test_added_folders_reach_the_compiler(run, tmp_path_factory: pytest.TempPathFactory) -> None:
    mine = tmp_path_factory.mktemp("mine")
    (mine / "hardware").mkdir()
    (mine / "hardware" / "lab.yaml").write_text("gpu: h200\ngpus_per_node: 8\n")
    arguments = ("+recipe=qwen3-30b-fp8", "hardware=lab", "dry_run=true")
    assert run(*arguments)[0] == 2
    for added in (("--config-dir", str(mine)), (f"hydra.searchpath=[{mine}]",)):
        code, out, _ = run(*arguments, *added)
        assert code == 0 and "h200" in out
    (mine / "recipes").mkdir()
    (mine / "recipes" / "own.yaml").write_text("defaults: [qwen3-30b-fp8, _self_]\nmodel: {}\n")
    assert run("+recipe=own", f"hydra.searchpath=[{mine}]", "dry_run=true")[0] == 0
    arguments = ("+recipe=own", f"hydra.searchpath=['precision-plan://{mine}']")
    assert "gpu: h100" in run(*arguments, "--cfg", "job")[1]


def test_a_recipe_from_anywhere(run, tmp_path_factory: pytest.TempPathFactory) -> None:
    recipe = tmp_path_factory.mktemp("mine") / "own.yaml"
    recipe.write_text("defaults: [qwen3-30b-fp8, _self_]\ntraining: {seq_length: 4096}\n")
    for added in ((), ("hydra.verbose=false",)):
        code, out, _ = run(f"+recipe={recipe}", "dry_run=true", *added)
        assert code == 0 and "own" in out


def test_a_recipe_cannot_make_hydra_run_code(run, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("mine")
    trap = folder / "trap"
    action = "{_target_: pathlib.Path.touch, _args_: ['" + str(trap) + "']}"
    for text in (
        "hydra: {callbacks: {x: " + action + "}}\n",
        "# @package hydra\ncallbacks: {x: " + action + "}\n",
        "training: {x: " + action + "}\n",
    ):
        (folder / "own.yaml").write_text(text)
        code, _, err = run("-m", f"+recipe={folder}/own.yaml", "dry_run=true")
        assert code != 0 and ("only config.yaml may configure Hydra" in err or "PP015" in err)
        assert run(f"+recipe={folder}/own.yaml", "dry_run=true")[0] == 2
        assert not trap.exists()


def test_another_primary_config_is_refused(run) -> None:
    code, _, err = run("--config-name", "other", "dry_run=true")
    assert code != 0 and "other" in err

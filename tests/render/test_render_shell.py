"""The bash script: accepted by bash, true to the lowering, free of secrets."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.api import compile
from precision_plan.plan import Lowering
from precision_plan.plan.lowering import MegatronLowering, RayLowering
from precision_plan.plan.serving import Launch
from precision_plan.render import render_plan
from precision_plan.render.shell import quote
from tests.render.samples import CLEAN, COMPILED, LOWERING, PLAN

SNAPSHOTS = Path(__file__).parent / "snapshots"
DUMP = """
printf '%s\\0' "${MEGATRON_ARGS[@]}"
"""


def bash(script: str, *options: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", *options],
        input=script.encode(),
        capture_output=True,
        env={"PATH": "/bin:/usr/bin", **env},
    )


def script_for(argv: tuple[str, ...] = (), runtime_env: dict[str, object] | None = None) -> str:
    lowering = Lowering(
        megatron=MegatronLowering(argv=argv),
        ray=RayLowering(runtime_env=runtime_env or {}, roles={"driver": {}}),
    )
    return render_plan(replace(CLEAN, lowering=lowering), "shell")


@pytest.mark.parametrize("name", ["clean", "refused"])
def test_snapshot(committed, name: str) -> None:
    script = render_plan({"clean": CLEAN, "refused": COMPILED}[name], "shell")
    committed(SNAPSHOTS / f"plan-{name}.sh", script)
    assert bash(script, "-n").returncode == 0


def test_a_plan_with_errors_refuses_to_run() -> None:
    done = bash(render_plan(COMPILED, "shell") + "echo reached", HF_TOKEN="x" * 8)
    assert done.returncode == 1
    assert b"reached" not in done.stdout
    assert b"my-mxfp8: this plan has errors and is not launched" in done.stderr


def test_a_secret_must_be_given_by_the_shell_that_runs_it() -> None:
    script = render_plan(CLEAN, "shell") + 'printf "%s" "${RUNTIME_ENV_JSON}"'
    without = bash(script, HF_TOKEN="h", REGISTRY="r")
    assert without.returncode != 0 and b"set WANDB_KEY" in without.stderr
    done = bash(script, HF_TOKEN='a"b\\c', WANDB_KEY="w", REGISTRY="r")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_vars"] == {
        "HF_TOKEN": 'a"b\\c',
        "NCCL_DEBUG": "INFO",
        "REGISTRY": "r",
    }


def test_json_arguments_keep_what_is_no_secret() -> None:
    argv = ("--train-env-vars", '{"HF_TOKEN": "abc", "NVTE_USE_FAST_MATH": "0"}', "--bf16")
    done = bash(script_for(argv) + DUMP, HF_TOKEN="given")
    words = done.stdout.decode().split("\0")[:-1]
    assert words[0] == "--train-env-vars" and words[2] == "--bf16"
    assert json.loads(words[1]) == {"HF_TOKEN": "given", "NVTE_USE_FAST_MATH": "0"}


def test_without_a_ray_job_the_environment_is_exported() -> None:
    megatron = MegatronLowering(argv=("--bf16",), env={"NVTE_DEBUG": "1", "not a name": "x"})
    lowering = Lowering(megatron=megatron)
    script = render_plan(replace(CLEAN, lowering=lowering), "shell")
    assert "export NVTE_DEBUG=1" in script
    assert "# not a name that bash can export: not a name" in script
    assert bash(script + 'printf "%s" "$NVTE_DEBUG"').stdout == b"1"


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=8))
def test_bash_reads_back_every_word(words: list[str]) -> None:
    done = bash("\n".join(f"printf '%s\\0' {quote(word)}" for word in words))
    assert done.stdout.decode().split("\0")[:-1] == words


@settings(max_examples=40)
@given(st.dictionaries(WORDS.filter(bool), WORDS, max_size=5))
def test_bash_reads_back_the_environment(variables: dict[str, str]) -> None:
    variables = {name: value for name, value in variables.items() if "=" not in name + value}
    script = script_for(runtime_env={"env_vars": variables}) if variables else ""
    if "json_text" in script or not script:  # a name that happens to be secret
        return
    assert bash(script, "-n").returncode == 0
    done = bash(script + 'printf "%s" "${RUNTIME_ENV_JSON}"')
    assert json.loads(done.stdout)["env_vars"] == variables


def test_targets_are_the_lowering_s() -> None:
    script = render_plan(CLEAN, "shell") + 'printf "%s " "${VLLM_ARGS[@]}"'
    done = bash(script, HF_TOKEN="h", WANDB_KEY="w", REGISTRY="r")
    assert done.stdout.decode().split() == list(LOWERING.vllm.passthrough)


def test_an_unset_secret_within_an_argument_stops_the_script() -> None:
    argv = ("--train-env-vars", '{"HF_TOKEN": "abc", "GITHUB_TOKEN": "def"}')
    done = bash(script_for(argv) + "echo reached", GITHUB_TOKEN="given")
    assert done.returncode != 0 and b"set HF_TOKEN" in done.stderr
    assert b"reached" not in done.stdout


def test_a_ray_job_is_submitted() -> None:
    plan = PLAN.model_copy(
        update={"launch": Launch(entrypoint="train.py", ray_address="http://127.0.0.1:8265")}
    )
    script = render_plan(replace(CLEAN, plan=plan), "shell")
    assert script.endswith(
        "ray job submit \\\n"
        "  --address=http://127.0.0.1:8265 \\\n"
        '  --runtime-env-json="$RUNTIME_ENV_JSON" \\\n'
        "  -- \\\n"
        "  python3 train.py \\\n"
        '  "${MEGATRON_ARGS[@]}" \\\n'
        '  "${VLLM_ARGS[@]}"\n'
    )


def test_other_programs_are_started_by_torchrun() -> None:
    plan = PLAN.model_copy(update={"launch": Launch(entrypoint="pretrain_gpt.py")})
    lowering = Lowering(megatron=MegatronLowering(argv=("--bf16",)))
    script = render_plan(replace(CLEAN, plan=plan, lowering=lowering), "shell")
    stub = script.replace("torchrun", "printf '%s\\n'")
    assert bash(stub, "-s", "--", "--rdzv-id=1").stdout.decode().split() == [
        "--nnodes=2", "--nproc-per-node=8", "--rdzv-id=1", "pretrain_gpt.py", "--bf16",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entrypoint", "word"),
    [
        ("train.py", "train.py"),
        ("tools/run.py", "tools/run.py"),
        ("pretrain_gpt", "-m pretrain_gpt"),
        ("megatron.tools.serve", "-m megatron.tools.serve"),
        ("a b.c", "'a b.c'"),
    ],
)
def test_a_module_is_started_as_one(entrypoint: str, word: str) -> None:
    plan = PLAN.model_copy(update={"launch": Launch(entrypoint=entrypoint)})
    lowering = Lowering(megatron=MegatronLowering(argv=("--bf16",)))
    script = render_plan(replace(CLEAN, plan=plan, lowering=lowering), "shell")
    assert f"  {word} \\\n" in script
    assert bash(script, "-n").returncode == 0


def test_an_engine_is_started_by_itself(tmp_path: Path) -> None:
    recipe = tmp_path / "serve.yaml"
    recipe.write_text(
        "recipe: {title: x}\nsoftware: {framework: vllm, vllm: 0.33.0}\n"
        "checkpoint: {hf_checkpoint: my/model}\nrollout: {kv_cache_dtype: fp8}\n"
        "env: {vllm_worker: {VLLM_USE_DEEP_GEMM: 0}}\n"
    )
    script = render_plan(compile(recipe), "shell")
    assert "export VLLM_USE_DEEP_GEMM=0\n" in script
    shown = bash(script.replace("vllm serve", "printf '%s '"))
    assert shown.stdout == b"my/model --kv-cache-dtype fp8 "

"""Batch linting of the command lines of vime, slime and miles."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.batch import lint_row

MODEL = [
    *("--num-layers", "4", "--hidden-size", "128", "--num-attention-heads", "8"),
    *("--bf16", "--hf-checkpoint", "/models/qwen", "--actor-num-gpus-per-node", "8"),
]


def row(framework: str, *argv: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": "case",
        "framework": framework,
        "versions": {"megatron_core": "0.16.1", "transformer_engine": "2.9.0", "vllm": "0.33.0"},
        "gpu": "h100",
        "argv": [*MODEL, *argv],
        **changes,
    }


def found(answer: dict[str, Any], kind: str = "errors") -> list[tuple[str, str | None]]:
    return [(each["id"], each["field"]) for each in answer[kind]]


@pytest.mark.parametrize("framework", ["vime", "slime", "miles"])
def test_framework_and_megatron_flags(framework: str) -> None:
    answer = lint_row(row(framework, "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"))
    assert "PP901" not in dict(found(answer))
    assert answer["resolved"]["fp8_recipe"] == "blockwise"


@pytest.mark.parametrize("framework", ["vime", "slime"])
def test_a_misspelt_flag_vanishes(framework: str) -> None:
    answer = lint_row(row(framework, "--fp8-recipee", "blockwise"))
    assert ("PP921", "--fp8-recipee") in found(answer, "warnings")
    assert answer["resolved"]["fp8_recipe"] == "delayed"


def test_miles_refuses_a_misspelt_flag() -> None:
    answer = lint_row(row("miles", "--fp8-recipee", "blockwise"))
    assert ("PP901", "--fp8-recipee") in found(answer)


def test_a_flag_that_resembles_none_may_be_the_frameworks_own() -> None:
    answer = lint_row(row("vime", "--my-own-plugin-path", "x.py"))
    assert not {"PP901", "PP921"} & set(dict(found(answer) + found(answer, "warnings")))


def test_engine_arguments_behind_their_prefix() -> None:
    answer = lint_row(row("vime", "--vllm-kv-cache-dtype", "fp8_inc"))
    assert ("PP425", "rollout.kv_cache_dtype") in found(answer)
    answer = lint_row(row("vime", "--vllm-mamba-ssm-cache-dtype", "fp8"))
    assert ("PP902", "rollout.mamba_ssm_cache_dtype") in found(answer)
    answer = lint_row(row("slime", "--sglang-kv-cache-dtype", "fp8_e4m3"))
    assert not {"PP901", "PP921"} & set(dict(found(answer) + found(answer, "warnings")))

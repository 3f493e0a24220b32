"""Command lines of ``vllm serve``, read as its own parser reads them."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.importers.argv import Parsed
from precision_plan.importers.vllm_argv import parse_engine_arguments


def read(*argv: str, vllm: str = "0.33.0") -> Parsed:
    return parse_engine_arguments(argv, vllm)


def kinds(parsed: Parsed) -> list[tuple[str, str]]:
    return [(problem.kind, problem.flag) for problem in parsed.problems]


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--kv_cache_dtype", "fp8"], {"rollout.kv_cache_dtype": "fp8"}),
        (["--kv-cache-dtype=fp8_e5m2"], {"rollout.kv_cache_dtype": "fp8_e5m2"}),
        (["vllm", "serve", "some/model", "-tp", "4"], {"rollout.tensor_parallel_size": 4}),
        (["serve", "some/model", "-q", "fp8"], {"rollout.quantization": "fp8"}),
        (["--max-model-len", "32k"], {"rollout.max_model_len": 32000}),
        (["--max-model-len", "2K"], {"rollout.max_model_len": 2048}),
        (["--no-enable-expert-parallel"], {"rollout.enable_expert_parallel": False}),
        (["--disable-expert-parallel"], {"rollout.enable_expert_parallel": False}),
        (["--quantization", "None"], {"rollout.quantization": None}),
        (["--moe-backend", "FLASHINFER-CUTLASS"], {"rollout.moe_backend": "flashinfer_cutlass"}),
        (["-ac.backend", "TRITON_ATTN"], {"rollout.attention_backend": "TRITON_ATTN"}),
        (["--hf-overrides", '{"head_dtype": "float32"}'], {"rollout.head_dtype": "float32"}),
        (
            ["--quantization-config.linear", "fp8_per_block"],
            {"rollout.quantization_config": {"linear": "fp8_per_block"}},
        ),
        (["--kv-cache-dtype-skip", "0", "1"], {"rollout.kv_cache_dtype_skip_layers": ("0", "1")}),
    ],
)
def test_values(argv: list[str], values: dict[str, Any]) -> None:
    parsed = read(*argv)
    assert parsed.problems == []
    assert parsed.values == values


def test_arguments_without_a_plan_field() -> None:
    parsed = read("-O3", "--block-size", "64", "--port", "8000", "-cc.mode", "3", "--hf-token")
    assert parsed.problems == []
    assert parsed.others == {
        "optimization_level": "3",
        "block_size": 64,
        "port": 8000,
        "compilation_config": {"mode": 3},
        "hf_token": True,
    }


def test_dotted_keys_become_one_object() -> None:
    parsed = read(
        *("--attention-config.backend", "FLASHINFER"),
        *("--attention_config.flash_attn_version", "3"),
    )
    assert parsed.others["attention_config"] == {"backend": "FLASHINFER", "flash_attn_version": 3}
    parsed = read("--compilation-config.custom_ops+", "a,b", "--compilation-config.custom_ops+=c")
    assert parsed.others["compilation_config"] == {"custom_ops": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--calculate-kv-scales"], ("unknown", "--calculate-kv-scales")),
        (["--kv-cache", "fp8"], ("ambiguous", "--kv-cache")),
        (["--dtype", "bf16"], ("choice", "--dtype")),
        (["--tensor-parallel-size", "two"], ("type", "--tensor-parallel-size")),
        (["--quantization"], ("count", "--quantization")),
        (["--enforce-eager=true"], ("count", "--enforce-eager")),
        (["--dtype", "auto", "stray"], ("stray", "stray")),
        (["--attention-config", "{"], ("type", "--attention-config")),
        (["--attention-config", '{"backends": "x"}'], ("choice", "--attention-config")),
        (["--quantization-config", '{"linear": "fp7"}'], ("choice", "--quantization-config")),
        (["--quantization-config", '{"moe": {"weights": 1}}'], ("choice", "--quantization-config")),
        (["--eplb-config", '{"num_redundant_experts": -1}'], ("choice", "--eplb-config")),
        (["-ac.backend", "XFORMERS"], ("choice", "--attention-config")),
        (["--attention-config.backend"], ("count", "--attention-config.backend")),
    ],
)
def test_refusals(argv: list[str], found: tuple[str, str]) -> None:
    assert found in kinds(read(*argv))


def test_another_release_may_have_other_arguments() -> None:
    assert kinds(read("--from-the-future", "1", vllm="0.40.0")) == []
    assert read("--calculate-kv-scales", vllm="0.22.1").values == {
        "rollout.calculate_kv_scales": True
    }
    assert ("choice", "--mamba-ssm-cache-dtype") in kinds(
        read("--mamba-ssm-cache-dtype", "float16", vllm="0.12.0")
    )

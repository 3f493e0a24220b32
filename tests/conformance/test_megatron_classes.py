"""Lowered settings construct megatron-core's dataclasses, and the values come back unchanged."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from tests.conformance.megatron_classes import construct, real
from tests.lower import golden

TRAINING = tuple(name for name in golden.RECIPES if "inference" not in name)

_REPLACED = {"cuda_graph_scope": [], "recompute_modules": ["core_attn"]}
"""Fields that ``__post_init__`` brings into another form when they are not set."""


def _settings(recipe: str, *overrides: str) -> dict[str, dict[str, Any]]:
    lowering = golden.compiled(recipe, *overrides).lowering
    assert lowering is not None
    return {name: dict(keywords) for name, keywords in lowering.megatron.settings.items()}


@pytest.mark.parametrize("recipe", TRAINING)
def test_settings_of_a_recipe_construct_the_real_classes(recipe: str) -> None:
    settings = _settings(recipe)
    assert len(settings) == 3
    for name, keywords in settings.items():
        built = construct(name, keywords)
        for key, value in keywords.items():
            assert getattr(built, key) == _REPLACED.get(key, real(key, value)), f"{name}.{key}"


def test_main_job_is_fp8_blockwise_with_bf16_parameters() -> None:
    torch = pytest.importorskip("torch")
    settings = _settings("qwen3-30b-fp8")
    model = construct("TransformerConfig", settings["TransformerConfig"])
    assert (model.fp8, model.fp8_recipe, model.fp8_param) == ("e4m3", "blockwise", False)
    assert model.params_dtype == model.pipeline_dtype == torch.bfloat16
    assert model.num_moe_experts == 128
    optimizer = construct("OptimizerConfig", settings["OptimizerConfig"])
    assert optimizer.use_precision_aware_optimizer_no_fp8_or_ds_fp8
    assert optimizer.fp8_recipe == "blockwise"
    ddp = construct("DistributedDataParallelConfig", settings["DistributedDataParallelConfig"])
    assert ddp.grad_reduce_in_fp32
    assert not ddp.fp8_param_gather


def test_precision_aware_optimizer_passes_megatrons_look_at_fused_adam() -> None:
    torch = pytest.importorskip("torch")
    keywords = _settings(
        "qwen3-30b-bf16-fp8-rollout",
        "optimizer.optimizer_cpu_offload=false",
        "optimizer.overlap_cpu_optimizer_d2h_h2d=false",
        "optimizer.exp_avg_dtype=bf16",
        "optimizer.exp_avg_sq_dtype=fp8",
        "optimizer.main_params_dtype=fp16",
    )["OptimizerConfig"]
    built = construct("OptimizerConfig", keywords)
    assert built.exp_avg_dtype == torch.bfloat16
    assert built.exp_avg_sq_dtype == torch.uint8
    assert built.main_params_dtype == torch.float16
    assert built.store_param_remainders


def test_fp8_parameters_reach_both_classes_under_their_own_names() -> None:
    settings = _settings(
        "qwen3-30b-mxfp8",
        "training.fp8_param_gather=true",
        "training.reuse_grad_buf_for_mxfp8_param_ag=true",
    )
    model = construct("TransformerConfig", settings["TransformerConfig"])
    ddp = construct("DistributedDataParallelConfig", settings["DistributedDataParallelConfig"])
    assert model.fp8_param
    assert ddp.fp8_param_gather
    assert ddp.reuse_grad_buf_for_mxfp8_param_ag


def test_latent_attention_has_its_own_class() -> None:
    settings = _settings("moonlight-16b-int4")
    assert "TransformerConfig" not in settings
    built = construct("MLATransformerConfig", settings["MLATransformerConfig"])
    assert built.multi_latent_attention
    assert built.kv_lora_rank == settings["MLATransformerConfig"]["kv_lora_rank"] == 512

"""The rollout checkpoint: config, ignore list, tensors beside a weight."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.facts.formats import formats
from precision_plan.facts.vllm_quant import resolve_method
from precision_plan.lower import lower
from precision_plan.plan.lowering import CheckpointLowering
from tests.lower.plans import plan


def _checkpoint(framework: str = "vime", **checkpoint: Any) -> CheckpointLowering:
    return lower(plan(software={"framework": framework}, checkpoint=checkpoint)).checkpoint


@pytest.mark.parametrize(
    ("weights", "method"),
    [
        ("fp8_block", "fp8"),
        ("fp8_per_tensor", "fp8"),
        ("mxfp8", "modelopt_mxfp8"),
        ("nvfp4", "modelopt_fp4"),
        ("int4", "compressed-tensors"),
        ("int8", "compressed-tensors"),
    ],
)
def test_a_weight_format_alone_gives_a_config_that_vllm_resolves(weights: str, method: str) -> None:
    found = _checkpoint(hf_weight_format=weights)
    assert found.quantization_config is not None
    assert resolve_method(found.quantization_config) == method
    names = set(found.tensors) - {"weight"}
    assert names <= set(formats()[weights].scale_tensors)
    assert all(item.reason.field or item.reason.fact for item in found.items)


@pytest.mark.parametrize("weights", ["bf16", "fp16", "fp32", None])
def test_an_unquantized_checkpoint_has_no_config(weights: str | None) -> None:
    assert _checkpoint(hf_weight_format=weights) == CheckpointLowering()


def test_block_fp8() -> None:
    found = _checkpoint(
        hf_weight_format="fp8_block",
        quantization_config={
            "weight_block_size": (64, 128),
            "modules_to_not_convert": ("model.layers.0.mlp.gate",),
        },
    )
    assert found.quantization_config == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [64, 128],
        "modules_to_not_convert": ["model.layers.0.mlp.gate"],
    }
    assert found.ignore == ("model.layers.0.mlp.gate",)
    assert found.tensors["weight_scale_inv"] == "float32 [ceil(N/64), ceil(K/128)]"


def test_static_fp8_has_an_input_scale() -> None:
    found = _checkpoint(quantization_config={"quant_method": "fp8", "activation_scheme": "static"})
    assert found.tensors == {
        "weight": "float8_e4m3fn [N, K]",
        "weight_scale": "float32 [1]",
        "input_scale": "float32 [1]",
    }


def test_mxfp8_scale_is_weight_scale_for_vllm_and_not_for_sglang() -> None:
    assert _checkpoint(hf_weight_format="mxfp8").tensors["weight_scale"] == "uint8 [N, K/32]"
    sglang = _checkpoint("miles", hf_weight_format="mxfp8").tensors
    assert "weight_scale" not in sglang
    assert sglang["weight_scale_inv"] == "uint8 [N, K/32]"


def test_a_wrong_scale_name_of_the_plan_is_not_repeated() -> None:
    found = _checkpoint(
        hf_weight_format="mxfp8", quantization_config={"scale_tensor": "weight_scale_inv"}
    )
    assert found.quantization_config == {
        "quant_method": "modelopt",
        "quant_algo": "MXFP8",
        "ignore": ["lm_head"],
    }
    assert "weight_scale_inv" not in found.tensors


def test_another_method_for_the_same_format_has_its_own_keys() -> None:
    found = _checkpoint(hf_weight_format="mxfp8", quantization_config={"quant_method": "mxfp8"})
    assert found.quantization_config == {"quant_method": "mxfp8", "ignored_layers": ["lm_head"]}


def test_nvfp4_has_two_levels_of_scales() -> None:
    found = _checkpoint(hf_weight_format="nvfp4")
    assert found.tensors == {
        "weight": "uint8 [N, K/2]",
        "weight_scale": "float8_e4m3fn [N, K/16]",
        "weight_scale_2": "float32 []",
        "input_scale": "float32 []",
    }
    weight_only = _checkpoint(
        hf_weight_format="nvfp4", quantization_config={"quant_algo": "W4A16_NVFP4"}
    )
    assert "input_scale" not in weight_only.tensors
    assert (weight_only.quantization_config or {})["quant_algo"] == "W4A16_NVFP4"


def test_int4_groups_come_from_the_checkpoint_then_from_training() -> None:
    config = {"group_size": 128, "symmetric": False, "ignore": ("re:.*gate$",)}
    found = lower(
        plan(
            checkpoint={"hf_weight_format": "int4", "quantization_config": config},
            qat={"int4_group_size": 32},
        )
    ).checkpoint
    assert found.ignore == ("re:.*gate$",)
    weights = (found.quantization_config or {})["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"], weights["symmetric"]) == (4, 128, False)
    assert found.tensors["weight_scale"] == "bfloat16 [N, K/128]"
    assert found.tensors["weight_zero_point"] == "int32 [N/8, K/128]"
    trained = lower(
        plan(checkpoint={"hf_weight_format": "int4"}, qat={"int4_group_size": 32})
    ).checkpoint
    weights = (trained.quantization_config or {})["config_groups"]["group_0"]["weights"]
    assert weights["group_size"] == 32
    assert "weight_zero_point" not in trained.tensors


def test_an_unknown_group_size_is_not_guessed() -> None:
    found = _checkpoint(hf_weight_format="int4")
    weights = (found.quantization_config or {})["config_groups"]["group_0"]["weights"]
    assert "group_size" not in weights
    assert found.tensors["weight_scale"] == "bfloat16 [N, K/group]"


def test_a_method_without_a_template_keeps_the_plans_keys() -> None:
    found = _checkpoint(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 64})
    assert (found.quantization_config or {}).items() >= {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 64,
    }.items()
    assert found.tensors == {}

"""A checkpoint's ``config.json`` becomes the model section, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.facts.hf_config import config_keys
from precision_plan.importers.hf_config import (
    model_of,
    quantization_config_in,
    quantization_of,
)
from precision_plan.plan.sections import Model
from precision_plan.plan.serving import QuantizationConfig

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
}


def test_latent_attention_and_experts() -> None:
    found = model_of(DEEPSEEK)
    assert found["multi_latent_attention"] is True
    assert (found["qk_head_dim"], found["qk_pos_emb_head_dim"], found["v_head_dim"]) == (
        128,
        64,
        128,
    )
    assert found["moe_layer_freq"] == (0, 1, 1, 1)
    assert found["moe_shared_expert_intermediate_size"] == 1024
    assert found["mtp_num_layers"] == 1
    assert found["untie_embeddings_and_output_weights"] is True
    assert "kv_channels" not in found


def test_nested_text_config() -> None:
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "text_config": {
            "num_hidden_layers": 8,
            "dtype": "bfloat16",
            "hidden_size": 512,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "full_attention_interval": 4,
            "mamba_ssm_dtype": "float32",
            "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
        },
    }
    found = model_of(config)
    assert found["hf_torch_dtype"] == "bfloat16"
    assert found["hf_model_type"] == "qwen3_5"
    assert (found["linear_attention_layers"], found["full_attention_layers"]) == (6, 2)
    assert (found["rotary_base"], found["rotary_percent"]) == (1e7, 0.25)
    assert found["kv_channels"] == 64
    assert found["group_query_attention"] is True
    assert found["untie_embeddings_and_output_weights"] is False


@pytest.mark.parametrize(
    ("extra", "layers"),
    [
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, (3, 1)),
        ({"hybrid_override_pattern": "MEM*E"}, (2, 1)),
        ({"layer_types": ["sliding_attention", "full_attention"]}, None),
        ({}, None),
    ],
)
def test_kinds_of_layers(extra: dict[str, Any], layers: tuple[int, int] | None) -> None:
    found = model_of({"num_hidden_layers": 4, **extra})
    names = ("linear_attention_layers", "full_attention_layers")
    assert (tuple(found[name] for name in names) if names[0] in found else None) == layers


@pytest.mark.parametrize(
    ("extra", "pattern"),
    [
        ({"decoder_sparse_step": 2}, (0, 1, 0, 1)),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0]}, (0, 1, 1, 1)),
        ({"decoder_sparse_step": 1, "mlp_only_layers": []}, None),
        ({"first_k_dense_replace": 3}, (0, 0, 0, 1)),
    ],
)
def test_expert_layers(extra: dict[str, Any], pattern: tuple[int, ...] | None) -> None:
    found = model_of({"num_hidden_layers": 4, "num_experts": 8, **extra})
    assert found.get("moe_layer_freq") == pattern


def test_experts_as_wide_as_the_mlp() -> None:
    """Mixtral and GPT-OSS write one width for both."""
    found = model_of({"num_local_experts": 8, "intermediate_size": 2880})
    assert (found["num_experts"], found["moe_ffn_hidden_size"]) == (8, 2880)


def test_where_the_quantization_config_stands() -> None:
    inner = {"quant_method": "fp8"}
    assert quantization_config_in({"quantization_config": inner}) == (inner, "quantization_config")
    nested = {"text_config": {"quantization_config": inner}}
    assert quantization_config_in(nested) == (inner, "text_config.quantization_config")
    assert quantization_config_in({"compression_config": inner}) == (inner, "compression_config")
    assert quantization_config_in({"quantization_config": "fp8"}) == (None, None)


GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (
            {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "activation_scheme": "dynamic",
            },
            {"weight_block_size": (128, 128), "activation_scheme": "dynamic"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUP}},
                "ignore": ["lm_head"],
            },
            {"bits": 4, "group_size": 32, "symmetric": False, "ignore": ("lm_head",)},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": GROUP},
                    "group_1": {"weights": {**GROUP, "num_bits": 8}},
                },
            },
            {"group_size": 32, "symmetric": False},
        ),
        (
            {
                "producer": {"name": "modelopt"},
                "quantization": {
                    "quant_algo": "nvfp4",
                    "group_size": 16,
                    "kv_cache_quant_algo": "FP8",
                    "exclude_modules": ["lm_head"],
                },
            },
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "group_size": 16,
                "kv_cache_quant_algo": "FP8",
                "exclude_modules": ("lm_head",),
            },
        ),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": True},
            {"bits": 4, "group_size": 128, "zero_point": True},
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True, "sym": True},
            {"bits": 8, "desc_act": True, "symmetric": True},
        ),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head", 3]},
            {"modules_to_not_convert": ("lm_head",)},
        ),
        (
            {"quant_method": "mxfp8", "ignored_layers": ["lm_head"]},
            {"ignored_layers": ("lm_head",)},
        ),
    ],
    ids=lambda value: str(value.get("quant_method")) if isinstance(value, dict) else "",
)
def test_layouts(raw: dict[str, Any], values: dict[str, Any]) -> None:
    found = quantization_of(raw)
    for key in ("quant_method", "format"):
        found_here = found.pop(key, None)
        assert found_here == values.pop(key, raw.get(key))
    assert found == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
MODEL_KEYS = st.sampled_from(
    sorted(
        {key for row in config_keys() for key in row.keys}
        | {"architectures", "layer_types", "rope_parameters", "mlp_only_layers", "text_config"}
        | {"hybrid_override_pattern", "full_attention_interval", "hidden_act", "dtype"}
    )
)
CONFIG_KEYS = st.sampled_from(
    (
        *("quant_method", "quant_algo", "bits", "group_size", "sym", "config_groups", "producer"),
        *("quantization", "ignore", "weight_block_size", "activation_scheme", "format", "actorder"),
    )
)


@given(st.dictionaries(MODEL_KEYS, JSON))
def test_any_config_gives_valid_values(config: dict[str, Any]) -> None:
    found = model_of(config)
    assert Model(**found).model_fields_set == set(found)


@given(st.dictionaries(CONFIG_KEYS, JSON | st.just({"group_0": {"weights": {"num_bits": "4"}}})))
def test_any_quantization_config_gives_valid_values(raw: dict[str, Any]) -> None:
    found = quantization_of(raw)
    assert QuantizationConfig(**found).model_fields_set == set(found)

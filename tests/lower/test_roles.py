"""The table of tensor roles: format, bytes and who decides, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.lower import lower
from precision_plan.plan import Role
from tests.lower import golden
from tests.lower.plans import plan

NAMES = (
    *("train weights", "main params", "main grads", "grad reduce"),
    *("Adam first moment", "Adam second moment", "GEMM inputs forward", "GEMM inputs backward"),
    *("softmax", "residual", "router", "embedding and LM head", "first/last layers"),
    *("param all-gather", "saved checkpoint", "weight sync", "rollout weights"),
    *("rollout activations", "KV cache", "recurrent state", "conv state"),
)
BF16 = {"training": {"bf16": True}}
PRECISION_AWARE = {"use_precision_aware_optimizer": True, "use_distributed_optimizer": True}


def _roles(**sections: Any) -> dict[str, Role]:
    return {role.name: role for role in lower(plan(**sections)).roles}


def _cell(name: str, **sections: Any) -> tuple[str, float | None]:
    role = _roles(**sections)[name]
    return role.dtype, role.bytes_per_element


@pytest.mark.parametrize("recipe", golden.RECIPES)
def test_the_table_has_every_row_in_order(recipe: str) -> None:
    lowering = golden.compiled(recipe).lowering
    assert lowering is not None
    assert tuple(role.name for role in lowering.roles) == NAMES
    for role in lowering.roles:
        assert (role.bytes_per_element is None) == (role.dtype == "unknown"), role
        assert role.origin


def test_main_job() -> None:
    lowering = golden.compiled("qwen3-30b-fp8").lowering
    assert lowering is not None
    table = {role.name: (role.dtype, role.bytes_per_element) for role in lowering.roles}
    assert table["train weights"] == ("bf16", 2.0)
    assert table["GEMM inputs forward"] == ("fp8_block e4m3", 1.03125)
    assert table["embedding and LM head"] == ("bf16", 2.0)
    assert table["saved checkpoint"] == ("bf16 (torch_dist)", 2.0)
    assert table["weight sync"] == table["rollout weights"] == ("fp8_block", 1 + 4 / 128**2)
    assert table["router"] == ("fp32", 4.0)


# Weights and optimizer ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("training", "weights", "main"),
    [
        ({}, ("fp32", 4.0), ("fp32", 0.0)),
        ({"bf16": True}, ("bf16", 2.0), ("fp32", 4.0)),
        ({"fp16": True}, ("fp16", 2.0), ("fp32", 4.0)),
    ],
)
def test_base_format(
    training: dict[str, Any], weights: tuple[str, float], main: tuple[str, float]
) -> None:
    assert _cell("train weights", training=training) == weights
    assert _cell("main params", training=training) == main


@pytest.mark.parametrize(
    ("optimizer", "te", "cell"),
    [
        ({}, None, ("fp32 (bf16 + 16-bit remainder)", 2.0)),
        ({}, "2.10.0", ("fp32 (bf16 + 16-bit remainder)", 2.0)),
        ({}, "1.13.0", ("fp32", 4.0)),
        ({"main_params_dtype": "fp16"}, None, ("fp16", 2.0)),
        ({"optimizer_cpu_offload": True}, None, ("fp32 (host)", 4.0)),
        (
            {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.5},
            None,
            ("fp32 (50% on the host)", 4.0),
        ),
    ],
)
def test_main_params_of_the_precision_aware_optimizer(
    optimizer: dict[str, Any], te: str | None, cell: tuple[str, float]
) -> None:
    sections = {**BF16, "optimizer": {**PRECISION_AWARE, **optimizer}}
    assert _cell("main params", software={"transformer_engine": te}, **sections) == cell


def test_quantized_gathering_keeps_full_main_params() -> None:
    sections = {
        "training": {
            "bf16": True,
            "fp8_format": "e4m3",
            "fp8_recipe": "mxfp8",
            "fp8_param_gather": True,
        },
        "optimizer": PRECISION_AWARE,
        "checkpoint": {"save": "out"},
    }
    roles = _roles(**sections)
    assert roles["main params"].bytes_per_element == 4.0
    assert (roles["train weights"].dtype, roles["train weights"].bytes_per_element) == (
        "mxfp8",
        2 * (1 + 1 / 32),
    )
    assert roles["param all-gather"].dtype == "mxfp8"
    assert roles["saved checkpoint"].dtype == "bf16 (torch_dist)"
    sections["training"]["reuse_grad_buf_for_mxfp8_param_ag"] = True
    assert _cell("param all-gather", **sections) == ("bf16", 2.0)


@pytest.mark.parametrize(
    ("training", "optimizer", "cell"),
    [
        ({}, {}, ("fp32", 4.0)),
        ({"grad_reduce_in_bf16": True}, {}, ("bf16", 2.0)),
        ({}, {**PRECISION_AWARE, "main_grads_dtype": "bf16"}, ("bf16", 2.0)),
    ],
)
def test_gradients_of_bf16(
    training: dict[str, Any], optimizer: dict[str, Any], cell: tuple[str, float]
) -> None:
    sections = {"training": {"bf16": True, **training}, "optimizer": optimizer}
    assert _cell("main grads", **sections) == cell
    assert _cell("grad reduce", **sections) == cell


def test_bf16_on_the_wire_with_fp32_sums() -> None:
    sections = {
        "training": {"bf16": True, "grad_reduce_in_bf16": True},
        "parallel": {"ddp_reduce_scatter_with_fp32_accumulation": True},
    }
    assert _cell("grad reduce", **sections) == ("bf16 (summed in fp32)", 2.0)


@pytest.mark.parametrize(
    ("optimizer", "first", "second"),
    [
        ({}, ("fp32", 4.0), ("fp32", 4.0)),
        (
            {**PRECISION_AWARE, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8"},
            ("bf16", 2.0),
            ("fp8_e4m3", 1.0),
        ),
        ({"optimizer": "sgd"}, ("fp32", 4.0), ("none", 0.0)),
        ({"optimizer": "muon"}, ("unknown", None), ("unknown", None)),
    ],
)
def test_moments(optimizer: dict[str, Any], first: Any, second: Any) -> None:
    assert _cell("Adam first moment", **BF16, optimizer=optimizer) == first
    assert _cell("Adam second moment", **BF16, optimizer=optimizer) == second


# Computation ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("training", "forward", "backward"),
    [
        ({"fp8_format": "e4m3"}, "fp8_per_tensor e4m3", "fp8_per_tensor e4m3"),
        ({"fp8_format": "hybrid"}, "fp8_per_tensor e4m3", "fp8_per_tensor e5m2"),
        ({"fp8_format": "hybrid", "fp8_recipe": "mxfp8"}, "mxfp8 e4m3", "mxfp8 e5m2"),
        ({"fp4_format": "e2m1"}, "nvfp4", "nvfp4"),
        ({}, "bf16", "bf16"),
    ],
)
def test_gemm_inputs(training: dict[str, Any], forward: str, backward: str) -> None:
    roles = _roles(training={"bf16": True, **training})
    assert roles["GEMM inputs forward"].dtype == forward
    assert roles["GEMM inputs backward"].dtype == backward


def test_a_custom_recipe_is_unknown() -> None:
    training = {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "custom"}
    assert _cell("GEMM inputs forward", training=training) == ("unknown", None)


@pytest.mark.parametrize(
    ("training", "dtype"),
    [
        ({"attention_softmax_in_fp32": True}, "fp32"),
        ({"apply_query_key_layer_scaling": True}, "fp32"),
        ({"attention_backend": "flash"}, "fp32"),
        ({"attention_backend": "unfused"}, "bf16"),
        ({"transformer_impl": "local"}, "bf16"),
        ({}, "unknown"),
    ],
)
def test_softmax(training: dict[str, Any], dtype: str) -> None:
    assert _roles(training={"bf16": True, **training})["softmax"].dtype == dtype


def test_exempted_layers_residual_and_router() -> None:
    roles = _roles(
        model={"num_experts": 8},
        training={
            "bf16": True,
            "fp8_format": "e4m3",
            "fp8_recipe": "blockwise",
            "first_last_layers_bf16": True,
            "num_layers_at_end_in_bf16": 6,
            "fp32_residual_connection": True,
            "moe_router_dtype": "fp64",
        },
    )
    assert roles["first/last layers"].dtype == "bf16 (first 1, last 6)"
    assert roles["residual"].dtype == "fp32"
    assert (roles["router"].dtype, roles["router"].bytes_per_element) == ("fp64", 8.0)


def test_who_decides_is_named() -> None:
    roles = _roles(software={"framework": "vime"})
    assert roles["train weights"].origin == "the framework sets bf16 = not fp16 after parsing"
    roles = _roles(software={"megatron_core": "0.15.3"}, training={"fp8_format": "e4m3"})
    assert roles["GEMM inputs forward"].origin == "default of Megatron 0.15.3"
    roles = _roles(software={"framework": "megadlm"}, training={"fp8_format": "e4m3"})
    assert roles["GEMM inputs forward"].origin == "MegaDLM has one FP8 recipe"


# Rollout --------------------------------------------------------------------------------------
def _rollout(gpu: str | None = "h100", **sections: Any) -> dict[str, Role]:
    return _roles(software={"framework": "vime"}, hardware={"gpu": gpu}, **sections)


@pytest.mark.parametrize(
    ("weights", "gpu", "activations"),
    [
        ("fp8_block", "h100", "fp8_block"),
        ("fp8_block", "a100", "bf16"),
        ("fp8_block", "mi300x", "fp8_block"),
        ("fp8_block", None, "unknown"),
        ("mxfp8", "b200", "mxfp8"),
        ("mxfp8", "h100", "bf16"),
        ("mxfp8", "mi355x", "mxfp8"),
        ("nvfp4", "b200", "nvfp4"),
        ("nvfp4", "h200", "bf16"),
        ("nvfp4", "mi355x", "bf16"),
        ("int4", "h100", "bf16"),
        ("bf16", None, "bf16"),
        ("fp32", "h100", "bf16"),
    ],
)
def test_activations_follow_weights_and_gpu(
    weights: str, gpu: str | None, activations: str
) -> None:
    roles = _rollout(gpu, checkpoint={"hf_weight_format": weights})
    assert roles["rollout activations"].dtype == activations


def test_int4_bytes_count_the_groups() -> None:
    for group, size in ((32, 0.5625), (128, 0.515625)):
        roles = _rollout(
            checkpoint={
                "hf_weight_format": "int4",
                "quantization_config": {"group_size": group},
            }
        )
        assert roles["rollout weights"].bytes_per_element == size
    roles = _rollout(checkpoint={"hf_weight_format": "int4"})
    assert roles["rollout weights"].bytes_per_element is None


def test_online_quantization_of_an_unquantized_checkpoint() -> None:
    roles = _rollout(
        checkpoint={"hf_weight_format": "bf16"}, rollout={"quantization": "fp8_per_block"}
    )
    assert roles["weight sync"].dtype == "bf16"
    assert roles["rollout weights"].dtype == "fp8_block"


def test_weight_sync_emits_what_the_framework_knows() -> None:
    config = {"hf_weight_format": "mxfp8"}
    assert _rollout(checkpoint=config)["weight sync"].dtype == "mxfp8"
    slime = _roles(software={"framework": "slime"}, checkpoint=config)
    assert slime["weight sync"].dtype == "bf16"  # its dispatch does not know the method
    assert _rollout()["weight sync"].dtype == "unknown"


@pytest.mark.parametrize(
    ("declared", "cell"),
    [
        ("fp8_e4m3", ("fp8_e4m3", 1.0)),
        ("fp8", ("fp8_e4m3 (fp8)", 1.0)),
        ("bfloat16", ("bf16", 2.0)),
        ("nvfp4", ("nvfp4", 0.5625)),
        ("int8_per_token_head", ("int8_per_token_head", 1.0)),
        ("auto", ("bf16", 2.0)),
        (None, ("bf16", 2.0)),
    ],
)
def test_kv_cache(declared: str | None, cell: tuple[str, float]) -> None:
    roles = _rollout(checkpoint={"hf_weight_format": "bf16"}, rollout={"kv_cache_dtype": declared})
    assert (roles["KV cache"].dtype, roles["KV cache"].bytes_per_element) == cell


def test_the_checkpoint_may_declare_the_cache() -> None:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    assert _rollout(checkpoint={"quantization_config": config})["KV cache"].dtype == "fp8_e4m3"


@pytest.mark.parametrize(
    ("model", "rollout", "recurrent", "conv"),
    [
        ({}, {"kv_cache_dtype": "fp8"}, "none", "none"),
        (
            {"linear_attention_layers": 48, "hf_architecture": "Qwen3_5ForCausalLM"},
            {"kv_cache_dtype": "fp8"},
            "unknown",
            "bf16",
        ),
        (
            {
                "linear_attention_layers": 48,
                "hf_architecture": "Qwen3_5ForCausalLM",
                "hf_mamba_ssm_dtype": "float32",
            },
            {"kv_cache_dtype": "fp8"},
            "fp32",
            "bf16",
        ),
        (
            {"linear_attention_layers": 48, "hf_architecture": "Qwen3_5ForCausalLM"},
            {"mamba_ssm_cache_dtype": "bfloat16", "mamba_cache_dtype": "float32"},
            "bf16",
            "fp32",
        ),
        (
            {"linear_attention_layers": 20, "hf_architecture": "KimiLinearForCausalLM"},
            {},
            "fp32",
            "bf16",
        ),
        (
            {"linear_attention_layers": 20, "hf_architecture": "SomeMambaForCausalLM"},
            {},
            "bf16",
            "bf16",
        ),
        ({"linear_attention_layers": 20}, {}, "unknown", "bf16"),
    ],
)
def test_states_do_not_follow_the_kv_cache(
    model: dict[str, Any], rollout: dict[str, Any], recurrent: str, conv: str
) -> None:
    roles = _rollout(model=model, rollout=rollout, checkpoint={"hf_weight_format": "bf16"})
    assert roles["recurrent state"].dtype == recurrent
    assert roles["conv state"].dtype == conv


def test_inference_has_no_trainer_and_training_no_engine() -> None:
    roles = _roles(
        software={"framework": "megadlm"}, inference={"quantization": "int8", "dtype": "bf16"}
    )
    assert roles["train weights"].origin == "inference only"
    assert roles["rollout weights"].dtype == "bf16 (as int8)"
    roles = _roles(software={"framework": "megatron-lm"}, **BF16)
    assert roles["KV cache"].origin == "no rollout engine"
    roles = _roles(software={"framework": "vllm"}, checkpoint={"hf_weight_format": "bf16"})
    assert roles["main params"].origin == "nothing is trained"

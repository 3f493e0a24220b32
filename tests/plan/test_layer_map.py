"""The layer map: which module of which layer computes in what, and what decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from precision_plan.plan import PrecisionPlan, Target
from precision_plan.plan.layer_map import LayerMap, layer_map
from tests.lower.plans import any_plan

FP8 = {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"}
NVFP4 = {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4"}
EXPERTS = {"num_layers": 4, "num_experts": 8}


def config(*matchers: tuple[str, str], **recipes: dict[str, Any]) -> dict[str, Any]:
    """Matchers as ``(pattern, configuration)`` and the training recipes of configurations."""
    return {
        "configs": {name: {"training_recipe": recipe} for name, recipe in recipes.items()},
        "matchers": {
            f"m{number}": {"config": name, "pattern": pattern, "enabled": True}
            for number, (pattern, name) in enumerate(matchers)
        },
    }


def map_of(**sections: Any) -> LayerMap:
    plan = PrecisionPlan.model_validate(sections)
    found = layer_map(plan, Target.of(plan))
    assert found is not None
    return found


def rows(found: LayerMap) -> list[tuple[Any, ...]]:
    """The ranges without their reasons."""
    return [
        (row.block, row.first, row.last, row.modules, row.resolved.format) for row in found.ranges()
    ]


# The model's own recipe -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("training", "format", "field"),
    [
        ({"bf16": True}, "bf16", "training.bf16"),
        ({"fp16": True}, "fp16", "training.fp16"),
        ({}, "fp32", None),
        (FP8, "fp8_block", "training.fp8_recipe"),
        ({**FP8, "fp8_recipe": "mxfp8"}, "mxfp8", "training.fp8_recipe"),
        ({"bf16": True, "fp8_format": "hybrid"}, "fp8_per_tensor", None),
        (NVFP4, "nvfp4", "training.fp4_recipe"),
        ({**FP8, "fp8_recipe": "custom"}, None, "training.fp8_recipe"),
        ({**FP8, "transformer_impl": "local"}, "bf16", "training.transformer_impl"),
    ],
)
def test_every_layer_has_the_recipe_of_the_model(
    training: dict[str, Any], format: str | None, field: str | None
) -> None:
    found = map_of(model={"num_layers": 3}, training=training)
    assert rows(found) == [("decoder", 0, 2, (), format)]
    assert found.ranges()[0].resolved.field == field
    assert found.default == found.ranges()[0].resolved


def test_megadlm_knows_delayed_scaling_only() -> None:
    found = map_of(
        software={"framework": "megadlm"},
        model={"num_layers": 2},
        training={**FP8, "te_precision_config": config(("*", "bf16"), bf16={})},
    )
    assert rows(found) == [("decoder", 0, 1, (), "fp8_per_tensor")]


def test_an_engine_trains_nothing() -> None:
    plan = PrecisionPlan.model_validate({"software": {"framework": "vllm"}})
    assert layer_map(plan, Target.of(plan)) is None


def test_without_the_number_of_layers_only_the_default_is_known() -> None:
    found = map_of(training={**FP8, "first_last_layers_bf16": True})
    assert (found.decoder, found.mtp, found.ranges()) == ((), (), ())
    assert found.default.format == "fp8_block"


# First and last layers --------------------------------------------------------------------------
def test_first_and_last_layers_stay_in_the_base_format() -> None:
    found = map_of(
        model={"num_layers": 6},
        training={
            **FP8,
            "first_last_layers_bf16": True,
            "num_layers_at_start_in_bf16": 2,
            "num_layers_at_end_in_bf16": 1,
        },
    )
    assert rows(found) == [
        ("decoder", 0, 1, (), "bf16"),
        ("decoder", 2, 4, (), "fp8_block"),
        ("decoder", 5, 5, (), "bf16"),
    ]
    assert found.ranges()[0].resolved.field == "training.first_last_layers_bf16"


def test_one_layer_at_each_end_by_default_and_none_in_a_model_without_recipe() -> None:
    edges = {"first_last_layers_bf16": True}
    model = {"num_layers": 3}
    assert [row[-1] for row in rows(map_of(model=model, training={**NVFP4, **edges}))] == [
        "bf16",
        "nvfp4",
        "bf16",
    ]
    plain = map_of(model=model, training={"bf16": True, **edges})
    assert rows(plain) == [("decoder", 0, 2, (), "bf16")]


def test_prediction_layers_follow_fp8_without_exemption_and_not_fp4() -> None:
    model = {"num_layers": 2, "mtp_num_layers": 1}
    edges = {"first_last_layers_bf16": True}
    fp8 = map_of(model=model, training={**FP8, **edges})
    assert rows(fp8) == [("decoder", 0, 1, (), "bf16"), ("mtp", 0, 0, (), "fp8_block")]
    fp4 = map_of(model=model, training=NVFP4)
    assert rows(fp4) == [("decoder", 0, 1, (), "nvfp4"), ("mtp", 0, 0, (), "bf16")]


# Module by module -------------------------------------------------------------------------------
def test_the_first_matcher_decides_and_the_rest_keeps_the_recipe() -> None:
    file = config(
        ("*.mlp.experts.*", "nvfp4"),
        ("*.linear_*", "bf16"),
        nvfp4={"fp4_quantization_recipe": "nvfp4"},
        bf16={},
    )
    model = {**EXPERTS, "moe_shared_expert_intermediate_size": 64}
    training = {**FP8, "moe_grouped_gemm": True, "te_precision_config": file}
    found = map_of(model=model, training=training)
    experts = ("mlp.experts.linear_fc1", "mlp.experts.linear_fc2")
    attention = ("self_attention.linear_qkv", "self_attention.linear_proj")
    shared = ("mlp.shared_experts.linear_fc1", "mlp.shared_experts.linear_fc2")
    assert rows(found) == [
        ("decoder", 0, 3, (*attention, *shared), "bf16"),
        ("decoder", 0, 3, experts, "nvfp4"),
    ]
    decided = {row.resolved.because: row.resolved.field for row in found.ranges()}
    assert decided == {
        "matcher m1": "training.te_precision_config.matchers.m1",
        "matcher m0": "training.te_precision_config.matchers.m0",
    }
    assert found.by_module == "training.te_precision_config"


def test_dense_and_expert_layers_have_their_own_modules() -> None:
    found = map_of(
        model={**EXPERTS, "moe_layer_freq": [0, 1, 1, 1]},
        training={
            **FP8,
            "moe_grouped_gemm": True,
            "te_precision_config": config(("*.mlp.linear_fc2", "bf16"), bf16={}),
        },
    )
    assert rows(found)[1:] == [
        ("decoder", 0, 0, ("mlp.linear_fc2",), "bf16"),
        ("decoder", 1, 3, (), "fp8_block"),
    ]


def test_an_exempt_layer_stays_so_unless_the_recipe_says_otherwise() -> None:
    training = {**FP8, "first_last_layers_bf16": True, "num_layers_at_end_in_bf16": 0}
    recipe = {"fp8_quantization_recipe": "tensorwise"}
    file = config(("*", "tw"), tw=recipe)
    kept = map_of(model={"num_layers": 2}, training={**training, "te_precision_config": file})
    assert [row[-1] for row in rows(kept)] == ["bf16", "fp8_per_tensor"]
    file = config(("*", "tw"), tw={**recipe, "override_nonquantized_autocast": True})
    taken = map_of(model={"num_layers": 2}, training={**training, "te_precision_config": file})
    assert rows(taken) == [("decoder", 0, 1, (), "fp8_per_tensor")]


def test_evaluation_may_differ() -> None:
    file = config(("*", "eval"), eval=dict[str, Any](fp8_quantization_recipe="mxfp8"))
    file["configs"]["eval"]["evaluation_recipe"] = {}
    found = map_of(model={"num_layers": 1}, training={**FP8, "te_precision_config": file})
    (row,) = found.ranges()
    assert (row.resolved.format, row.resolved.evaluation) == ("mxfp8", "bf16")


def test_a_number_counts_inside_a_pipeline_stage() -> None:
    file = config(("decoder.layers.0.*", "bf16"), bf16={})
    found = map_of(
        model={"num_layers": 4},
        parallel={"pipeline_model_parallel_size": 2},
        training={**FP8, "te_precision_config": file},
    )
    assert [row[-1] for row in rows(found)] == ["bf16", "fp8_block", "bf16", "fp8_block"]


# What is not known ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "training",
    [
        {"te_precision_config_file": "te.yaml"},
        {"kitchen_config_file": "kitchen.yaml"},
        {"kitchen_recipe_number": 3},
    ],
)
def test_a_file_that_the_plan_does_not_hold_leaves_everything_unknown(
    training: dict[str, Any],
) -> None:
    found = map_of(model={"num_layers": 2}, training={**FP8, **training})
    (field,) = training
    assert rows(found) == [("decoder", 0, 1, (), None)]
    assert found.default.field == found.by_module == f"training.{field}"


def test_a_version_without_the_flag_reads_no_file() -> None:
    old = {"megatron_core": "0.15.3"}
    file = {"te_precision_config_file": "te.yaml"}
    found = map_of(software=old, model={"num_layers": 2}, training={**FP8, **file})
    assert rows(found) == [("decoder", 0, 1, (), "fp8_block")]
    assert found.by_module is None


def test_a_layout_that_the_plan_does_not_know_leaves_numbers_unknown() -> None:
    file = config(("decoder.layers.0.*", "bf16"), ("*.linear_fc2", "bf16"), bf16={})
    found = map_of(
        model={"num_layers": 4},
        parallel={"pipeline_model_parallel_size": 2},
        launch={"extra_args": {"pipeline-model-parallel-layout": "Et|ttt|L"}},
        training={**FP8, "te_precision_config": file},
    )
    formats = {name: found.decoder[0][name].format for name in found.decoder[0]}
    assert formats == {
        "self_attention.linear_qkv": None,
        "self_attention.linear_proj": None,
        "mlp.linear_fc1": None,
        "mlp.linear_fc2": "bf16",  # the second matcher says so whatever the number
    }


def test_experts_that_differ_by_number_have_no_common_answer() -> None:
    file = config(("*.local_experts.0.*", "bf16"), bf16={})
    found = map_of(model=EXPERTS, training={**FP8, "te_precision_config": file})
    layer = found.decoder[0]
    assert layer["mlp.experts.local_experts.*.linear_fc1"].format is None
    assert layer["self_attention.linear_qkv"].format == "fp8_block"


def test_a_configuration_that_is_not_there_is_unknown() -> None:
    found = map_of(
        model={"num_layers": 1},
        training={**FP8, "te_precision_config": config(("*.linear_fc2", "gone"))},
    )
    assert found.decoder[0]["mlp.linear_fc2"].format is None


def test_a_hybrid_model_is_not_described_completely() -> None:
    assert not map_of(model={"num_layers": 2, "linear_attention_layers": 1}).complete
    assert map_of(model={"num_layers": 2}).complete


@settings(max_examples=150, deadline=None)
@given(any_plan())
def test_ranges_say_exactly_what_the_map_says(plan: PrecisionPlan) -> None:
    found = layer_map(plan, Target.of(plan))
    if found is None:
        return
    said: dict[tuple[str, int, str], object] = {}
    for row in found.ranges():
        for layer in range(row.first, row.last + 1):
            block = getattr(found, row.block)
            for module in row.modules or block[layer]:
                assert said.setdefault((row.block, layer, module), row.resolved) == row.resolved
    assert said == {
        (block, layer, module): resolved
        for block in ("decoder", "mtp")
        for layer, modules in enumerate(getattr(found, block))
        for module, resolved in modules.items()
    }

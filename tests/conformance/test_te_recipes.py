"""The lowered recipe and variables construct Transformer Engine's real class."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic")

from precision_plan.lower import lower
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.lowering import TransformerEngineLowering
from tests.conformance.te_recipe_module import build, real, recipe_module, te_version
from tests.lower import golden

QUANTIZED = ("megadlm-fp8", "qwen3-30b-fp8", "qwen3-30b-mxfp8", "qwen3-4b-fp8")


def _engine(**training: Any) -> TransformerEngineLowering:
    plan = {
        "hardware": {"gpu": "b200"},
        "software": {"framework": "megatron-lm", "transformer_engine": te_version()},
        "training": {"bf16": True, **training},
    }
    return lower(PrecisionPlan.model_validate(plan)).transformer_engine


def _construct(engine: TransformerEngineLowering) -> Any:
    assert engine.recipe is not None
    return build(recipe_module(engine.env), engine.recipe, engine.kwargs)


@pytest.mark.parametrize("recipe", golden.RECIPES)
def test_recipe_of_a_recipe_constructs(recipe: str) -> None:
    lowering = golden.compiled(recipe).lowering
    assert lowering is not None
    engine = lowering.transformer_engine
    assert (engine.recipe is not None) == (recipe in QUANTIZED)
    if engine.recipe is not None:
        module = recipe_module(engine.env)
        built = build(module, engine.recipe, engine.kwargs)
        for key, value in engine.kwargs.items():
            assert getattr(built, key) == real(module, key, value)


@pytest.mark.parametrize(
    ("training", "recipe", "predicate"),
    [
        ({"fp8_format": "hybrid"}, "DelayedScaling", "delayed"),
        ({"fp8_format": "e4m3", "fp8_recipe": "tensorwise"}, "Float8CurrentScaling", None),
        ({"fp8_format": "e4m3", "fp8_recipe": "blockwise"}, "Float8BlockScaling", None),
        ({"fp8_format": "hybrid", "fp8_recipe": "mxfp8"}, "MXFP8BlockScaling", "mxfp8"),
        ({"fp4_format": "e2m1"}, "NVFP4BlockScaling", "nvfp4"),
    ],
)
def test_every_recipe_of_megatron_constructs(
    training: dict[str, Any], recipe: str, predicate: str | None
) -> None:
    engine = _engine(**training)
    assert engine.recipe == recipe
    built = _construct(engine)
    if predicate is not None:
        assert getattr(built, predicate)()


def test_delayed_scaling_takes_megatrons_defaults_and_not_its_own() -> None:
    built = _construct(_engine(fp8_format="e4m3"))
    assert (built.amax_history_len, built.amax_compute_algo) == (1, "most_recent")
    given = _construct(_engine(fp8_format="e4m3", fp8_amax_history_len=1024, fp8_margin=2))
    assert (given.amax_history_len, given.margin) == (1024, 2)


@pytest.mark.parametrize(("gpu", "power_of_two"), [("h100", False), ("b200", True)])
def test_block_scales_of_the_main_job_follow_the_declared_gpu(gpu: str, power_of_two: bool) -> None:
    lowering = golden.compiled("qwen3-30b-fp8", f"hardware={gpu}").lowering
    assert lowering is not None
    built = _construct(lowering.transformer_engine)
    for slot in (built.fp8_quant_fwd_inp, built.fp8_quant_fwd_weight, built.fp8_quant_bwd_grad):
        assert slot.power_2_scale is power_of_two


def test_nvfp4_knobs_reach_the_recipe_by_environment() -> None:
    engine = _engine(
        fp4_format="e2m1",
        nvfp4_disable_rht=True,
        nvfp4_disable_stochastic_rounding=True,
        nvfp4_disable_2d_quantization=False,
        nvfp4_4over6="weights",
        nvfp4_4over6_err_mode="MSE",
        backward_override="dequantized",
    )
    assert engine.kwargs == {}
    built = _construct(engine)
    assert built.disable_rht is built.disable_stochastic_rounding is True
    assert built.disable_2d_quantization is False
    assert (built.nvfp4_4over6, built.nvfp4_4over6_err_mode) == ("weights", "MSE")
    assert built.backward_override == "dequantized"


def test_current_scaling_power_of_two_is_a_variable() -> None:
    engine = _engine(
        fp8_format="e4m3", fp8_recipe="tensorwise", fp8_current_scaling_power_2_scales=True
    )
    built = _construct(engine)
    assert built.fp8_quant_fwd_weight.power_2_scale is True
    assert engine.env["NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES"] == "1"


@pytest.mark.parametrize(
    ("training", "factory"),
    [
        ({"fp8_format": "e4m3", "fp8_recipe": "custom", "fp8_quantizer_factory": "a.b"}, "a.b"),
        (
            {
                "fp4_format": "e2m1",
                "fp4_recipe": "custom",
                "fp4_quantizer_factory": "c.d",
                "fp8_quantizer_factory": "a.b",
            },
            "c.d",
        ),
    ],
)
def test_a_custom_recipe_takes_its_own_factory(training: dict[str, Any], factory: str) -> None:
    engine = _engine(**training)
    assert (engine.recipe, engine.kwargs) == ("CustomRecipe", {"qfactory": factory})
    assert "qfactory" in recipe_module({}).CustomRecipe.__dataclass_fields__

"""PP165 to PP168: what single modules compute in on the declared target."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.transformer_engine import te_recipes
from precision_plan.plan import Because, Fix
from precision_plan.plan.layer_map import INLINE
from precision_plan.plan.te_precision import TeQuantizationRecipe
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.by_module import (
    asked_by,
    class_of,
    configuration,
    selector,
    used_recipes,
)
from precision_plan.rules.capability import (
    B200,
    gpu_field,
    has_capability,
    recipe_of,
    refusal,
)
from precision_plan.rules.hardware_limits import nvfp4_on_sm12x
from precision_plan.rules.sources import megatron

_ENGINE = "core/extensions/transformer_engine.py"
_CHECKS = "transformer-engine@2.20.2:transformer_engine/pytorch/quantization.py:149-186"
_ROCM_RECIPES = frozenset({"DelayedScaling", "Float8CurrentScaling", "CustomRecipe"})


def _built(ctx: Context) -> Iterator[tuple[str, TeQuantizationRecipe, str]]:
    """Recipes that single modules get, with field and class; the model's own is left out.

    Other rules speak of the class that the model uses anyway.
    """
    quantized = bool(ctx.args.fp8 or ctx.args.fp4)
    for field, recipe in used_recipes(ctx):
        name = class_of(recipe)
        if name is not None and recipe.overrides(quantized) and name != recipe_of(ctx):
            yield field, recipe, name


@rule(
    "PP165",
    "module-recipe-not-on-this-gpu",
    "error",
    stage="te_hardware",
    source=(_CHECKS, megatron(f"{_ENGINE}:205-253")),
    needs=("gpu",),
    hardware="as for the model's own recipe (PP201 to PP209)",
)
def wrong_gpu(ctx: Context) -> Iterator[Finding]:
    """A recipe for single modules needs the GPU that it would need for the whole model.

    Why:
        TE checks the recipe whenever a module enters it. A configuration may bring MXFP8 or
        NVFP4 to a GPU that the model's own recipe suits and this one does not: MXFP8 needs
        compute capability 10.0 up to 12.0, NVFP4 10.0 and later, neither is for ROCm.

    Bad:
        hardware: {gpu: h100}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          te_precision_config:
            configs: {mxfp8: {training_recipe: {fp8_quantization_recipe: mxfp8}}}
            matchers: {fc2: {config: mxfp8, pattern: "*.linear_fc2", enabled: true}}

    Good:
        hardware: {gpu: h100}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          te_precision_config:
            configs: {tensorwise: {training_recipe: {fp8_quantization_recipe: tensorwise}}}
            matchers: {fc2: {config: tensorwise, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for field, recipe, name in _built(ctx):
        key, value = selector(recipe)
        why, fixes = _refused(ctx, name), (B200,)
        message = f"{value} for single modules needs {why}; {has_capability(ctx)}"
        if why is None and name == "NVFP4BlockScaling":
            wrong = nvfp4_on_sm12x(ctx)
            if wrong is not None:
                why, missing = wrong
                message = f"for single modules, too: {why}"
                fixes = (set_to(*((option, True) for option in missing)),)
        if config is not None and why is not None:
            yield ctx.found(
                message,
                f"{field}.{key}",
                gpu_field(ctx),
                asked_by(config, field),
                fix=(set_to((f"{field}.{key}", None), also=" for the base format"), *fixes),
            )


def _refused(ctx: Context, name: str) -> str | None:
    """What the recipe would need, by TE's checks and by this project's law."""
    capability = ctx.target.compute_capability
    if ctx.target.platform == "rocm":
        return None if name in _ROCM_RECIPES else "an NVIDIA GPU"
    if capability is None:
        return None
    if name == "MXFP8BlockScaling" and not (10, 0) <= capability < (12, 0):
        return "compute capability 10.0 up to 12.0"
    if name == "NVFP4BlockScaling":
        return None if capability >= (10, 0) else "compute capability 10.0 or later"
    cuda, te = ctx.target.package("cuda"), ctx.target.package("transformer_engine")
    refused = refusal(name, capability, cuda, te)
    if refused is None:
        return None
    return refused.bounds if refused.cuda is None else f"CUDA {refused.cuda} or later"


@rule(
    "PP166",
    "module-recipe-needs-newer-transformer-engine",
    "error",
    stage="te_recipe",
    source=(megatron(f"{_ENGINE}:236-251"),),
    needs=("transformer_engine",),
)
def needs_newer_te(ctx: Context) -> Iterator[Finding]:
    """The Transformer Engine version does not have the recipe of a module.

    Why:
        Megatron takes the class from TE's recipe module without asking for a version, so the
        first forward pass of the module fails with an AttributeError.

    Bad:
        software: {transformer_engine: 2.4.0}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          te_precision_config:
            configs: {nvfp4: {training_recipe: {fp4_quantization_recipe: nvfp4}}}
            matchers: {fc2: {config: nvfp4, pattern: "*.linear_fc2", enabled: true}}

    Good:
        software: {transformer_engine: 2.8.0}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          te_precision_config:
            configs: {nvfp4: {training_recipe: {fp4_quantization_recipe: nvfp4}}}
            matchers: {fc2: {config: nvfp4, pattern: "*.linear_fc2", enabled: true}}
    """
    te = ctx.target.package("transformer_engine")
    for field, recipe, name in _built(ctx):
        versions = te_recipes()[name].versions
        if te in versions or versions.since is None:
            continue
        key, value = selector(recipe)
        yield ctx.found(
            f"{value} for single modules needs Transformer Engine {versions.since}.0 or later; "
            f"the target has {te}",
            f"{field}.{key}",
            "software.transformer_engine",
            fix=(
                set_to(("software.transformer_engine", f"{versions.since}.0"), also=" or later"),
                set_to((f"{field}.{key}", None), also=" for the base format"),
            ),
        )


@rule(
    "PP167",
    "module-precision-with-quantized-parameters",
    "warning",
    stage="run",
    source=(
        megatron("core/extensions/TransformerEngineMixedPrecision.md:31-33"),
        megatron("training/arguments.py:1382"),
    ),
)
def quantized_parameters(ctx: Context) -> Found:
    """Parameters are stored as the model's recipe has it, whatever a module computes in.

    Why:
        ``--fp8-param-gather`` creates the parameters of a layer in FP8 before the configuration
        is given to its modules. A module that is then told to compute in BF16 computes with
        weights that have been rounded to FP8. Megatron's documentation leaves the combination
        out, and its source says that it should be refused.

    Bad:
        optimizer: {use_distributed_optimizer: true}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          fp8_param_gather: true
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}

    Good:
        optimizer: {use_distributed_optimizer: true}
        training:
          fp8_format: e4m3
          fp8_recipe: blockwise
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    if configuration(ctx) is None:
        return None
    dest = "fp4_param_gather" if ctx.args.fp4 and ctx.fp4_param_gather else "fp8_param_gather"
    if dest == "fp8_param_gather" and not (ctx.args.fp8 and ctx.args.fp8_param_gather):
        return None
    if not any(
        recipe.overrides(True) and class_of(recipe) != recipe_of(ctx)
        for _, recipe in used_recipes(ctx)
    ):
        return None
    return ctx.found(
        f"{INLINE} changes what modules compute in, not the quantized form of their parameters",
        f"training.{dest}",
        Because("modules get another recipe than the model's", INLINE),
        fix=(set_to((f"training.{dest}", None)),),
    )


@rule(
    "PP168",
    "mtp-layers-unlike-the-others",
    "advice",
    stage="run",
    source=(megatron("core/transformer/multi_token_prediction.py:772-781"),),
)
def mtp_layers(ctx: Context) -> Found:
    """Multi-token prediction layers follow FP8, but neither FP4 nor the first and last layers.

    Why:
        Megatron opens the FP8 recipe around a multi-token prediction layer without its number,
        so ``--first-last-layers-bf16`` does not exempt it although it comes after the last
        layer. FP4 is left out there, and the layer trains in its base format.

    Bad:
        model: {num_layers: 8, mtp_num_layers: 1}
        training: {bf16: true, fp4_format: e2m1}

    Good:
        model: {num_layers: 8, mtp_num_layers: 1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
    """
    layers = ctx.layers if ctx.plan.model.mtp_num_layers else None
    if layers is None or layers.default.format in (None, layers.base):
        return None
    found = {module.format for layer in layers.mtp for module in layer.values()}
    if ctx.args.fp4 and found == {layers.base}:
        return ctx.found(
            f"the multi-token prediction layers train in {layers.base}: FP4 leaves them out",
            "model.mtp_num_layers",
            "training.fp4_format",
            fix=(Fix("leave them so in the rollout checkpoint, too"),),
        )
    exempt = ctx.args.first_last_layers_bf16 and ctx.args.num_layers_at_end_in_bf16
    if ctx.args.fp8 and exempt and layers.default.format in found:
        return ctx.found(
            f"the multi-token prediction layers train in {layers.default.format}, although the "
            f"last decoder layers stay in {layers.base}",
            "model.mtp_num_layers",
            "training.first_last_layers_bf16",
            "training.num_layers_at_end_in_bf16",
            fix=(Fix(f'exempt them, too: a matcher for "mtp.layers.*" in {INLINE}'),),
        )
    return None


RULES: tuple[Rule, ...] = (
    wrong_gpu,
    needs_newer_te,
    quantized_parameters,
    mtp_layers,
)

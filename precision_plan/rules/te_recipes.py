"""PP220 to PP222: whether a Transformer Engine version can build the recipe."""

from __future__ import annotations

from precision_plan.facts.transformer_engine import te_recipes
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.capability import recipe_of
from precision_plan.rules.sources import megatron

_RECIPE = "transformer-engine@2.20.2:transformer_engine/common/recipe/__init__.py"
_OVERRIDE = "NVTE_BACKWARD_OVERRIDE"


@rule(
    "PP220",
    "recipe-needs-newer-transformer-engine",
    "error",
    stage="te_recipe",
    source=(megatron("core/fp8_utils.py:554-597"), megatron("core/fp4_utils.py:93-122")),
    needs=("transformer_engine",),
)
def recipe_needs_newer_te(ctx: Context) -> Found:
    """The Transformer Engine version does not have the recipe.

    Why:
        Megatron builds the recipe when the first layer runs and raises if TE is too old:
        mxfp8 needs 2.1, tensorwise 2.2, blockwise 2.3, nvfp4 2.8, custom 2.9. A release 2.7
        passes Megatron's own check for FP4 but has no NVFP4 class.

    Bad:
        software: {transformer_engine: 2.2.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        software: {transformer_engine: 2.3.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    name = recipe_of(ctx)
    if name is None or _refused_by_validation(ctx):
        return None
    recipe = te_recipes()[name]
    te = ctx.target.package("transformer_engine")
    least = recipe.megatron_te_minimum
    if te in recipe.versions and (least is None or ctx.at_least("transformer_engine", least)):
        return None
    since = (least if name == "MXFP8BlockScaling" else recipe.versions.since) or "1.0"
    release = since if since.count(".") > 1 else f"{since}.0"
    field = "training.fp4_recipe" if ctx.args.fp4 else "training.fp8_recipe"
    return ctx.found(
        f"{ctx.shown(field)} needs Transformer Engine {release} or later; the target has {te}",
        field,
        "software.transformer_engine",
        fix=(set_to(("software.transformer_engine", release), also=" or later"),),
    )


def _refused_by_validation(ctx: Context) -> bool:
    """True if validate_args refuses FP4 for the TE version, which is another rule's finding."""
    if not ctx.args.fp4 or ctx.target.package("megatron_core") is None:
        return False
    return not ctx.at_least("transformer_engine", "2.7.0.dev0")


@rule(
    "PP221",
    "backward-override-with-delayed-scaling",
    "error",
    stage="te_recipe",
    source=(f"{_RECIPE}:261-284",),
    needs=("transformer_engine",),
)
def backward_override_with_delayed(ctx: Context) -> Found:
    """The backward override and delayed scaling exclude each other.

    Why:
        TE 2.15 and later read ``NVTE_BACKWARD_OVERRIDE`` as the default of every recipe, and the
        constructor of DelayedScaling refuses any value. Megatron passes none of its own, so the
        job dies when the first FP8 layer runs. ``delayed`` is Megatron's default recipe.

    Bad:
        software: {transformer_engine: 2.16.0}
        training: {bf16: true, fp8_format: hybrid, backward_override: high_precision}

    Good:
        software: {transformer_engine: 2.16.0}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise,
                   backward_override: high_precision}
    """
    found = ctx.train_env.get(_OVERRIDE)
    if found is None:
        return None
    args = ctx.args
    if not args.fp8 or args.fp4 or args.fp8_recipe != "delayed":
        return None
    if not ctx.at_least("transformer_engine", "2.15"):
        return None
    return ctx.found(
        f"{_OVERRIDE}={found[0]} cannot be combined with the delayed recipe",
        found[1],
        "training.fp8_recipe",
        "software.transformer_engine",
        fix=(set_to(("training.fp8_recipe", "tensorwise")), set_to((found[1], None))),
    )


@rule(
    "PP222",
    "row-scaled-nvfp4-needs-plain-quantization",
    "error",
    stage="build",
    source=(
        "NVIDIA/TransformerEngine@d0067d0:transformer_engine/pytorch/csrc/quantizer.cpp:2571-2581",
    ),
)
def row_scaled_needs_plain(ctx: Context) -> Found:
    """Row-scaled NVFP4 activations exclude the Hadamard transform.

    Why:
        With one scale a row, TE's native quantizer refuses activations that go through the random
        Hadamard transform, which is on by default. The recipe object is built without complaint;
        the first forward pass fails.

    Bad:
        training: {bf16: true, fp4_format: e2m1, nvfp4_row_scaled_activation: true}

    Good:
        training: {bf16: true, fp4_format: e2m1, nvfp4_row_scaled_activation: true,
                   nvfp4_disable_rht: true}
    """
    args = ctx.args
    if not args.fp4 or args.fp4_recipe != "nvfp4":
        return None
    found = ctx.train_env.get("NVTE_NVFP4_ROW_SCALED_ACTIVATION")
    if found is None or found[0] != "1" or ctx.env("NVTE_NVFP4_DISABLE_RHT") == "1":
        return None
    return ctx.found(
        "row-scaled NVFP4 activations need the Hadamard transform turned off",
        found[1],
        "training.nvfp4_disable_rht",
        fix=(set_to(("training.nvfp4_disable_rht", True)), set_to((found[1], None))),
    )


RULES: tuple[Rule, ...] = (
    recipe_needs_newer_te,
    backward_override_with_delayed,
    row_scaled_needs_plain,
)

"""PP120 to PP125 and PP134: FP8 formats and recipes, and the layers that stay out of FP8."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import core, megatron, optimizer_config, transformer_config


@rule(
    "PP120",
    "recipe-without-format",
    "error",
    stage="policy",
    source=(
        optimizer_config(355),
        transformer_config(988),
    ),
)
def recipe_without_format(ctx: Context) -> Iterator[Finding]:
    """A recipe trains nothing in FP8 or FP4 until a format is set.

    Why:
        ``--fp8-format`` is the switch; ``--fp8-recipe`` only says how. Without the format every
        layer trains in the base format, without a message, in what the script calls FP8 training.
        Megatron accepts this; the optimizer even takes the FP8 path for a recipe other than
        delayed. It is an error here because what was asked for does not happen. The same holds
        for ``--fp4-recipe`` without ``--fp4-format``.

    Bad:
        training: {bf16: true, fp8_recipe: blockwise}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    training = ctx.plan.training
    if training.fp8_recipe is not None and training.fp8_format is None:
        yield ctx.found(
            f"training.fp8_recipe = {training.fp8_recipe} has no effect without "
            "training.fp8_format: the model trains in its base format",
            "training.fp8_recipe",
            "training.fp8_format",
            fix=(
                set_to(("training.fp8_format", "e4m3")),
                set_to(("training.fp8_recipe", None)),
            ),
        )
    if training.fp4_recipe is not None and training.fp4_format is None:
        yield ctx.found(
            f"training.fp4_recipe = {training.fp4_recipe} has no effect without "
            "training.fp4_format: the model trains in its base format",
            "training.fp4_recipe",
            "training.fp4_format",
            fix=(
                set_to(("training.fp4_format", "e2m1")),
                set_to(("training.fp4_recipe", None)),
            ),
        )


@rule(
    "PP121",
    "quantized-training-without-quantized-layers",
    "error",
    stage="policy",
    source=(megatron("core/transformer/transformer_block.py:717"),),
)
def no_quantized_layers(ctx: Context) -> Found:
    """The format is set, but no layer of the model would use it.

    Why:
        Only Transformer Engine's linear layers quantize. With ``--transformer-impl local`` the
        job runs to its end in the base format, whatever ``--fp8-format`` says. vLLM trains no
        model at all.

    Bad:
        training: {bf16: true, fp8_format: e4m3, transformer_impl: local}

    Good:
        training: {bf16: true, fp8_format: e4m3, transformer_impl: transformer_engine}
    """
    training = ctx.plan.training
    field = "training.fp4_format" if training.fp4_format else "training.fp8_format"
    if training.fp8_format is None and training.fp4_format is None:
        return None
    if training.transformer_impl == "local":
        return ctx.found(
            f"{ctx.shown(field)} quantizes nothing with training.transformer_impl = local",
            field,
            "training.transformer_impl",
            fix=(set_to(("training.transformer_impl", "transformer_engine")),),
        )
    if ctx.target.framework == "vllm":
        return ctx.found(
            f"{ctx.shown(field)} quantizes nothing: software.framework = vllm does not train",
            field,
            "software.framework",
            fix=(set_to((field, None)),),
        )
    return None


@rule(
    "PP122",
    "delayed-scaling-with-bf16-layers",
    "error",
    stage="transformer_config",
    source=(transformer_config(991), megatron("core/fp8_utils.py:651")),
)
def delayed_with_bf16_layers(ctx: Context) -> Found:
    """Delayed scaling cannot leave the first and last layers in BF16.

    Why:
        Delayed scaling reduces amax histories when the FP8 context closes, and leaving it for
        single layers would reduce the wrong ones. ``delayed`` is Megatron's default recipe, so
        ``--first-last-layers-bf16`` always needs another one to be named.

    Bad:
        training: {bf16: true, fp8_format: hybrid, first_last_layers_bf16: true}

    Good:
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise,
                   first_last_layers_bf16: true}
    """
    args = ctx.args
    if not (args.first_last_layers_bf16 and args.fp8 and args.fp8_recipe == "delayed"):
        return None
    return ctx.found(
        "training.first_last_layers_bf16 = true needs a recipe other than delayed",
        "training.first_last_layers_bf16",
        "training.fp8_recipe",
        fix=(
            set_to(("training.fp8_recipe", "blockwise")),
            set_to(("training.fp8_recipe", "tensorwise")),
            set_to(("training.first_last_layers_bf16", None)),
        ),
    )


@rule(
    "PP123",
    "bf16-layer-count-out-of-range",
    "error",
    stage="transformer_config",
    source=(transformer_config("994-1018"),),
)
def bf16_layer_count(ctx: Context) -> Iterator[Finding]:
    """A pipeline stage has fewer layers than are to stay in BF16.

    Why:
        The numbers of layers kept in BF16 at the start and at the end must each lie between 0
        and ``num_layers // pipeline_model_parallel_size``. Megatron checks this for FP8 only,
        and does not add the two numbers up.

    Bad:
        model: {num_layers: 4}
        parallel: {pipeline_model_parallel_size: 2}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   first_last_layers_bf16: true, num_layers_at_start_in_bf16: 3}

    Good:
        model: {num_layers: 4}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   first_last_layers_bf16: true, num_layers_at_start_in_bf16: 3}
    """
    args = ctx.args
    if not (args.first_last_layers_bf16 and args.fp8):
        return
    layers = ctx.plan.model.num_layers
    most = None
    if layers is not None:
        most = layers // (ctx.plan.parallel.pipeline_model_parallel_size or 1)
    for name in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
        count = getattr(args, name)
        if count >= 0 and (most is None or count <= most):
            continue
        field = f"training.{name}"
        bound = "0" if most is None else f"0 and {most}, the layers of a pipeline stage"
        yield ctx.found(
            f"{ctx.shown(field)} must lie between {bound}",
            field,
            "model.num_layers",
            "parallel.pipeline_model_parallel_size",
            fix=(set_to((field, max(0, min(count, most or 0)))),),
        )


@rule(
    "PP124",
    "bf16-layers-cover-the-model",
    "warning",
    stage="build",
    source=(megatron("core/fp8_utils.py:513"), megatron("core/fp4_utils.py:122")),
)
def bf16_layers_cover_the_model(ctx: Context) -> Found:
    """So many layers stay in BF16 that none is left to quantize.

    Why:
        Layer ``i`` stays in BF16 if ``i < start`` or ``i >= num_layers - end``. Megatron does
        not compare the sum of the two with the number of layers, so the job runs and trains
        entirely in BF16.

    Bad:
        model: {num_layers: 4}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   first_last_layers_bf16: true, num_layers_at_start_in_bf16: 2,
                   num_layers_at_end_in_bf16: 2}

    Good:
        model: {num_layers: 4}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   first_last_layers_bf16: true, num_layers_at_start_in_bf16: 2,
                   num_layers_at_end_in_bf16: 1}
    """
    args = ctx.args
    layers = ctx.plan.model.num_layers
    if not args.first_last_layers_bf16 or layers is None or not (args.fp8 or args.fp4):
        return None
    start, end = args.num_layers_at_start_in_bf16, args.num_layers_at_end_in_bf16
    if start < 0 or end < 0 or start + end < layers:
        return None
    return ctx.found(
        f"{start} layers at the start and {end} at the end stay in BF16: none of the {layers} "
        "layers is quantized",
        "training.first_last_layers_bf16",
        "training.num_layers_at_start_in_bf16",
        "training.num_layers_at_end_in_bf16",
        "model.num_layers",
        fix=(set_to(("training.first_last_layers_bf16", None)),),
    )


@rule(
    "PP125",
    "custom-fp8-recipe-needs-factory",
    "error",
    stage="transformer_config",
    source=(transformer_config(1021), megatron("core/fp8_utils.py:123-150")),
    versions=core("0.16.0"),
)
def custom_recipe_factory(ctx: Context) -> Found:
    """The custom FP8 recipe is nothing without its quantizer factory.

    Why:
        ``--fp8-recipe custom`` builds TE's CustomRecipe from the function that
        ``--fp8-quantizer-factory`` names by its import path. TransformerConfig raises without it.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: custom}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: custom,
                   fp8_quantizer_factory: my_package.quantizers.factory}
    """
    args = ctx.args
    if args.fp8_recipe != "custom" or not args.fp8 or args.fp8_quantizer_factory:
        return None
    return ctx.found(
        "training.fp8_recipe = custom needs training.fp8_quantizer_factory",
        "training.fp8_recipe",
        "training.fp8_quantizer_factory",
        fix=(Fix("training.fp8_quantizer_factory: package.module.function"),),
    )


@rule(
    "PP134",
    "fp8-output-layer-needs-mxfp8",
    "error",
    stage="transformer_config",
    source=(transformer_config("1301-1306", "core_v0.18.2"),),
    versions=core("0.18.0"),
)
def fp8_output_layer(ctx: Context) -> Found:
    """The output layer runs in FP8 with the mxfp8 recipe only.

    Why:
        ``--fp8-output-proj`` takes the LM head out of its usual BF16. TransformerConfig raises
        unless FP8 is on with ``--fp8-recipe mxfp8``.

    Bad:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_output_proj: true}

    Good:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_output_proj: true}
    """
    args = ctx.args
    if not args.fp8_output_proj or (args.fp8 and args.fp8_recipe == "mxfp8"):
        return None
    return ctx.found(
        "training.fp8_output_proj = true needs FP8 training with training.fp8_recipe = mxfp8",
        "training.fp8_output_proj",
        "training.fp8_format",
        "training.fp8_recipe",
        fix=(set_to(("training.fp8_output_proj", None)),),
    )


RULES: tuple[Rule, ...] = (
    recipe_without_format,
    no_quantized_layers,
    delayed_with_bf16_layers,
    bf16_layer_count,
    bf16_layers_cover_the_model,
    custom_recipe_factory,
    fp8_output_layer,
)

"""PP170 to PP176: options of formats and recipes that have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any

from precision_plan.facts.megatron import flags_at, flags_by_field
from precision_plan.plan import Because, Fix, PrecisionPlan
from precision_plan.rules.base import Context, Finding, Rule, rule
from precision_plan.rules.sources import arguments, megatron, transformer_config


def default_of(ctx: Context, field: str) -> Any:
    """Megatron's default for a plan field at the version at hand; ``None`` if it has no flag."""
    flag = flags_by_field().get(field)
    here = None if flag is None else flags_at(ctx.effective.megatron_core).get(flag.dest)
    return None if here is None else here.default


@lru_cache(maxsize=64)
def _readers(fields: tuple[str, ...]) -> tuple[tuple[str, Callable[[PrecisionPlan], Any]], ...]:
    return tuple((field, attrgetter(field)) for field in fields)


def unused(
    ctx: Context, fields: tuple[str, ...], why: str, *premises: str | Because
) -> Iterator[Finding]:
    """Findings for the fields of a list that were given another value than the default."""
    for field, read in _readers(fields):
        value = read(ctx.plan)
        if value is None:
            continue
        default = default_of(ctx, field)
        if value == default or (default is None and value in (False, "none")):
            continue
        yield ctx.found(
            f"{ctx.shown(field)} has no effect because {why}",
            field,
            *premises,
            fix=(Fix(f"remove {field}", {field: None}, "safe"),),
        )


@rule(
    "PP170",
    "delayed-scaling-options-unused",
    "warning",
    stage="te_recipe",
    source=(megatron("core/extensions/transformer_engine.py:2217"),),
    fixable=True,
)
def delayed_options(ctx: Context) -> Iterator[Finding]:
    """Margin and amax history belong to delayed scaling.

    Why:
        Megatron hands ``fp8_margin``, ``fp8_amax_history_len`` and ``fp8_amax_compute_algo`` to
        TE's DelayedScaling only; every other recipe takes its scale from the tensor at hand.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_amax_history_len: 1024}

    Good:
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed, fp8_amax_history_len: 1024}
    """
    args = ctx.args
    if args.fp8 and args.fp8_recipe == "delayed":
        return
    why = f"the {args.fp8_recipe} recipe has no history" if args.fp8 else "FP8 is off"
    yield from unused(
        ctx,
        (
            "training.fp8_margin",
            "training.fp8_amax_history_len",
            "training.fp8_amax_compute_algo",
        ),
        why,
        "training.fp8_recipe" if args.fp8 else "training.fp8_format",
    )


@rule(
    "PP171",
    "fp8-weight-gradient-switch-unused",
    "warning",
    stage="te_recipe",
    source=(megatron("core/fp8_utils.py:559"),),
    fixable=True,
)
def weight_gradient_switch(ctx: Context) -> Iterator[Finding]:
    """Weight gradients leave FP8 with delayed scaling only.

    Why:
        ``--no-fp8-wgrad`` becomes an override of DelayedScaling. Other recipes ignore it and
        compute the weight gradient GEMM in FP8.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_wgrad: false}

    Good:
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed, fp8_wgrad: false}
    """
    args = ctx.args
    if args.fp8_wgrad or (args.fp8 and args.fp8_recipe == "delayed"):
        return
    why = f"the {args.fp8_recipe} recipe ignores it" if args.fp8 else "FP8 is off"
    yield from unused(ctx, ("training.fp8_wgrad",), why, "training.fp8_recipe")


@rule(
    "PP172",
    "fp8-interval-unused",
    "warning",
    stage="te_recipe",
    source=(megatron("core/extensions/transformer_engine.py:2214"),),
    fixable=True,
)
def fp8_interval(ctx: Context) -> Iterator[Finding]:
    """The interval of scale updates is gone.

    Why:
        TE 1.8 dropped it: scales are updated in every step. Megatron warns and ignores the flag.

    Bad:
        training: {bf16: true, fp8_format: hybrid, fp8_interval: 4}

    Good:
        training: {bf16: true, fp8_format: hybrid}
    """
    if ctx.at_least("transformer_engine", "1.8") is False:
        return
    yield from unused(
        ctx, ("training.fp8_interval",), "Transformer Engine 1.8 and later update every step"
    )


@rule(
    "PP173",
    "bf16-layers-unused",
    "warning",
    stage="transformer_config",
    source=(transformer_config(988), megatron("core/fp4_utils.py:122")),
    fixable=True,
)
def bf16_layers(ctx: Context) -> Iterator[Finding]:
    """Layers are kept in BF16 only where the others are not.

    Why:
        ``--first-last-layers-bf16`` exempts layers from FP8 or FP4 training; without a format
        every layer is in BF16 anyway. The two counts are read only with that switch.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   num_layers_at_start_in_bf16: 2}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   first_last_layers_bf16: true, num_layers_at_start_in_bf16: 2}
    """
    args = ctx.args
    counts = ("training.num_layers_at_start_in_bf16", "training.num_layers_at_end_in_bf16")
    if not (args.fp8 or args.fp4):
        yield from unused(
            ctx,
            ("training.first_last_layers_bf16", *counts),
            "no layer is quantized",
            "training.fp8_format",
        )
    elif not args.first_last_layers_bf16:
        yield from unused(
            ctx,
            counts,
            "training.first_last_layers_bf16 is off",
            "training.first_last_layers_bf16",
        )


@rule(
    "PP174",
    "loss-scaling-options-unused",
    "warning",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:430-446"),),
    fixable=True,
)
def loss_scaling(ctx: Context) -> Iterator[Finding]:
    """Options of dynamic loss scaling are read in fp16 training without a static scale.

    Why:
        Megatron builds the dynamic scaler only for fp16 models whose ``loss_scale`` is not set
        (0 counts as not set).

    Bad:
        training: {bf16: true, initial_loss_scale: 65536}

    Good:
        training: {fp16: true, initial_loss_scale: 65536}
    """
    args = ctx.args
    if args.fp16 and not args.loss_scale:
        return
    why = "the loss scale is static" if args.fp16 else "the model is not in fp16"
    yield from unused(
        ctx,
        (
            "training.initial_loss_scale",
            "training.min_loss_scale",
            "training.loss_scale_window",
            "training.hysteresis",
        ),
        why,
        "training.loss_scale" if args.fp16 else "training.fp16",
    )


@rule(
    "PP175",
    "bf16-options-unused",
    "warning",
    stage="validate",
    source=(arguments(711), transformer_config(922)),
    fixable=True,
)
def bf16_options(ctx: Context) -> Iterator[Finding]:
    """Some settings are read for bf16 models only.

    Why:
        ``--grad-reduce-in-bf16``, ``--main-grads-dtype bf16`` and
        ``--disable-bf16-reduced-precision-matmul`` are looked at in the bf16 branch alone. An fp16
        model reduces its gradients in fp16 unless ``--accumulate-allreduce-grads-in-fp32`` is
        given.

    Bad:
        training: {fp16: true, grad_reduce_in_bf16: true}

    Good:
        training: {bf16: true, grad_reduce_in_bf16: true}
    """
    args = ctx.args
    if args.bf16 and not args.fp16:
        return
    yield from unused(
        ctx,
        (
            "training.grad_reduce_in_bf16",
            "training.disable_bf16_reduced_precision_matmul",
            "optimizer.main_grads_dtype",
        ),
        "the model is not in bf16",
        "training.bf16",
    )


@rule(
    "PP176",
    "quantizer-factory-unused",
    "warning",
    stage="transformer_config",
    source=(transformer_config(1021), transformer_config(1039)),
    fixable=True,
)
def quantizer_factory(ctx: Context) -> Iterator[Finding]:
    """A quantizer factory is called by the custom recipe only.

    Why:
        Every other recipe has quantizers of its own, and the import path is not even resolved.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   fp8_quantizer_factory: my_package.factory}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: custom,
                   fp8_quantizer_factory: my_package.factory}
    """
    args = ctx.args
    if args.fp8_quantizer_factory and not (args.fp8 and args.fp8_recipe == "custom"):
        yield from unused(
            ctx,
            ("training.fp8_quantizer_factory",),
            "the recipe is not custom",
            "training.fp8_recipe",
        )
    if args.fp4_quantizer_factory and not (args.fp4 and args.fp4_recipe == "custom"):
        yield from unused(
            ctx,
            ("training.fp4_quantizer_factory",),
            "the recipe is not custom",
            "training.fp4_recipe",
        )


RULES: tuple[Rule, ...] = (
    delayed_options,
    weight_gradient_switch,
    fp8_interval,
    bf16_layers,
    loss_scaling,
    bf16_options,
    quantizer_factory,
)

"""PP180 to PP183 and PP390 to PP392: values that were given and are silently replaced.

Each rule speaks of one step of :mod:`precision_plan.plan.overrides`, and only if the plan itself
gave the value that the step replaces; that a default changes is no news.
"""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to, shown
from precision_plan.rules.sources import arguments, core

_SLIME = "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py"

_MILES = "radixark/miles@31f1ca96:miles/backends/megatron_utils/arguments.py"


def replaced(
    ctx: Context, slug: str, *premises: str, instead: tuple[Fix, ...] = ()
) -> Iterator[Finding]:
    """Findings for every given value that the step ``slug`` replaces.

    The first fix writes down what happens anyway and is safe; ``instead`` are ways to keep the
    value that was asked for.
    """
    for override in ctx.effective.overrides:
        if override.step.slug != slug:
            continue
        field = ctx.given.get(override.dest)
        if field is None or ctx.plan.get(field) != override.before:
            continue
        after = override.after
        yield ctx.found(
            f"{field} = {shown(override.before)} is silently replaced by {shown(after)}: "
            f"{override.step.because}",
            field,
            *premises,
            fix=(Fix(f"{field}: {shown(after)}", {field: after}, "safe"), *instead),
            resolved={override.dest: after},
        )


@rule(
    "PP180",
    "nan-check-turned-off",
    "warning",
    stage="validate",
    source=(arguments(708),),
    fixable=True,
)
def nan_check_off(ctx: Context) -> Iterator[Finding]:
    """Dynamic loss scaling switches the NaN check off.

    Why:
        With fp16 and no static ``loss_scale`` an overflow is the normal signal that the scale is
        too high, so Megatron clears ``check_for_nan_in_loss_and_grad`` even if it was asked for.

    Bad:
        training: {fp16: true, check_for_nan_in_loss_and_grad: true}

    Good:
        training: {fp16: true, check_for_nan_in_loss_and_grad: false}
    """
    if not ctx.args.fp16:
        return
    yield from replaced(ctx, "fp16-dynamic-scale", "training.fp16", "training.loss_scale")


@rule(
    "PP181",
    "gradient-accumulation-format-replaced",
    "warning",
    stage="validate",
    source=(arguments("717-725"),),
    fixable=True,
)
def accumulation_replaced(ctx: Context) -> Iterator[Finding]:
    """A bf16 model decides by other flags in which format gradients are accumulated.

    Why:
        ``--grad-reduce-in-bf16`` beats ``--accumulate-allreduce-grads-in-fp32`` without a word.
        The other way round, a bf16 model with fp32 main gradients accumulates in fp32 whether or
        not that was asked for.

    Bad:
        training: {bf16: true, accumulate_allreduce_grads_in_fp32: true, grad_reduce_in_bf16: true}

    Good:
        training: {bf16: true, accumulate_allreduce_grads_in_fp32: true}
    """
    if "accumulate_allreduce_grads_in_fp32" not in ctx.given:
        return
    bf16 = bool(ctx.args.grad_reduce_in_bf16)
    yield from replaced(
        ctx,
        "bf16-accumulation",
        "training.grad_reduce_in_bf16" if bf16 else "optimizer.main_grads_dtype",
        "training.bf16",
        instead=(set_to(("training.grad_reduce_in_bf16", None if bf16 else True)),),
    )


@rule(
    "PP182",
    "softmax-turned-to-fp32",
    "warning",
    stage="validate",
    source=(arguments(1085),),
    fixable=True,
)
def softmax_fp32(ctx: Context) -> Iterator[Finding]:
    """Query-key layer scaling computes the softmax in fp32.

    Why:
        The scaling divides scores by the layer number in half precision and multiplies them back
        in fp32, so Megatron sets ``attention_softmax_in_fp32`` with it.

    Bad:
        training: {fp16: true, apply_query_key_layer_scaling: true,
                   attention_softmax_in_fp32: false}

    Good:
        training: {fp16: true, apply_query_key_layer_scaling: true, attention_softmax_in_fp32: true}
    """
    if not ctx.args.apply_query_key_layer_scaling:
        return
    yield from replaced(ctx, "query-key-scaling", "training.apply_query_key_layer_scaling")


@rule(
    "PP390",
    "framework-sets-bf16",
    "warning",
    stage="validate",
    source=(f"{_SLIME}:157", f"{_MILES}:22"),
    frameworks=RL_FRAMEWORKS,
    fixable=True,
)
def framework_sets_bf16(ctx: Context) -> Iterator[Finding]:
    """vime, slime and miles train in bf16 unless fp16 is asked for.

    Why:
        They set ``bf16 = not fp16`` after parsing, so an fp32 run is not possible and
        ``bf16: false`` has no effect.

    Bad:
        software: {framework: slime}
        training: {bf16: false}

    Good:
        software: {framework: slime}
        training: {bf16: true}
    """
    if ctx.plan.training.bf16 and ctx.plan.training.fp16:
        return
    yield from replaced(ctx, "framework-bf16", "software.framework")


@rule(
    "PP391",
    "distributed-optimizer-turned-on",
    "warning",
    stage="validate",
    source=(f"{_SLIME}:153", f"{_MILES}:22", arguments(1119, "core_v0.18.2")),
    fixable=True,
)
def distributed_optimizer_on(ctx: Context) -> Iterator[Finding]:
    """The distributed optimizer is switched on although it was switched off.

    Why:
        vime and slime force it, miles does for Adam, and Megatron 0.18 and later do for
        Megatron-FSDP.

    Bad:
        software: {framework: slime}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: false}

    Good:
        software: {framework: slime}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true}
    """
    if "use_distributed_optimizer" not in ctx.given:
        return
    yield from replaced(ctx, "framework-distributed-optimizer", "software.framework")
    yield from replaced(ctx, "megatron-fsdp-distributed-optimizer", "parallel.use_megatron_fsdp")


@rule(
    "PP392",
    "token-dispatcher-replaced",
    "warning",
    stage="validate",
    source=(f"{_SLIME}:82-95",),
    frameworks=("vime", "slime"),
    fixable=True,
)
def dispatcher_replaced(ctx: Context) -> Iterator[Finding]:
    """vime and slime replace the allgather token dispatcher.

    Why:
        Sequences of different length do not go with it; the frameworks take ``alltoall``.

    Bad:
        software: {framework: slime}
        training: {bf16: true, moe_token_dispatcher_type: allgather}

    Good:
        software: {framework: slime}
        training: {bf16: true, moe_token_dispatcher_type: alltoall}
    """
    if ctx.plan.training.moe_token_dispatcher_type is None:
        return
    yield from replaced(ctx, "framework-dispatcher", "software.framework")


@rule(
    "PP183",
    "deprecated-flag",
    "warning",
    stage="validate",
    source=(arguments("434-450"), arguments("1128-1133")),
    versions=core("0.15.0"),
    fixable=True,
)
def deprecated_flag(ctx: Context) -> Iterator[Finding]:
    """A flag is an old spelling of another one, or does nothing any more.

    Why:
        Megatron still parses these flags and maps them, or ignores them with a message that
        scrolls by: the CUDA graph switches (from 0.15), router padding for FP8 (from 0.16), and
        ``--use-dist-ckpt`` and ``--dist-ckpt-format``.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, enable_cuda_graph: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: local}
    """
    training, checkpoint = ctx.plan.training, ctx.plan.checkpoint
    replacements = (
        (training.enable_cuda_graph, "training.enable_cuda_graph", "cuda_graph_impl", "local"),
        (
            training.external_cuda_graph,
            "training.external_cuda_graph",
            "cuda_graph_impl",
            "transformer_engine",
        ),
        (
            training.moe_router_padding_for_fp8 and ctx.core_since("0.16.0"),
            "training.moe_router_padding_for_fp8",
            "moe_router_padding_for_quantization",
            True,
        ),
    )
    for used, field, name, value in replacements:
        if used:
            edits = {field: None, f"training.{name}": value}
            yield ctx.found(
                f"{field} is deprecated: it means training.{name} = {shown(value)}",
                field,
                "software.megatron_core",
                fix=(Fix(f"training.{name}: {shown(value)}", edits, "safe"),),
            )
    for given, name in (
        (checkpoint.use_dist_ckpt is True, "use_dist_ckpt"),
        (checkpoint.dist_ckpt_format is not None, "dist_ckpt_format"),
    ):
        if given:
            field = f"checkpoint.{name}"
            yield ctx.found(
                f"{field} is deprecated and has no effect",
                field,
                Because("the format is chosen by checkpoint.ckpt_format", "checkpoint.ckpt_format"),
                fix=(Fix(f"remove {field}", {field: None}, "safe"),),
            )


RULES: tuple[Rule, ...] = (
    nan_check_off,
    accumulation_replaced,
    softmax_fp32,
    framework_sets_bf16,
    distributed_optimizer_on,
    dispatcher_replaced,
    deprecated_flag,
)

"""PP101 to PP119: base format, gradient accumulation, loss scale, softmax and residual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Arguments, Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, megatron, transformer_config


@rule(
    "PP101",
    "fp16-with-bf16",
    "error",
    stage="validate",
    source=(arguments(703), transformer_config(916)),
)
def fp16_with_bf16(ctx: Context) -> Found:
    """fp16 and bf16 exclude each other.

    Why:
        A model is trained in one base format. Megatron asserts that only one is on. vime, slime
        and miles set ``bf16 = not fp16`` before Megatron looks and so train in fp16 without a
        word; that is still an error here, because one of the two requests is not met.

    Bad:
        training: {bf16: true, fp16: true}

    Good:
        training: {bf16: true}
    """
    training = ctx.plan.training
    if not (training.fp16 and training.bf16):
        return None
    return ctx.found(
        "training.fp16 = true and training.bf16 = true exclude each other",
        "training.fp16",
        "training.bf16",
        fix=(
            Fix("remove training.fp16 to train in bf16", {"training.fp16": None}),
            Fix("remove training.bf16 to train in fp16 with loss scaling", {"training.bf16": None}),
        ),
        stage="policy" if ctx.target.framework in RL_FRAMEWORKS else None,
    )


@rule(
    "PP102",
    "fp16-cross-entropy-needs-fp16",
    "error",
    stage="validate",
    source=(arguments(847),),
)
def fp16_cross_entropy(ctx: Context) -> Found:
    """The LM cross entropy is computed in fp16 only if the model is.

    Why:
        ``--fp16-lm-cross-entropy`` skips the cast of the logits to fp32. With bf16 or fp32
        logits there is nothing to skip, and validate_args refuses the flag.

    Bad:
        training: {bf16: true, fp16_lm_cross_entropy: true}

    Good:
        training: {fp16: true, fp16_lm_cross_entropy: true}
    """
    args = ctx.args
    if not args.fp16_lm_cross_entropy or args.fp16:
        return None
    return ctx.found(
        "training.fp16_lm_cross_entropy = true needs training.fp16",
        "training.fp16_lm_cross_entropy",
        "training.fp16",
        fix=(set_to(("training.fp16_lm_cross_entropy", None)),),
    )


@rule(
    "PP103",
    "fp32-residual-needs-half-precision",
    "error",
    stage="validate",
    source=(arguments(849),),
)
def fp32_residual(ctx: Context) -> Found:
    """An fp32 residual stream needs a bf16 or fp16 model around it.

    Why:
        ``--fp32-residual-connection`` moves the residual stream out of the half-precision
        format. An fp32 model has its residual in fp32 anyway, and validate_args refuses the flag.

    Bad:
        training: {fp32_residual_connection: true}

    Good:
        training: {bf16: true, fp32_residual_connection: true}
    """
    args = ctx.args
    if not args.fp32_residual_connection or args.fp16 or args.bf16:
        return None
    return ctx.found(
        "training.fp32_residual_connection = true needs training.bf16 or training.fp16",
        "training.fp32_residual_connection",
        "training.bf16",
        "training.fp16",
        fix=(
            set_to(("training.fp32_residual_connection", None)),
            set_to(("training.bf16", True)),
        ),
    )


@rule(
    "PP104",
    "fp32-accumulation-with-bf16-main-grads",
    "error",
    stage="validate",
    source=(arguments(717),),
)
def fp32_accumulation_with_bf16_main_grads(ctx: Context) -> Found:
    """Gradients cannot be accumulated in fp32 and kept in bf16.

    Why:
        ``--accumulate-allreduce-grads-in-fp32`` makes the gradient buffer fp32, and
        ``--main-grads-dtype bf16`` says that it is bf16. For a bf16 model validate_args asserts
        that they agree. Without the first flag, bf16 main gradients are accepted, accumulated and
        reduced in bf16.

    Bad:
        training: {bf16: true, accumulate_allreduce_grads_in_fp32: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    main_grads_dtype: bf16}

    Good:
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    main_grads_dtype: bf16}
    """
    args = ctx.args
    if args.main_grads_dtype == "fp32" or not args.bf16:
        return None
    if not ctx.parsed.accumulate_allreduce_grads_in_fp32:
        return None
    return ctx.found(
        f"optimizer.main_grads_dtype = {args.main_grads_dtype} contradicts "
        "training.accumulate_allreduce_grads_in_fp32 = true",
        "optimizer.main_grads_dtype",
        "training.accumulate_allreduce_grads_in_fp32",
        "training.bf16",
        fix=(
            set_to(("optimizer.main_grads_dtype", "fp32")),
            set_to(("training.accumulate_allreduce_grads_in_fp32", None)),
        ),
    )


@rule(
    "PP105",
    "gradients-accumulate-in-bf16",
    "advice",
    stage="build",
    source=(
        arguments("717-723"),
        megatron("core/distributed/distributed_data_parallel.py:147"),
    ),
)
def gradients_accumulate_in_bf16(ctx: Context) -> Found:
    """Gradients are accumulated and reduced in bf16.

    Why:
        A bf16 sum over micro-batches and ranks loses small contributions: bf16 has 8 bits of
        mantissa. Megatron therefore turns fp32 accumulation on for bf16 models unless
        ``--grad-reduce-in-bf16`` or ``--main-grads-dtype bf16`` says otherwise. The choice halves
        the gradient buffer and is legal; it should be a deliberate one.

    Bad:
        training: {bf16: true, grad_reduce_in_bf16: true}

    Good:
        training: {bf16: true}
    """
    args = ctx.args
    if args.accumulate_allreduce_grads_in_fp32 or not args.bf16 or args.fp16:
        return None
    field = (
        "training.grad_reduce_in_bf16" if args.grad_reduce_in_bf16 else "optimizer.main_grads_dtype"
    )
    return ctx.found(
        f"{ctx.shown(field)}: gradients are accumulated over micro-batches and ranks in bf16",
        field,
        "training.bf16",
        fix=(set_to((field, None), also=" to accumulate in fp32"),),
    )


_SCALE_CHECKS: tuple[tuple[str, Callable[[Arguments], bool], str], ...] = (
    (
        "initial_loss_scale",
        lambda args: bool(args.initial_loss_scale > 0),
        "must be greater than 0",
    ),
    ("min_loss_scale", lambda args: bool(args.min_loss_scale > 0), "must be greater than 0"),
    (
        "min_loss_scale",
        lambda args: bool(args.min_loss_scale <= args.initial_loss_scale),
        "must not exceed training.initial_loss_scale",
    ),
    ("loss_scale_window", lambda args: bool(args.loss_scale_window > 0), "must be greater than 0"),
    ("hysteresis", lambda args: bool(args.hysteresis > 0), "must be greater than 0"),
)


@rule(
    "PP106",
    "loss-scale-out-of-range",
    "error",
    stage="build",
    source=(megatron("core/optimizer/grad_scaler.py:14-101"),),
)
def loss_scale_range(ctx: Context) -> Iterator[Finding]:
    """Dynamic loss scaling needs positive settings and a minimum below the start.

    Why:
        The scaler of fp16 training asserts ``initial > 0``, ``min > 0``, ``min <= initial``,
        ``window > 0`` and ``hysteresis > 0`` when the optimizer is built, that is after the model
        was allocated. A static ``loss_scale`` switches the dynamic scaler off (0 counts as not
        set).

    Bad:
        training: {fp16: true, initial_loss_scale: 1024, min_loss_scale: 4096}

    Good:
        training: {fp16: true, initial_loss_scale: 65536, min_loss_scale: 1}
    """
    args = ctx.args
    if not args.fp16 or args.loss_scale:
        return
    for name, holds, demand in _SCALE_CHECKS:
        if holds(args):
            continue
        field = f"training.{name}"
        yield ctx.found(
            f"{ctx.shown(field)} {demand}",
            field,
            "training.fp16",
            "training.initial_loss_scale",
            fix=(set_to((field, None)),),
        )


@rule(
    "PP107",
    "static-loss-scale-with-bf16",
    "advice",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:430"),),
)
def static_loss_scale_with_bf16(ctx: Context) -> Found:
    """A static loss scale is applied to bf16 training, too.

    Why:
        Megatron builds the constant scaler whenever ``--loss-scale`` is not zero, whatever the
        base format. bf16 has the exponent range of fp32 and needs no scaling; a leftover from an
        fp16 recipe only moves gradients towards overflow of the norm.

    Bad:
        training: {bf16: true, loss_scale: 1024}

    Good:
        training: {fp16: true, loss_scale: 1024}
    """
    args = ctx.args
    if not args.loss_scale or args.fp16 or not args.bf16:
        return None
    return ctx.found(
        f"{ctx.shown('training.loss_scale')} multiplies the loss of a bf16 model",
        "training.loss_scale",
        "training.bf16",
        fix=(set_to(("training.loss_scale", None)),),
    )


@rule(
    "PP108",
    "query-key-scaling-variable",
    "error",
    stage="build",
    source=(megatron("core/extensions/transformer_engine.py:1179"),),
    needs=("env",),
)
def query_key_scaling_variable(ctx: Context) -> Found:
    """Query-key layer scaling must be said twice: by flag and by variable.

    Why:
        TE's attention reads ``NVTE_APPLY_QK_LAYER_SCALING`` and Megatron the flag
        ``--apply-query-key-layer-scaling``. TEDotProductAttention raises ValueError while the
        model is built if the two differ; an unset variable counts as 0.

    Bad:
        training: {fp16: true, apply_query_key_layer_scaling: true}
        env: {all: {NVTE_APPLY_QK_LAYER_SCALING: "0"}}

    Good:
        training: {fp16: true, apply_query_key_layer_scaling: true}
        env: {all: {NVTE_APPLY_QK_LAYER_SCALING: "1"}}
    """
    args = ctx.args
    asked = bool(args.apply_query_key_layer_scaling)
    text = ctx.env("NVTE_APPLY_QK_LAYER_SCALING")
    if not asked and text is None:
        return None
    if args.transformer_impl != "transformer_engine":
        return None
    declared = (text or "0").strip()
    if declared.isdigit() and bool(int(declared)) == asked:
        return None
    wanted = "1" if asked else "0"
    variable = "env.train_actor.NVTE_APPLY_QK_LAYER_SCALING"
    return ctx.found(
        f"training.apply_query_key_layer_scaling = {str(asked).lower()} needs "
        f"NVTE_APPLY_QK_LAYER_SCALING={wanted}; the train actor has "
        f"{'no such variable' if text is None else text!r}",
        "training.apply_query_key_layer_scaling",
        Because("Transformer Engine reads the variable, Megatron the flag"),
        fix=(
            Fix(f'{variable}: "{wanted}"', {variable: wanted}),
            set_to(("training.apply_query_key_layer_scaling", None)),
        ),
    )


_ATTENTION_VARIABLES = {
    "flash": ("1", "0", "0"),
    "fused": ("0", "1", "0"),
    "unfused": ("0", "0", "1"),
    "local": ("0", "0", "0"),
    "auto": ("1", "1", "1"),
}


@rule(
    "PP109",
    "attention-backend-variables",
    "error",
    stage="build",
    source=(megatron("core/models/common/language_module/language_module.py:98"),),
)
def attention_backend_variables(ctx: Context) -> Iterator[Finding]:
    """The attention backend is chosen by flag; a preset variable must not contradict it.

    Why:
        From ``--attention-backend`` Megatron sets ``NVTE_FLASH_ATTN``, ``NVTE_FUSED_ATTN`` and
        ``NVTE_UNFUSED_ATTN`` and asserts that none of them holds another value already. With the
        default ``auto`` all three must be 1 or unset, so exporting ``NVTE_FLASH_ATTN=0`` alone
        stops the job while the model is built.

    Bad:
        training: {bf16: true, attention_backend: flash}
        env: {all: {NVTE_FUSED_ATTN: "1"}}

    Good:
        training: {bf16: true, attention_backend: flash}
        env: {all: {NVTE_FLASH_ATTN: "1"}}
    """
    env = ctx.train_env
    if not env or not ctx.trains:
        return
    backend = ctx.args.attention_backend
    wanted = _ATTENTION_VARIABLES.get(backend)
    if wanted is None:
        return
    names = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
    for name, value in zip(names, wanted, strict=True):
        found = env.get(name)
        if found is None or found[0] == value:
            continue
        text, field = found
        yield ctx.found(
            f"{name}={text} contradicts training.attention_backend = {backend}, "
            f"which sets it to {value}",
            field,
            "training.attention_backend",
            fix=(set_to((field, None)),),
        )


RULES: tuple[Rule, ...] = (
    fp16_with_bf16,
    fp16_cross_entropy,
    fp32_residual,
    fp32_accumulation_with_bf16_main_grads,
    gradients_accumulate_in_bf16,
    loss_scale_range,
    static_loss_scale_with_bf16,
    query_key_scaling_variable,
    attention_backend_variables,
)

"""PP126 to PP133: parameters kept and gathered in FP8."""

from __future__ import annotations

from precision_plan.plan import Because
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.distributed import asked_for_distributed_optimizer
from precision_plan.rules.sources import (
    arguments,
    core,
    ddp_config,
    megatron,
    optimizer_config,
    transformer_config,
)


@rule(
    "PP126",
    "fp8-param-gather-needs-fp8",
    "error",
    stage="transformer_config",
    source=(transformer_config(1028),),
)
def param_gather_needs_fp8(ctx: Context) -> Found:
    """FP8 parameters need FP8 training.

    Why:
        ``--fp8-param-gather`` stores the weights of TE's layers in FP8, which only FP8 GEMMs can
        read. TransformerConfig raises ValueError without ``--fp8-format``.

    Bad:
        training: {bf16: true, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.fp8_param_gather or args.fp8:
        return None
    return ctx.found(
        "training.fp8_param_gather = true needs training.fp8_format",
        "training.fp8_param_gather",
        "training.fp8_format",
        fix=(
            set_to(("training.fp8_param_gather", None)),
            set_to(("training.fp8_format", "e4m3")),
        ),
    )


@rule(
    "PP127",
    "fp8-param-gather-needs-distributed-optimizer",
    "error",
    stage="validate",
    source=(arguments(656), arguments(643, "core_v0.13.0")),
)
def param_gather_needs_distributed_optimizer(ctx: Context) -> Found:
    """FP8 parameters need an optimizer that keeps the master weights elsewhere.

    Why:
        With the distributed optimizer the fp32 masters live in its shards and the FP8 weight is
        gathered from them. Without it (or Megatron-FSDP, or torch FSDP2) there is nothing to
        gather, and validate_args refuses. Megatron-FSDP counts from 0.14 on.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.fp8_param_gather or args.use_torch_fsdp2 or args.use_megatron_fsdp:
        return None
    if asked_for_distributed_optimizer(ctx):
        return None
    return ctx.found(
        "training.fp8_param_gather = true needs the distributed optimizer",
        "training.fp8_param_gather",
        "optimizer.use_distributed_optimizer",
        fix=(
            set_to(("optimizer.use_distributed_optimizer", True)),
            set_to(("training.fp8_param_gather", None)),
        ),
    )


@rule(
    "PP128",
    "mxfp8-parameters-before-0-13",
    "error",
    stage="transformer_config",
    source=(transformer_config(612, "core_v0.12.1"),),
    versions=core(None, "0.12"),
)
def mxfp8_parameters(ctx: Context) -> Found:
    """Megatron 0.12 keeps no MXFP8 parameters.

    Why:
        The shared buffer that stages MXFP8 parameters for the all-gather came with 0.13;
        TransformerConfig of 0.12 raises.

    Bad:
        software: {megatron_core: 0.12.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.12.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
    """
    args = ctx.args
    if not (args.fp8_param_gather and args.fp8 and args.fp8_recipe == "mxfp8"):
        return None
    return ctx.found(
        f"Megatron {ctx.effective.megatron_core} cannot keep parameters in MXFP8",
        "training.fp8_param_gather",
        "training.fp8_recipe",
        "software.megatron_core",
        fix=(
            set_to(("training.fp8_param_gather", None)),
            set_to(("software.megatron_core", "0.16.1")),
        ),
    )


@rule(
    "PP129",
    "mxfp8-parameters-need-shared-buffer",
    "error",
    stage="build",
    source=(
        megatron("core/distributed/param_and_grad_buffer.py:821"),
        "NVIDIA/TransformerEngine@v2.9:transformer_engine/pytorch/tensor/utils.py:44",
        arguments("1580-1587", "HEAD"),
    ),
    versions=core("0.13.0"),
)
def mxfp8_parameters_need_shared_buffer(ctx: Context) -> Found:
    """MXFP8 parameters are gathered through the gradient buffer, and only through it.

    Why:
        DDP maps every parameter into one flat buffer. TE cannot map the tiled MXFP8 layout
        (``replace_raw_data`` raises NotImplementedError), so ``--fp8-param-gather`` with the
        mxfp8 recipe dies while DDP is built unless ``--reuse-grad-buf-for-mxfp8-param-ag`` sends
        the parameters through the gradient buffer. validate_args lets it pass. Megatron-FSDP has
        its own buffers and needs no flag.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not (args.fp8_param_gather and args.fp8_recipe == "mxfp8" and args.fp8):
        return None
    if args.reuse_grad_buf_for_mxfp8_param_ag or args.use_megatron_fsdp:
        return None
    if args.use_custom_fsdp or not args.use_distributed_optimizer:
        return None
    return ctx.found(
        "training.fp8_param_gather = true with the mxfp8 recipe needs "
        "training.reuse_grad_buf_for_mxfp8_param_ag",
        "training.fp8_param_gather",
        "training.fp8_recipe",
        "training.reuse_grad_buf_for_mxfp8_param_ag",
        fix=(
            set_to(("training.reuse_grad_buf_for_mxfp8_param_ag", True)),
            set_to(("training.fp8_param_gather", None)),
        ),
    )


@rule(
    "PP130",
    "shared-buffer-needs-fp8-param-gather",
    "error",
    stage="ddp_config",
    source=(ddp_config(154), ddp_config(260, "HEAD")),
    versions=core("0.13.0"),
)
def shared_buffer_needs_param_gather(ctx: Context) -> Found:
    """The gradient buffer is shared only with gathered FP8 parameters.

    Why:
        ``--reuse-grad-buf-for-mxfp8-param-ag`` lends the gradient buffer to the all-gather of
        MXFP8 parameters. DistributedDataParallelConfig asserts that there are such parameters.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8,
                   reuse_grad_buf_for_mxfp8_param_ag: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.reuse_grad_buf_for_mxfp8_param_ag or args.fp8_param_gather:
        return None
    premises: list[str | Because] = ["training.fp8_param_gather"]
    if ctx.parsed.fp8_param_gather:
        premises = [Because("torch FSDP2 turns fp8_param_gather off", "parallel.use_torch_fsdp2")]
    return ctx.found(
        "training.reuse_grad_buf_for_mxfp8_param_ag = true needs training.fp8_param_gather",
        "training.reuse_grad_buf_for_mxfp8_param_ag",
        *premises,
        fix=(
            set_to(("training.fp8_param_gather", True)),
            set_to(("training.reuse_grad_buf_for_mxfp8_param_ag", None)),
        ),
    )


@rule(
    "PP131",
    "shared-buffer-with-optimizer-step-overlap",
    "error",
    stage="optimizer_config",
    source=(optimizer_config(428, "HEAD"),),
    versions=core("0.19.0"),
)
def shared_buffer_with_step_overlap(ctx: Context) -> Found:
    """The shared buffer excludes gathering parameters during the optimizer step.

    Why:
        ``--overlap-param-gather-with-optimizer-step`` gathers while gradients are still needed,
        and the shared buffer holds one or the other. OptimizerConfig raises from 0.19 on.

    Bad:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true,
                   overlap_param_gather_with_optimizer_step: true}

    Good:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true}
    """
    args = ctx.args
    if not args.reuse_grad_buf_for_mxfp8_param_ag:
        return None
    if not args.overlap_param_gather_with_optimizer_step:
        return None
    return ctx.found(
        "training.reuse_grad_buf_for_mxfp8_param_ag = true excludes "
        "parallel.overlap_param_gather_with_optimizer_step",
        "parallel.overlap_param_gather_with_optimizer_step",
        "training.reuse_grad_buf_for_mxfp8_param_ag",
        fix=(set_to(("parallel.overlap_param_gather_with_optimizer_step", None)),),
    )


@rule(
    "PP132",
    "shared-buffer-for-other-recipes",
    "warning",
    stage="build",
    source=(
        megatron("core/distributed/param_and_grad_buffer.py:821"),
        megatron("core/distributed/param_and_grad_buffer.py:1176", "core_v0.18.2"),
    ),
    versions=core("0.13.0"),
)
def shared_buffer_for_other_recipes(ctx: Context) -> Found:
    """The shared gradient buffer is made for MXFP8 parameters alone.

    Why:
        No check compares ``--reuse-grad-buf-for-mxfp8-param-ag`` with the recipe. Up to 0.17 the
        flag keeps parameters of any recipe out of the parameter buffer although only MXFP8 ones
        are staged in the gradient buffer; from 0.18 on it is ignored for other recipes.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.reuse_grad_buf_for_mxfp8_param_ag or args.fp8_recipe == "mxfp8":
        return None
    if not args.fp8_param_gather:
        return None
    effect = "has no effect" if ctx.core_since("0.18.0") else "keeps the parameters unbuffered"
    return ctx.found(
        f"training.reuse_grad_buf_for_mxfp8_param_ag = true {effect} with the "
        f"{args.fp8_recipe} recipe",
        "training.reuse_grad_buf_for_mxfp8_param_ag",
        "training.fp8_recipe",
        fix=(set_to(("training.reuse_grad_buf_for_mxfp8_param_ag", None)),),
    )


@rule(
    "PP133",
    "mxfp8-memory",
    "advice",
    stage="optimizer_config",
    source=(optimizer_config(368), "NVIDIA/Megatron-LM#2582"),
    versions=core("0.14.0"),
)
def mxfp8_memory(ctx: Context) -> Found:
    """MXFP8 without FP8 parameters costs memory.

    Why:
        MXFP8 quantizes rows and columns separately, so with BF16 parameters two quantized copies
        of every weight live beside them. Megatron warns and recommends ``--fp8-param-gather``
        with ``--reuse-grad-buf-for-mxfp8-param-ag``. With CPU Adam that advice cannot be
        followed, and the rule says nothing.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if args.fp8_recipe != "mxfp8" or not args.fp8 or args.optimizer_cpu_offload:
        return None
    if args.reuse_grad_buf_for_mxfp8_param_ag or args.fp8_param_gather:
        return None
    return ctx.found(
        "training.fp8_recipe = mxfp8 keeps quantized copies of every weight beside the BF16 one",
        "training.fp8_recipe",
        "training.fp8_param_gather",
        fix=(
            set_to(
                ("training.fp8_param_gather", True),
                ("training.reuse_grad_buf_for_mxfp8_param_ag", True),
            ),
        ),
    )


RULES: tuple[Rule, ...] = (
    param_gather_needs_fp8,
    param_gather_needs_distributed_optimizer,
    mxfp8_parameters,
    mxfp8_parameters_need_shared_buffer,
    shared_buffer_needs_param_gather,
    shared_buffer_with_step_overlap,
    shared_buffer_for_other_recipes,
    mxfp8_memory,
)

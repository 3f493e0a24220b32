"""PP393 to PP399: values about sharding and communication that are silently replaced."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.overrides import replaced
from precision_plan.rules.sources import arguments, core, transformer_config


@rule(
    "PP393",
    "fsdp2-gathers-in-bf16",
    "warning",
    stage="validate",
    source=(arguments(626), arguments(893, "core_v0.17.1")),
    fixable=True,
)
def fsdp2_gathers_bf16(ctx: Context) -> Iterator[Finding]:
    """Under torch FSDP2 parameters are gathered in BF16.

    Why:
        Megatron clears ``fp8_param_gather`` with TE 2.0 and later, and from 0.17.1 on
        ``fp4_param_gather`` with a TE older than 2.7.

    Bad:
        parallel: {use_torch_fsdp2: true}
        model: {untie_embeddings_and_output_weights: true}
        training: {bf16: true, fp8_format: e4m3, fp8_param_gather: true,
                   gradient_accumulation_fusion: false}

    Good:
        parallel: {use_torch_fsdp2: true}
        model: {untie_embeddings_and_output_weights: true}
        training: {bf16: true, fp8_format: e4m3, gradient_accumulation_fusion: false}
    """
    if not ctx.args.use_torch_fsdp2:
        return
    for slug in ("fsdp2-without-fp8-params", "fsdp2-without-fp4-params"):
        yield from replaced(ctx, slug, "parallel.use_torch_fsdp2")


@rule(
    "PP394",
    "shared-buffer-turned-off",
    "warning",
    stage="validate",
    source=(arguments(698), arguments(1121, "core_v0.18.2")),
    versions=core("0.16.0"),
    fixable=True,
)
def shared_buffer_off(ctx: Context) -> Iterator[Finding]:
    """Megatron-FSDP does not share the gradient buffer with MXFP8 parameters.

    Why:
        It keeps buffers of its own, so ``reuse_grad_buf_for_mxfp8_param_ag`` is cleared: in 0.16
        and 0.17 with manual registration only, from 0.18 on always.

    Bad:
        software: {megatron_core: 0.18.2}
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}

    Good:
        software: {megatron_core: 0.18.2}
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true}
    """
    if not ctx.args.use_megatron_fsdp:
        return
    yield from replaced(ctx, "reuse-buffer-off", "parallel.use_megatron_fsdp")


@rule(
    "PP395",
    "fsdp-communication-turned-to-bf16",
    "warning",
    stage="validate",
    source=(arguments(927, "core_v0.17.1"),),
    versions=core("0.17.0", "0.18"),
    fixable=True,
)
def fsdp_communication(ctx: Context) -> Iterator[Finding]:
    """Reducing gradients in bf16 sets the communication format of Megatron-FSDP, too.

    Why:
        In 0.17 and 0.18 ``--grad-reduce-in-bf16`` overwrites ``--megatron-fsdp-grad-comm-dtype``.

    Bad:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, grad_reduce_in_bf16: true}
        parallel: {megatron_fsdp_grad_comm_dtype: fp32}

    Good:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, grad_reduce_in_bf16: true}
        parallel: {megatron_fsdp_grad_comm_dtype: bf16}
    """
    if not ctx.args.grad_reduce_in_bf16:
        return
    yield from replaced(ctx, "fsdp-grad-comm", "training.grad_reduce_in_bf16")


@rule(
    "PP396",
    "sequence-parallelism-turned-off",
    "warning",
    stage="validate",
    source=(arguments(907),),
    fixable=True,
)
def sequence_parallel_off(ctx: Context) -> Iterator[Finding]:
    """Without tensor parallelism there is no sequence parallelism.

    Why:
        It splits activations over the tensor-parallel ranks; with one rank Megatron clears the
        flag with a warning.

    Bad:
        parallel: {sequence_parallel: true}

    Good:
        parallel: {sequence_parallel: true, tensor_model_parallel_size: 2}
    """
    if not ctx.plan.parallel.sequence_parallel:
        return
    if (ctx.plan.parallel.tensor_model_parallel_size or 1) > 1:
        return
    yield ctx.found(
        "parallel.sequence_parallel = true is silently replaced by false: it needs tensor "
        "parallelism",
        "parallel.sequence_parallel",
        "parallel.tensor_model_parallel_size",
        fix=(
            Fix(
                "parallel.sequence_parallel: false",
                {"parallel.sequence_parallel": False},
                "safe",
            ),
        ),
        resolved={"sequence_parallel": False},
    )


@rule(
    "PP397",
    "fp32-reduce-scatter-turned-off",
    "warning",
    stage="validate",
    source=(arguments(1230, "HEAD"),),
    versions=core("HEAD"),
    fixable=True,
)
def reduce_scatter_off(ctx: Context) -> Iterator[Finding]:
    """Gradients that are in fp32 need no reduce-scatter with fp32 accumulation.

    Why:
        The special reduce-scatter recovers fp32 sums from bf16 gradients. With fp32 gradients it
        would only cost a buffer, and Megatron clears the flag.

    Bad:
        software: {megatron_core: HEAD}
        training: {bf16: true}
        parallel: {ddp_reduce_scatter_with_fp32_accumulation: true}

    Good:
        software: {megatron_core: HEAD}
        training: {bf16: true, grad_reduce_in_bf16: true}
        parallel: {ddp_reduce_scatter_with_fp32_accumulation: true}
    """
    if not ctx.args.accumulate_allreduce_grads_in_fp32:
        return
    yield from replaced(
        ctx,
        "reduce-scatter-accumulation",
        "training.accumulate_allreduce_grads_in_fp32",
        instead=(set_to(("training.grad_reduce_in_bf16", True)),),
    )


@rule(
    "PP398",
    "checkpoint-streaming-turned-off",
    "warning",
    stage="validate",
    source=(arguments(1092, "core_v0.19.0"),),
    versions=core("0.19.0", "0.19.0"),
    fixable=True,
)
def streaming_off(ctx: Context) -> Iterator[Finding]:
    """Checkpoints of tensorwise FP8 are not dequantized in a stream.

    Why:
        Megatron 0.19 clears ``stream_ckpt_dequant`` for the tensorwise recipe with a warning. The
        flag exists in that release only.

    Bad:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise}
        checkpoint: {stream_ckpt_dequant: true}

    Good:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise}
        checkpoint: {stream_ckpt_dequant: false}
    """
    if ctx.plan.checkpoint.stream_ckpt_dequant is None:
        return
    yield from replaced(ctx, "stream-dequant", "training.fp8_recipe")


@rule(
    "PP399",
    "other-value-replaced",
    "warning",
    stage="validate",
    source=(
        arguments(1245),
        transformer_config("1723-1734"),
        arguments(1559, "core_v0.18.2"),
        arguments(588, "core_v0.13.0"),
    ),
    fixable=True,
)
def other_replaced(ctx: Context) -> Iterator[Finding]:
    """Megatron replaces what was asked of recomputation, graphs, optimizers or sharding.

    Why:
        ``--recompute-activations`` makes recomputation selective. CUDA graphs switch TE's random
        number tracker on, and local ones capture the router of experts with its preprocessing.
        Optimizers like Muon swap the distributed optimizer for a layer-wise one from 0.18 on.
        Sharding strategies of 0.12 and 0.13 switch overlap on, and NCCL user buffers with
        Megatron-FSDP switch registration and double buffering on from 0.18 on.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: local, te_rng_tracker: false}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: local, te_rng_tracker: true}
    """
    for slug, premise in _OTHER.items():
        yield from replaced(ctx, slug, premise)


_OTHER = {
    "recompute-activations": "training.recompute_activations",
    "cuda-graph-rng": "training.cuda_graph_impl",
    "router-graph": "training.cuda_graph_impl",
    "emerging-optimizer": "optimizer.optimizer",
    "sharding-overlap": "parallel.data_parallel_sharding_strategy",
    "fsdp-user-buffers": "parallel.use_nccl_ub",
}


RULES: tuple[Rule, ...] = (
    fsdp2_gathers_bf16,
    shared_buffer_off,
    fsdp_communication,
    sequence_parallel_off,
    reduce_scatter_off,
    streaming_off,
    other_replaced,
)

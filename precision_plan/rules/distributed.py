"""PP320 to PP324 and PP328: the distributed optimizer, overlap, and device connections."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, megatron

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def asked_for_distributed_optimizer(ctx: Context) -> bool:
    """True if the distributed optimizer is on when validate_args looks at what needs it.

    Megatron 0.18 and later swap it for the layer-wise one after that, for optimizers like Muon.
    """
    return bool(ctx.args.use_distributed_optimizer or ctx.parsed.use_distributed_optimizer)


@rule(
    "PP320",
    "distributed-optimizer-needs-adam",
    "error",
    stage="build",
    source=(
        megatron("core/optimizer/distrib_optimizer.py:514"),
        megatron("core/optimizer/distrib_optimizer.py:688", "core_v0.19.0"),
    ),
)
def distributed_needs_adam(ctx: Context) -> Found:
    """SGD has no distributed optimizer.

    Why:
        The distributed optimizer accepts Adam, and SGD only when it runs on the CPU. validate_args
        does not look; the assertion comes when the optimizer is built.

    Bad:
        optimizer: {optimizer: sgd, use_distributed_optimizer: true}

    Good:
        optimizer: {optimizer: adam, use_distributed_optimizer: true}
    """
    args = ctx.args
    if args.optimizer != "sgd" or not args.use_distributed_optimizer or args.optimizer_cpu_offload:
        return None
    return ctx.found(
        "optimizer.use_distributed_optimizer = true needs Adam, not sgd",
        "optimizer.use_distributed_optimizer",
        "optimizer.optimizer",
        fix=(
            set_to(("optimizer.optimizer", "adam")),
            set_to(("optimizer.use_distributed_optimizer", None)),
        ),
    )


@rule(
    "PP321",
    "param-gather-overlap-needs-distributed-optimizer",
    "error",
    stage="validate",
    source=(arguments(598), arguments(858, "core_v0.17.1")),
)
def overlap_needs_distributed(ctx: Context) -> Found:
    """There is no parameter all-gather to overlap without sharded parameters.

    Why:
        ``--overlap-param-gather`` hides the all-gather of the distributed optimizer or (from
        0.14 on) of Megatron-FSDP; from 0.17 on ``dist_muon`` counts, too.

    Bad:
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true}

    Good:
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.overlap_param_gather or args.use_megatron_fsdp:
        return None
    if asked_for_distributed_optimizer(ctx):
        return None
    if ctx.parsed.optimizer == "dist_muon" and ctx.core_since("0.17.0"):
        return None
    return ctx.found(
        "parallel.overlap_param_gather = true needs the distributed optimizer",
        "parallel.overlap_param_gather",
        "optimizer.use_distributed_optimizer",
        fix=(
            set_to(("optimizer.use_distributed_optimizer", True)),
            set_to(("parallel.overlap_param_gather", None)),
        ),
    )


@rule(
    "PP322",
    "param-gather-overlap-needs-grad-overlap",
    "error",
    stage="validate",
    source=(arguments(600),),
)
def overlap_needs_grad_overlap(ctx: Context) -> Found:
    """Overlapping the parameter all-gather goes with overlapping the gradient reduction.

    Why:
        Both use the same buckets; validate_args asserts that the second flag is there.

    Bad:
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_param_gather: true}

    Good:
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_param_gather: true, overlap_grad_reduce: true}
    """
    args = ctx.args
    if not args.overlap_param_gather or args.overlap_grad_reduce:
        return None
    return ctx.found(
        "parallel.overlap_param_gather = true needs parallel.overlap_grad_reduce",
        "parallel.overlap_param_gather",
        "parallel.overlap_grad_reduce",
        fix=(
            set_to(("parallel.overlap_grad_reduce", True)),
            set_to(("parallel.overlap_param_gather", None)),
        ),
    )


@rule(
    "PP323",
    "optimizer-step-overlap",
    "error",
    stage="validate",
    source=(arguments("636-643"),),
)
def optimizer_step_overlap(ctx: Context) -> Iterator[Finding]:
    """Gathering parameters during the optimizer step has four conditions.

    Why:
        ``--overlap-param-gather-with-optimizer-step`` needs the distributed optimizer,
        ``--overlap-param-gather``, the interleaved pipeline, and a checkpoint format that is not
        a distributed one. The default format ``torch_dist`` rules it out.

    Bad:
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true,
                   overlap_param_gather_with_optimizer_step: true}

    Good:
        optimizer: {use_distributed_optimizer: true}
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true,
                   overlap_param_gather_with_optimizer_step: true,
                   pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 1}
        checkpoint: {ckpt_format: torch}
    """
    args = ctx.args
    if not args.overlap_param_gather_with_optimizer_step:
        return
    parallel = ctx.plan.parallel
    interleaved = (
        parallel.num_layers_per_virtual_pipeline_stage is not None
        or (parallel.virtual_pipeline_model_parallel_size or 1) > 1
        or ctx.extra("num_virtual_stages_per_pipeline_rank") is not None
        or ctx.extra("pipeline_model_parallel_layout") is not None
        or "|" in str(ctx.extra("hybrid_layer_pattern"))
    )
    field = "parallel.overlap_param_gather_with_optimizer_step"
    demands = (
        (
            asked_for_distributed_optimizer(ctx),
            "the distributed optimizer",
            "optimizer.use_distributed_optimizer",
            set_to(("optimizer.use_distributed_optimizer", True)),
        ),
        (
            args.overlap_param_gather,
            "parallel.overlap_param_gather",
            "parallel.overlap_param_gather",
            set_to(("parallel.overlap_param_gather", True)),
        ),
        (
            interleaved,
            "the interleaved pipeline schedule",
            "parallel.num_layers_per_virtual_pipeline_stage",
            Fix("parallel.num_layers_per_virtual_pipeline_stage: N"),
        ),
        (
            args.ckpt_format == "torch",
            "a checkpoint format that is not distributed",
            "checkpoint.ckpt_format",
            set_to(("checkpoint.ckpt_format", "torch")),
        ),
    )
    for met, demand, premise, fix in demands:
        if not met:
            yield ctx.found(
                f"{field} = true needs {demand}",
                field,
                premise,
                fix=(fix, set_to((field, None))),
            )


@rule(
    "PP324",
    "device-connections-with-tensor-parallelism",
    "error",
    stage="validate",
    source=(arguments(951), arguments(779, "core_v0.12.1")),
    needs=("gpu", "env"),
    hardware="compute capability below 10.0",
)
def device_connections(ctx: Context) -> Found:
    """Tensor or context parallelism before Blackwell needs CUDA_DEVICE_MAX_CONNECTIONS=1.

    Why:
        One hardware queue keeps communication kernels in the order in which they were issued, on
        which the overlap of TP and CP rests. validate_args asserts it unless an FSDP is used (which
        wants the opposite) or expert-parallel overlap. Blackwell needs nothing of the kind, except
        that Megatron 0.12 demands it for tensor parallelism there, too.

    Bad:
        hardware: {gpu: h100}
        parallel: {tensor_model_parallel_size: 2}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "8"}}

    Good:
        hardware: {gpu: h100}
        parallel: {tensor_model_parallel_size: 2}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}
    """
    parallel = ctx.plan.parallel
    tensor = (parallel.tensor_model_parallel_size or 1) > 1
    context = (parallel.context_parallel_size or 1) > 1
    if not (tensor or context) or not ctx.trains or ctx.env(CONNECTIONS) == "1":
        return None
    args = ctx.args
    if args.use_torch_fsdp2 or args.use_megatron_fsdp or args.use_custom_fsdp:
        return None
    if args.overlap_moe_expert_parallel_comm:
        return None
    capability = ctx.target.compute_capability
    blackwell = capability is not None and capability >= (10, 0)
    if blackwell and (not tensor or ctx.core_since("0.13.0")):
        return None
    field = "parallel.tensor_model_parallel_size" if tensor else "parallel.context_parallel_size"
    found = ctx.train_env.get(CONNECTIONS)
    has = Because(f"{CONNECTIONS} is not set", "env") if found is None else found[1]
    variable = f"env.all.{CONNECTIONS}"
    return ctx.found(
        f"{ctx.shown(field)} needs {CONNECTIONS}=1 in the train actors",
        field,
        has,
        "hardware.gpu",
        fix=(Fix(f'{variable}: "1"', {variable: "1"}),),
    )


@rule(
    "PP328",
    "tensor-overlap-needs-sequence-parallelism",
    "error",
    stage="validate",
    source=(arguments(915),),
)
def tensor_overlap(ctx: Context) -> Found:
    """Overlapping tensor-parallel communication needs sequence parallelism.

    Why:
        The userbuffers overlap splits the all-gather and reduce-scatter of sequence parallelism.
        Without tensor parallelism Megatron turns sequence parallelism off, which counts as
        missing.

    Bad:
        parallel: {tensor_model_parallel_size: 2, tp_comm_overlap: true}

    Good:
        parallel: {tensor_model_parallel_size: 2, tp_comm_overlap: true, sequence_parallel: true}
    """
    if not ctx.args.tp_comm_overlap:
        return None
    parallel = ctx.plan.parallel
    if parallel.sequence_parallel and (parallel.tensor_model_parallel_size or 1) > 1:
        return None
    return ctx.found(
        "parallel.tp_comm_overlap = true needs parallel.sequence_parallel with tensor parallelism",
        "parallel.tp_comm_overlap",
        "parallel.sequence_parallel",
        "parallel.tensor_model_parallel_size",
        fix=(
            set_to(("parallel.sequence_parallel", True)),
            set_to(("parallel.tp_comm_overlap", None)),
        ),
    )


RULES: tuple[Rule, ...] = (
    distributed_needs_adam,
    overlap_needs_distributed,
    overlap_needs_grad_overlap,
    optimizer_step_overlap,
    device_connections,
    tensor_overlap,
)

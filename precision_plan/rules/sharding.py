"""PP340 to PP346: buffers, gradient reduction and weight shards of data parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, ddp_config, megatron

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_PRIORITY = "CUDA_GRAPHS_USE_NODE_PRIORITY"


@rule(
    "PP340",
    "nccl-user-buffers-with-expandable-segments",
    "error",
    stage="ddp_config",
    source=(ddp_config(158), ddp_config(256, "core_v0.19.0")),
    versions=core("0.14.0"),
)
def nccl_user_buffers(ctx: Context) -> Found:
    """NCCL user buffers and expandable segments of the allocator exclude each other.

    Why:
        User buffers come from a memory pool that expandable segments cannot back before torch
        2.11. Every DistributedDataParallelConfig up to Megatron 0.17 refuses the pair; from 0.18
        on only with an older torch.

    Bad:
        software: {megatron_core: 0.16.1}
        parallel: {use_nccl_ub: true}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}

    Good:
        software: {megatron_core: 0.16.1}
        parallel: {use_nccl_ub: true}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:512"}}
    """
    if not ctx.args.nccl_ub:
        return None
    found = ctx.train_env.get(_ALLOCATOR)
    if found is None or "expandable_segments:True" not in found[0].split(","):
        return None
    if ctx.core_since("0.18.0") and ctx.at_least("torch", "2.11.0a0") is not False:
        return None
    return ctx.found(
        f"{_ALLOCATOR}={found[0]} excludes parallel.use_nccl_ub",
        found[1],
        "parallel.use_nccl_ub",
        fix=(set_to((found[1], None)), set_to(("parallel.use_nccl_ub", None))),
    )


@rule(
    "PP341",
    "fp32-local-accumulation-with-fp32-buffer",
    "error",
    stage="ddp_config",
    source=(ddp_config(218, "core_v0.17.1"),),
    versions=core("0.17.0"),
)
def fp32_local_accumulation(ctx: Context) -> Found:
    """Single parameters accumulate in fp32 only where the others do not.

    Why:
        ``--ddp-param-name-patterns-for-fp32-local-accumulation`` names exceptions from bf16
        gradients. With an fp32 gradient buffer, which a bf16 model has by default, there is
        nothing to except, and DistributedDataParallelConfig refuses.

    Bad:
        software: {megatron_core: 0.17.1}
        training: {bf16: true}
        parallel: {ddp_param_name_patterns_for_fp32_local_accumulation: ["*router*"]}

    Good:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, grad_reduce_in_bf16: true}
        parallel: {ddp_param_name_patterns_for_fp32_local_accumulation: ["*router*"]}
    """
    args = ctx.args
    if not args.ddp_param_name_patterns_for_fp32_local_accumulation:
        return None
    if not args.accumulate_allreduce_grads_in_fp32:
        return None
    return ctx.found(
        "parallel.ddp_param_name_patterns_for_fp32_local_accumulation needs gradients that are "
        "not in fp32 already",
        "parallel.ddp_param_name_patterns_for_fp32_local_accumulation",
        "training.accumulate_allreduce_grads_in_fp32",
        "training.grad_reduce_in_bf16",
        fix=(
            set_to(("training.grad_reduce_in_bf16", True)),
            set_to(("parallel.ddp_param_name_patterns_for_fp32_local_accumulation", None)),
        ),
    )


@rule(
    "PP342",
    "fsdp-gradient-dtypes-overridden",
    "warning",
    stage="build",
    source=(megatron("core/distributed/fsdp/mcore_fsdp_adapter.py:92", "core_v0.17.1"),),
    versions=core("0.17.0", "0.18"),
)
def fsdp_gradient_dtypes(ctx: Context) -> Iterator[Finding]:
    """fp32 accumulation replaces the gradient formats of Megatron-FSDP.

    Why:
        In 0.17 and 0.18 ``grad_reduce_in_fp32``, which bf16 models get by default, forces main
        gradients and their communication to fp32, whatever the two FSDP flags say. From 0.19 on
        the flags count.

    Bad:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, gradient_accumulation_fusion: false}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_grad_comm_dtype: bf16}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, grad_reduce_in_bf16: true, gradient_accumulation_fusion: false}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_grad_comm_dtype: bf16}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if not args.use_megatron_fsdp or not args.accumulate_allreduce_grads_in_fp32:
        return
    for name in ("megatron_fsdp_main_grads_dtype", "megatron_fsdp_grad_comm_dtype"):
        field = ctx.given.get(name)
        if field is None or getattr(args, name) in {"fp32", "auto"}:
            continue
        yield ctx.found(
            f"{ctx.shown(field)} has no effect: fp32 accumulation makes it fp32",
            field,
            "training.accumulate_allreduce_grads_in_fp32",
            "software.megatron_core",
            fix=(set_to(("training.grad_reduce_in_bf16", True)), set_to((field, None))),
            resolved={name: "fp32"},
        )


def weight_shards_split(ctx: Context) -> bool:
    """True if weights are split further than by tensor parallelism (GTP)."""
    parallel = ctx.plan.parallel
    tensor = parallel.tensor_model_parallel_size or 1
    expert = parallel.expert_tensor_parallel_size or tensor
    return (parallel.tensor_parallel_num_weight_shards or tensor) > tensor or (
        parallel.expert_tensor_parallel_num_weight_shards or expert
    ) > expert


@rule(
    "PP343",
    "weight-shards-with-quantized-training",
    "error",
    stage="validate",
    source=(arguments("1477-1540", "core_v0.19.0"),),
    versions=core("0.19.0"),
)
def weight_shards_quantized(ctx: Context) -> Iterator[Finding]:
    """Weight shards beyond tensor parallelism keep no BF16 copy to quantize from.

    Why:
        With more weight shards than tensor-parallel ranks, every forward pass gathers the weight.
        MXFP8 and NVFP4 weights must therefore be the parameters themselves: mxfp8 needs
        ``--fp8-param-gather`` and ``--reuse-grad-buf-for-mxfp8-param-ag``, FP4 needs
        ``--fp4-param-gather``. Only the recipe is looked at, not whether FP8 is on.

    Bad:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp4_format: e2m1}
        parallel: {tensor_parallel_num_weight_shards: 2}

    Good:
        software: {megatron_core: 0.19.0, transformer_engine: 2.14.0}
        training: {bf16: true, fp4_format: e2m1, fp4_param_gather: true}
        parallel: {tensor_parallel_num_weight_shards: 2}
        optimizer: {use_distributed_optimizer: true}
    """
    parallel = ctx.plan.parallel
    field = "parallel.tensor_parallel_num_weight_shards"
    if parallel.tensor_parallel_num_weight_shards is None:
        field = "parallel.expert_tensor_parallel_num_weight_shards"
        if parallel.expert_tensor_parallel_num_weight_shards is None:
            return
    if not weight_shards_split(ctx):
        return
    args = ctx.args
    demands: list[tuple[bool, str, str]] = []
    if args.fp4:
        demands.append((ctx.fp4_param_gather, "training.fp4_param_gather", "training.fp4_format"))
    if args.fp8_recipe == "mxfp8":
        reuse = "reuse_grad_buf_for_mxfp8_param_ag"
        recipe = "training.fp8_recipe"
        demands.append((bool(args.fp8_param_gather), "training.fp8_param_gather", recipe))
        demands.append((bool(getattr(args, reuse)), f"training.{reuse}", recipe))
    for met, wanted, because in demands:
        if not met:
            yield ctx.found(
                f"{ctx.shown(field)} needs {wanted}",
                field,
                because,
                wanted,
                fix=(set_to((wanted, True)), set_to((field, None))),
            )


@rule(
    "PP344",
    "weight-shards-limits",
    "error",
    stage="validate",
    source=(arguments("1500-1528", "core_v0.19.0"), arguments("414-422", "core_v0.19.0")),
    versions=core("0.19.0"),
)
def weight_shards_limits(ctx: Context) -> Iterator[Finding]:
    """What the number of weight shards must be, and what it excludes.

    Why:
        The number must be a multiple of the tensor-parallel size. Beyond it, validate_args
        refuses averaging in the collective, checkpoint formats other than torch and torch_dist,
        and on Blackwell CUDA graphs without ``CUDA_GRAPHS_USE_NODE_PRIORITY=1``.

    Bad:
        software: {megatron_core: 0.19.0}
        parallel: {tensor_model_parallel_size: 2, tensor_parallel_num_weight_shards: 3}

    Good:
        software: {megatron_core: 0.19.0}
        parallel: {tensor_model_parallel_size: 2, tensor_parallel_num_weight_shards: 4}
    """
    parallel = ctx.plan.parallel
    tensor = parallel.tensor_model_parallel_size or 1
    pairs = (
        ("tensor_parallel_num_weight_shards", tensor),
        (
            "expert_tensor_parallel_num_weight_shards",
            parallel.expert_tensor_parallel_size or tensor,
        ),
    )
    asked = ""
    for name, size in pairs:
        count = getattr(parallel, name)
        if count is None:
            continue
        asked = f"parallel.{name}"
        if count < size or count % size:
            yield ctx.found(
                f"{asked} = {count} must be a multiple of {size}, the tensor-parallel size",
                asked,
                "parallel.tensor_model_parallel_size",
                fix=(set_to((asked, size)),),
            )
    if not asked or not weight_shards_split(ctx):
        return
    args = ctx.args
    if args.ddp_average_in_collective:
        yield ctx.found(
            f"{ctx.shown(asked)} excludes parallel.ddp_average_in_collective",
            "parallel.ddp_average_in_collective",
            asked,
            fix=(set_to(("parallel.ddp_average_in_collective", None)),),
        )
    if args.ckpt_format not in {"torch", "torch_dist"}:
        yield ctx.found(
            f"{ctx.shown(asked)} excludes {ctx.shown('checkpoint.ckpt_format')}",
            "checkpoint.ckpt_format",
            asked,
            fix=(set_to(("checkpoint.ckpt_format", "torch_dist")),),
        )
    capability = ctx.target.compute_capability
    if capability is None or capability < (10, 0) or args.cuda_graph_impl == "none":
        return
    if ctx.env_known and ctx.env(_PRIORITY) != "1":
        variable = f"env.all.{_PRIORITY}"
        yield ctx.found(
            f"{ctx.shown(asked)} with CUDA graphs needs {_PRIORITY}=1",
            asked,
            "training.cuda_graph_impl",
            "hardware.gpu",
            fix=(Fix(f'{variable}: "1"', {variable: "1"}),),
        )


@rule(
    "PP345",
    "load-main-params-needs-no-load-optim",
    "error",
    stage="validate",
    source=(arguments(1136),),
    versions=core("0.14.0"),
)
def load_main_params(ctx: Context) -> Found:
    """Main parameters come from the checkpoint's weights only if its optimizer is not loaded.

    Why:
        ``--load-main-params-from-ckpt`` fills the fp32 masters from the model's weights. Loading
        the optimizer state would overwrite them, so validate_args asserts ``--no-load-optim``.

    Bad:
        software: {megatron_core: 0.16.1}
        checkpoint: {load_main_params_from_ckpt: true}

    Good:
        software: {megatron_core: 0.16.1}
        checkpoint: {load_main_params_from_ckpt: true, no_load_optim: true}
    """
    args = ctx.args
    if not args.load_main_params_from_ckpt or args.no_load_optim:
        return None
    return ctx.found(
        "checkpoint.load_main_params_from_ckpt = true needs checkpoint.no_load_optim",
        "checkpoint.load_main_params_from_ckpt",
        "checkpoint.no_load_optim",
        fix=(
            set_to(("checkpoint.no_load_optim", True)),
            set_to(("checkpoint.load_main_params_from_ckpt", None)),
        ),
    )


@rule(
    "PP346",
    "distributed-optimizer-without-gloo",
    "error",
    stage="validate",
    source=(arguments(1100),),
)
def without_gloo(ctx: Context) -> Found:
    """Without Gloo groups the distributed optimizer needs distributed checkpoints.

    Why:
        The legacy ``torch`` checkpoint collects the optimizer state on one rank through a Gloo
        group. With ``--disable-gloo-process-groups`` validate_args refuses that format.

    Bad:
        optimizer: {use_distributed_optimizer: true}
        checkpoint: {ckpt_format: torch}
        launch: {extra_args: {disable-gloo-process-groups: true}}

    Good:
        optimizer: {use_distributed_optimizer: true}
        checkpoint: {ckpt_format: torch_dist}
        launch: {extra_args: {disable-gloo-process-groups: true}}
    """
    args = ctx.args
    if args.ckpt_format != "torch" or not args.use_distributed_optimizer:
        return None
    off = (
        ctx.extra("disable_gloo_process_groups") is True
        or ctx.extra("enable_gloo_process_groups") is False
        or ctx.extra("use_gloo_process_groups") is False
    )
    if not off:
        return None
    return ctx.found(
        "checkpoint.ckpt_format = torch with the distributed optimizer needs Gloo process groups",
        "checkpoint.ckpt_format",
        "optimizer.use_distributed_optimizer",
        "launch.extra_args",
        fix=(set_to(("checkpoint.ckpt_format", "torch_dist")),),
    )


RULES: tuple[Rule, ...] = (
    nccl_user_buffers,
    fp32_local_accumulation,
    fsdp_gradient_dtypes,
    weight_shards_quantized,
    weight_shards_limits,
    load_main_params,
    without_gloo,
)

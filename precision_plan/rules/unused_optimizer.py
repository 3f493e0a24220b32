"""PP380 to PP384: options of the optimizer, of sharding and of experts that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.rules.base import Context, Finding, Rule, rule
from precision_plan.rules.sources import megatron
from precision_plan.rules.unused import unused


@rule(
    "PP380",
    "offload-options-unused",
    "warning",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:306"),),
    fixable=True,
)
def offload_options(ctx: Context) -> Iterator[Finding]:
    """Options of the optimizer on the CPU are given, and it is not on the CPU.

    Why:
        The fraction, the overlap and the pinning are read by the hybrid device optimizer, which
        ``--optimizer-cpu-offload`` alone selects.

    Bad:
        optimizer: {use_distributed_optimizer: true, optimizer_offload_fraction: 0.5}

    Good:
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true, optimizer_offload_fraction: 0.5}
    """
    if ctx.args.optimizer_cpu_offload:
        return
    yield from unused(
        ctx,
        (
            "optimizer.optimizer_offload_fraction",
            "optimizer.overlap_cpu_optimizer_d2h_h2d",
            "optimizer.pin_cpu_grads",
            "optimizer.pin_cpu_params",
        ),
        "the optimizer is on the GPU",
        "optimizer.optimizer_cpu_offload",
    )


@rule(
    "PP381",
    "torch-optimizer-for-offload-unused",
    "warning",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:317"),),
    fixable=True,
)
def torch_optimizer(ctx: Context) -> Iterator[Finding]:
    """The switch to torch's optimizer on the GPU is overwritten a few lines later.

    Why:
        Megatron sets the GPU class from ``--use-torch-optimizer-for-cpu-offload`` and then, for
        Adam and SGD alike, sets it back. The flag never has an effect.

    Bad:
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true, use_torch_optimizer_for_cpu_offload: true}

    Good:
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}
    """
    yield from unused(
        ctx,
        ("optimizer.use_torch_optimizer_for_cpu_offload",),
        "Megatron sets the optimizer class back to its own",
    )


@rule(
    "PP382",
    "muon-options-unused",
    "warning",
    stage="build",
    source=(megatron("core/optimizer/muon.py:188"),),
    fixable=True,
)
def muon_options(ctx: Context) -> Iterator[Finding]:
    """Options of Muon are given for another optimizer.

    Why:
        The precision of the Newton-Schulz iteration and the optimizer of one-dimensional
        parameters are read when Muon is built.

    Bad:
        training: {bf16: true}
        optimizer: {muon_fp32_matmul_prec: high}

    Good:
        training: {bf16: true}
        optimizer: {optimizer: muon, muon_fp32_matmul_prec: high}
    """
    if "muon" in ctx.args.optimizer:
        return
    yield from unused(
        ctx,
        ("optimizer.muon_fp32_matmul_prec", "optimizer.muon_scalar_optimizer"),
        "the optimizer is not Muon",
        "optimizer.optimizer",
    )


@rule(
    "PP383",
    "fsdp-options-unused",
    "warning",
    stage="build",
    source=(megatron("core/distributed/fsdp/mcore_fsdp_adapter.py:88", "core_v0.17.1"),),
    fixable=True,
)
def fsdp_options(ctx: Context) -> Iterator[Finding]:
    """Options of Megatron-FSDP are given without it.

    Why:
        The ordinary DDP reads neither the formats of Megatron-FSDP nor its transpose cache.

    Bad:
        software: {megatron_core: 0.17.1}
        training: {bf16: true}
        parallel: {megatron_fsdp_main_grads_dtype: bf16}

    Good:
        software: {megatron_core: 0.17.1}
        training: {bf16: true, gradient_accumulation_fusion: false, grad_reduce_in_bf16: true}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_main_grads_dtype: bf16}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if args.use_megatron_fsdp or args.use_custom_fsdp:
        return
    yield from unused(
        ctx,
        (
            "parallel.megatron_fsdp_main_params_dtype",
            "parallel.megatron_fsdp_main_grads_dtype",
            "parallel.megatron_fsdp_grad_comm_dtype",
            "parallel.megatron_fsdp_enable_fine_grained_param_gather",
            "parallel.keep_fp8_transpose_cache",
            "parallel.fsdp_double_buffer",
        ),
        "Megatron-FSDP is off",
        "parallel.use_megatron_fsdp",
    )


@rule(
    "PP384",
    "expert-options-unused",
    "warning",
    stage="build",
    source=(megatron("core/transformer/moe/router.py:95"),),
    fixable=True,
)
def expert_options(ctx: Context) -> Iterator[Finding]:
    """Options of experts are given for a model without experts.

    Why:
        A dense model has no router; the router's format, the dispatcher and grouped GEMMs are
        never read.

    Bad:
        model: {num_layers: 4}
        training: {bf16: true, moe_router_dtype: fp32}

    Good:
        model: {num_layers: 4, num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_router_dtype: fp32}
    """
    model = ctx.plan.model
    if model.num_experts is not None or model.num_layers is None:
        return
    yield from unused(
        ctx,
        (
            "training.moe_router_dtype",
            "training.moe_grouped_gemm",
            "training.moe_permute_fusion",
            "training.moe_token_dispatcher_type",
        ),
        "the model has no experts",
        "model.num_experts",
    )


RULES: tuple[Rule, ...] = (
    offload_options,
    torch_optimizer,
    muon_options,
    fsdp_options,
    expert_options,
)

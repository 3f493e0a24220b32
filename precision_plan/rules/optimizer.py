"""PP301 to PP305 and PP310: the precision-aware optimizer, and the optimizer on the CPU."""

from __future__ import annotations

from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron, optimizer_config


@rule(
    "PP301",
    "cpu-optimizer-needs-precision-aware-optimizer",
    "error",
    stage="validate",
    source=(arguments(1191),),
)
def cpu_optimizer_needs_precision_aware(ctx: Context) -> Found:
    """Optimizer offload goes through the precision-aware optimizer.

    Why:
        The hybrid device optimizer reuses that code path, and validate_args asserts the flag.
        Through it, offload also needs Adam and (up to Megatron 0.19) the distributed optimizer.

    Bad:
        optimizer: {use_distributed_optimizer: true, optimizer_cpu_offload: true}

    Good:
        optimizer: {use_distributed_optimizer: true, optimizer_cpu_offload: true,
                    use_precision_aware_optimizer: true}
    """
    args = ctx.args
    if not args.optimizer_cpu_offload or args.use_precision_aware_optimizer:
        return None
    return ctx.found(
        "optimizer.optimizer_cpu_offload = true needs optimizer.use_precision_aware_optimizer",
        "optimizer.optimizer_cpu_offload",
        "optimizer.use_precision_aware_optimizer",
        fix=(
            set_to(("optimizer.use_precision_aware_optimizer", True)),
            set_to(("optimizer.optimizer_cpu_offload", None)),
        ),
    )


@rule(
    "PP302",
    "fp8-param-gather-with-cpu-optimizer",
    "error",
    stage="validate",
    source=(
        arguments(1195),
        "NVIDIA/Megatron-LM#5083",
        "NVIDIA/Megatron-LM#2582",
    ),
)
def fp8_parameters_with_cpu_optimizer(ctx: Context) -> Found:
    """FP8 parameters and the optimizer on the CPU exclude each other.

    Why:
        FP8 parameters are written back by TE's FusedAdam on the GPU; CPU Adam gets groups with
        holes and fails when it is built. From 0.14 on validate_args refuses the pair for every
        recipe but delayed. For delayed, and in older versions, it passes the check and is still
        not wired; this project refuses it for every recipe. FP8 training without gathered FP8
        parameters goes well with CPU Adam.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}
    """
    args = ctx.args
    if not (args.fp8_param_gather and args.optimizer_cpu_offload):
        return None
    real = args.fp8_recipe != "delayed" and ctx.core_since("0.14.0")
    return ctx.found(
        "training.fp8_param_gather = true excludes optimizer.optimizer_cpu_offload",
        "training.fp8_param_gather",
        "optimizer.optimizer_cpu_offload",
        "training.fp8_recipe",
        fix=(
            set_to(("training.fp8_param_gather", None)),
            set_to(("optimizer.optimizer_cpu_offload", None)),
        ),
        stage=None if real else "policy",
    )


@rule(
    "PP303",
    "precision-aware-optimizer-needs-adam",
    "error",
    stage="optimizer_config",
    source=(optimizer_config(376),),
)
def precision_aware_needs_adam(ctx: Context) -> Found:
    """Only Adam is precision-aware.

    Why:
        The dtypes of moments and master weights are options of TE's FusedAdam. OptimizerConfig
        asserts ``optimizer == adam``, after the model was built.

    Bad:
        optimizer: {optimizer: sgd, use_precision_aware_optimizer: true}

    Good:
        optimizer: {optimizer: adam, use_precision_aware_optimizer: true,
                    use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.use_precision_aware_optimizer or args.optimizer == "adam":
        return None
    return ctx.found(
        f"optimizer.use_precision_aware_optimizer = true needs Adam, not {args.optimizer}",
        "optimizer.use_precision_aware_optimizer",
        "optimizer.optimizer",
        fix=(
            set_to(("optimizer.optimizer", "adam")),
            set_to(("optimizer.use_precision_aware_optimizer", None)),
        ),
    )


@rule(
    "PP304",
    "precision-aware-optimizer-needs-distributed-optimizer",
    "error",
    stage="optimizer_config",
    source=(optimizer_config(379),),
    versions=core(None, "0.19"),
)
def precision_aware_needs_distributed(ctx: Context) -> Found:
    """The precision-aware optimizer is part of the distributed optimizer.

    Why:
        OptimizerConfig asserts it in every release up to 0.19, after the model was built.
        Megatron-FSDP does not count by itself; from 0.18 on it turns the distributed optimizer on.

    Bad:
        software: {megatron_core: 0.16.1}
        optimizer: {use_precision_aware_optimizer: true}

    Good:
        software: {megatron_core: 0.16.1}
        optimizer: {use_precision_aware_optimizer: true, use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.use_precision_aware_optimizer or args.use_distributed_optimizer:
        return None
    return ctx.found(
        "optimizer.use_precision_aware_optimizer = true needs the distributed optimizer",
        "optimizer.use_precision_aware_optimizer",
        "optimizer.use_distributed_optimizer",
        fix=(set_to(("optimizer.use_distributed_optimizer", True)),),
    )


@rule(
    "PP305",
    "precision-aware-optimizer-needs-transformer-engine",
    "error",
    stage="optimizer_config",
    source=(
        optimizer_config(405),
        "NVIDIA/TransformerEngine@v1.13:transformer_engine/pytorch/optimizers/fused_adam.py",
    ),
    needs=("transformer_engine",),
)
def precision_aware_needs_te(ctx: Context) -> Found:
    """The precision-aware optimizer needs TE's FusedAdam of 1.13 or later.

    Why:
        OptimizerConfig looks for ``master_weight_dtype``, ``exp_avg_dtype``,
        ``exp_avg_sq_dtype`` and ``use_decoupled_grad`` among FusedAdam's arguments; 1.12 lacks
        the last one. With the optimizer on the CPU the check is skipped.

    Bad:
        software: {transformer_engine: 1.12.0}
        optimizer: {use_precision_aware_optimizer: true, use_distributed_optimizer: true}

    Good:
        software: {transformer_engine: 1.13.0}
        optimizer: {use_precision_aware_optimizer: true, use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.use_precision_aware_optimizer or args.optimizer_cpu_offload:
        return None
    if ctx.at_least("transformer_engine", "1.13"):
        return None
    return ctx.found(
        "optimizer.use_precision_aware_optimizer = true needs Transformer Engine 1.13 or later; "
        f"the target has {ctx.target.package('transformer_engine')}",
        "optimizer.use_precision_aware_optimizer",
        "software.transformer_engine",
        fix=(set_to(("software.transformer_engine", "1.13.0"), also=" or later"),),
    )


@rule(
    "PP310",
    "cpu-optimizer-with-old-torch",
    "advice",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:307"),),
    needs=("torch",),
)
def cpu_optimizer_old_torch(ctx: Context) -> Found:
    """The optimizer on the CPU is tested with torch 2.3 and later.

    Why:
        Megatron warns that older versions may have convergence problems.

    Bad:
        software: {torch: 2.2.0}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}

    Good:
        software: {torch: 2.3.0}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}
    """
    if not ctx.args.optimizer_cpu_offload or ctx.at_least("torch", "2.3.0"):
        return None
    return ctx.found(
        "optimizer.optimizer_cpu_offload = true is untested before torch 2.3; the target has "
        f"{ctx.target.package('torch')}",
        "optimizer.optimizer_cpu_offload",
        "software.torch",
        fix=(set_to(("software.torch", "2.3.0"), also=" or later"),),
    )


RULES: tuple[Rule, ...] = (
    cpu_optimizer_needs_precision_aware,
    fp8_parameters_with_cpu_optimizer,
    precision_aware_needs_adam,
    precision_aware_needs_distributed,
    precision_aware_needs_te,
    cpu_optimizer_old_torch,
)

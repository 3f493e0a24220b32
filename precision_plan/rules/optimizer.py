"""PP301 to PP309: precision-aware optimizer, its dtypes, and the optimizer on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from precision_plan.facts.transformer_engine import fused_adam_options
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron, optimizer_config

_DTYPES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


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
    "PP306",
    "optimizer-dtypes-need-precision-aware-optimizer",
    "error",
    stage="optimizer_config",
    source=(optimizer_config("415-425"),),
)
def dtypes_need_precision_aware(ctx: Context) -> Iterator[Finding]:
    """Formats of gradients, master weights and moments need the precision-aware optimizer.

    Why:
        The ordinary optimizer keeps everything in fp32, and OptimizerConfig asserts for each of
        the four dtypes that nothing else was asked for. Like all its checks, this one comes after
        the model was built.

    Bad:
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, exp_avg_dtype: fp8}

    Good:
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    exp_avg_dtype: fp8}
    """
    args = ctx.args
    if args.use_precision_aware_optimizer:
        return
    for name in _DTYPES:
        value = getattr(args, name)
        if value == "fp32":
            continue
        field = f"optimizer.{name}"
        yield ctx.found(
            f"{field} = {value} needs optimizer.use_precision_aware_optimizer",
            field,
            "optimizer.use_precision_aware_optimizer",
            fix=(
                set_to(("optimizer.use_precision_aware_optimizer", True)),
                set_to((field, None), also=" to keep fp32"),
            ),
        )


@lru_cache(maxsize=64)
def _adam_values(option: str, transformer_engine: str) -> tuple[str, ...] | None:
    for row in fused_adam_options():
        if row.option == option and transformer_engine in row.versions:
            return row.values
    return None


@rule(
    "PP307",
    "moment-dtype-needs-newer-transformer-engine",
    "error",
    stage="fused_adam",
    source=(
        "NVIDIA/TransformerEngine@v2.2:transformer_engine/pytorch/optimizers/fused_adam.py:137",
        "NVIDIA/TransformerEngine@v2.3:transformer_engine/pytorch/optimizers/fused_adam.py:137",
    ),
    needs=("transformer_engine",),
)
def moment_dtype_needs_te(ctx: Context) -> Iterator[Finding]:
    """FusedAdam of this Transformer Engine does not know the format of the moments.

    Why:
        bf16 moments came with TE 2.3; older constructors raise RuntimeError. Megatron offers the
        choice from 0.13 on whatever TE is installed.

    Bad:
        software: {transformer_engine: 2.2.0}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    exp_avg_dtype: bf16}

    Good:
        software: {transformer_engine: 2.3.0}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    exp_avg_dtype: bf16}
    """
    args = ctx.args
    if not args.use_precision_aware_optimizer or args.optimizer_cpu_offload:
        return
    te = ctx.target.package("transformer_engine") or ""
    for name in ("exp_avg_dtype", "exp_avg_sq_dtype"):
        value = getattr(args, name)
        allowed = _adam_values(name, te) if value != "fp32" else None
        if allowed is None or value in allowed:
            continue
        field = f"optimizer.{name}"
        yield ctx.found(
            f"{field} = {value} is unknown to FusedAdam of Transformer Engine {te}, which takes "
            f"{', '.join(allowed)}",
            field,
            "software.transformer_engine",
            fix=(
                set_to(("software.transformer_engine", "2.3.0"), also=" or later"),
                set_to((field, None)),
            ),
        )


@rule(
    "PP308",
    "fp16-masters-with-fp8-parameters",
    "error",
    stage="build",
    source=(megatron("core/optimizer/distrib_optimizer.py:364"),),
    versions=core("0.13.0"),
)
def fp16_masters_with_fp8_parameters(ctx: Context) -> Found:
    """fp16 master weights cannot back FP8 parameters, except with delayed scaling.

    Why:
        With fp16 masters TE's FusedAdam owns the master weights, and the distributed optimizer
        hands it no shard for FP8 parameters of another recipe than delayed. No check says so;
        the first step fails.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    main_params_dtype: fp16}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true}
    """
    args = ctx.args
    if not args.fp8_param_gather or args.main_params_dtype != "fp16" or not args.fp8:
        return None
    if not args.use_precision_aware_optimizer or args.fp8_recipe == "delayed":
        return None
    return ctx.found(
        "optimizer.main_params_dtype = fp16 cannot back FP8 parameters of the "
        f"{args.fp8_recipe} recipe",
        "optimizer.main_params_dtype",
        "training.fp8_param_gather",
        "training.fp8_recipe",
        fix=(
            set_to(("optimizer.main_params_dtype", None)),
            set_to(("training.fp8_param_gather", None)),
        ),
    )


@rule(
    "PP309",
    "cpu-optimizer-ignores-dtypes",
    "warning",
    stage="build",
    source=(megatron("core/optimizer/__init__.py:336"),),
)
def cpu_optimizer_ignores_dtypes(ctx: Context) -> Iterator[Finding]:
    """The optimizer on the CPU keeps fp32 masters and moments, whatever was asked for.

    Why:
        The hybrid device optimizer is built with ``param_update_in_fp32`` and without any dtype.
        Formats of master weights and moments pass every check and have no effect.

    Bad:
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true, exp_avg_dtype: bf16}

    Good:
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cpu_offload: true}
    """
    args = ctx.args
    if not args.optimizer_cpu_offload:
        return
    for name in _DTYPES[1:]:
        value = getattr(args, name)
        if value == "fp32":
            continue
        field = f"optimizer.{name}"
        yield ctx.found(
            f"{field} = {value} has no effect with the optimizer on the CPU: fp32 is used",
            field,
            "optimizer.optimizer_cpu_offload",
            fix=(set_to((field, None)),),
            resolved={name: "fp32"},
        )


RULES: tuple[Rule, ...] = (
    cpu_optimizer_needs_precision_aware,
    fp8_parameters_with_cpu_optimizer,
    precision_aware_needs_adam,
    precision_aware_needs_distributed,
    precision_aware_needs_te,
    dtypes_need_precision_aware,
    moment_dtype_needs_te,
    fp16_masters_with_fp8_parameters,
    cpu_optimizer_ignores_dtypes,
)

"""PP306 to PP309 and PP311: formats of gradients, master weights and Adam moments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from precision_plan.facts.transformer_engine import fused_adam_options
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import core, megatron, optimizer_config

_DTYPES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


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
    fixable=True,
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
            fix=(set_to((field, None), safe=True),),
            resolved={name: "fp32"},
        )


@rule(
    "PP311",
    "captured-optimizer-dtypes",
    "error",
    stage="build",
    source=(
        "transformer-engine@2.20.2:transformer_engine/pytorch/optimizers/fused_adam.py:147-213",
        megatron("core/optimizer/__init__.py:538-571", "core_v0.17.1"),
    ),
    versions=core("0.17.0"),
)
def captured_optimizer(ctx: Context) -> Iterator[Finding]:
    """An optimizer step in a CUDA graph needs formats that stay in place.

    Why:
        FusedAdam in capturable mode takes fp32 master weights, and moments that are both fp32 or
        (from TE 2.13 on) both bf16; others are unscaled through temporary buffers that a graph
        cannot follow. It also refuses to store masters as 16-bit remainders, which the
        precision-aware optimizer does by default for BF16 models whose recipe is delayed.

    Bad:
        software: {megatron_core: 0.17.1}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    optimizer_cuda_graph: true, exp_avg_dtype: fp8}

    Good:
        software: {megatron_core: 0.17.1}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, optimizer_cuda_graph: true}
    """
    args = ctx.args
    if not args.optimizer_cuda_graph or not args.use_precision_aware_optimizer:
        return
    if args.optimizer_cpu_offload:
        return
    field = "optimizer.optimizer_cuda_graph"
    off = set_to((field, None))
    fused_masters = args.main_params_dtype != "fp32" or args.fp8_recipe == "delayed"
    if args.main_params_dtype != "fp32":
        yield ctx.found(
            f"{field} = true needs optimizer.main_params_dtype = fp32",
            field,
            "optimizer.main_params_dtype",
            fix=(set_to(("optimizer.main_params_dtype", None)), off),
        )
    moments = {args.exp_avg_dtype, args.exp_avg_sq_dtype}
    bf16_works = ctx.at_least("transformer_engine", "2.13") is not False
    if moments != {"fp32"} and not (moments == {"bf16"} and bf16_works):
        yield ctx.found(
            f"{field} = true needs both moments in fp32" + (" or both in bf16" * bf16_works),
            field,
            "optimizer.exp_avg_dtype",
            "optimizer.exp_avg_sq_dtype",
            fix=(
                set_to(("optimizer.exp_avg_dtype", None), ("optimizer.exp_avg_sq_dtype", None)),
                off,
            ),
        )
    old = ctx.at_least("transformer_engine", "2.13") is False
    if args.main_params_dtype == "fp32" and (fused_masters or old):
        yield ctx.found(
            f"{field} = true excludes masters stored as 16-bit remainders, which the "
            "precision-aware optimizer does by default",
            field,
            "optimizer.use_precision_aware_optimizer",
            "training.fp8_recipe",
            fix=(off, set_to(("optimizer.use_precision_aware_optimizer", None))),
        )


RULES: tuple[Rule, ...] = (
    dtypes_need_precision_aware,
    moment_dtype_needs_te,
    fp16_masters_with_fp8_parameters,
    cpu_optimizer_ignores_dtypes,
    captured_optimizer,
)

"""PP325 to PP327: optimizers other than Adam and SGD."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron


@rule(
    "PP325",
    "muon-limits",
    "error",
    stage="validate",
    source=(arguments("1178-1187"), arguments("1484-1494", "core_v0.17.1")),
    versions=core("0.16.0", "0.17"),
)
def muon_limits(ctx: Context) -> Iterator[Finding]:
    """Muon of Megatron 0.16 and 0.17 works with plain data parallelism only.

    Why:
        validate_args refuses it with the distributed optimizer, with either FSDP, with checkpoint
        formats other than torch and torch_dist, and with overlap (``dist_muon`` may overlap from
        0.17 on). From 0.18 on the distributed optimizer is swapped for a layer-wise one.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true}
        optimizer: {optimizer: muon, use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true}
        optimizer: {optimizer: muon}
    """
    args = ctx.args
    if "muon" not in args.optimizer:
        return
    excluded = [
        "optimizer.use_distributed_optimizer",
        "parallel.use_torch_fsdp2",
        "parallel.use_megatron_fsdp",
    ]
    if args.optimizer == "muon" or not ctx.core_since("0.17.0"):
        excluded += ["parallel.overlap_grad_reduce", "parallel.overlap_param_gather"]
    for field in excluded:
        if getattr(args, field.partition(".")[2]):
            yield ctx.found(
                f"optimizer.optimizer = {args.optimizer} excludes {field}",
                field,
                "optimizer.optimizer",
                "software.megatron_core",
                fix=(set_to((field, None)), set_to(("optimizer.optimizer", "adam"))),
            )
    if args.ckpt_format not in {"torch", "torch_dist"}:
        yield ctx.found(
            f"optimizer.optimizer = {args.optimizer} excludes "
            f"checkpoint.ckpt_format = {args.ckpt_format}",
            "checkpoint.ckpt_format",
            "optimizer.optimizer",
            fix=(set_to(("checkpoint.ckpt_format", "torch_dist")),),
        )


@rule(
    "PP326",
    "emerging-optimizer-limits",
    "error",
    stage="validate",
    source=(arguments("1572-1574", "core_v0.18.2"), arguments("1739-1741", "HEAD")),
    versions=core("0.18.0"),
)
def emerging_optimizer_limits(ctx: Context) -> Iterator[Finding]:
    """Optimizers other than Adam and SGD run without FSDP and with two checkpoint formats.

    Why:
        From 0.18 on every optimizer but Adam and SGD takes the layer-wise path. validate_args
        refuses it with torch FSDP2, Megatron-FSDP and checkpoint formats other than torch and
        torch_dist.

    Bad:
        software: {megatron_core: 0.18.2}
        training: {bf16: true}
        optimizer: {optimizer: muon}
        checkpoint: {ckpt_format: torch_dcp}

    Good:
        software: {megatron_core: 0.18.2}
        training: {bf16: true}
        optimizer: {optimizer: muon, use_distributed_optimizer: true}
    """
    args = ctx.args
    if args.optimizer in {"adam", "sgd"}:
        return
    for field in ("parallel.use_torch_fsdp2", "parallel.use_megatron_fsdp"):
        if getattr(args, field.partition(".")[2]):
            yield ctx.found(
                f"optimizer.optimizer = {args.optimizer} excludes {field}",
                field,
                "optimizer.optimizer",
                fix=(set_to((field, None)), set_to(("optimizer.optimizer", "adam"))),
            )
    if args.ckpt_format not in {"torch", "torch_dist"}:
        yield ctx.found(
            f"optimizer.optimizer = {args.optimizer} excludes "
            f"checkpoint.ckpt_format = {args.ckpt_format}",
            "checkpoint.ckpt_format",
            "optimizer.optimizer",
            fix=(set_to(("checkpoint.ckpt_format", "torch_dist")),),
        )


@rule(
    "PP327",
    "emerging-optimizer-with-fp16",
    "error",
    stage="build",
    source=(
        megatron("core/optimizer/muon.py:195"),
        megatron("core/optimizer/__init__.py:768", "core_v0.18.2"),
    ),
    versions=core("0.16.0"),
)
def emerging_optimizer_with_fp16(ctx: Context) -> Found:
    """Muon and its kin train bf16 and fp32 models only.

    Why:
        They have no unscaling path for fp16 gradients, and raise when the optimizer is built.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {fp16: true}
        optimizer: {optimizer: muon}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true}
        optimizer: {optimizer: muon}
    """
    args = ctx.args
    if not args.fp16 or args.optimizer in {"adam", "sgd"}:
        return None
    return ctx.found(
        f"optimizer.optimizer = {args.optimizer} excludes training.fp16",
        "optimizer.optimizer",
        "training.fp16",
        fix=(set_to(("training.bf16", True), ("training.fp16", None)),),
    )


RULES: tuple[Rule, ...] = (
    muon_limits,
    emerging_optimizer_limits,
    emerging_optimizer_with_fp16,
)

"""PP336, PP337 and PP339: torch FSDP2, its checkpoints, and the meta device."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.distributed import asked_for_distributed_optimizer
from precision_plan.rules.sources import arguments, core


@rule(
    "PP336",
    "torch-fsdp2-limits",
    "error",
    stage="validate",
    source=(arguments("605-623"),),
)
def torch_fsdp2_limits(ctx: Context) -> Iterator[Finding]:
    """torch FSDP2 replaces Megatron's own sharding and excludes much of it.

    Why:
        validate_args refuses pipeline and expert parallelism, the distributed optimizer, fused
        gradient accumulation (on by default), tied embeddings (the default), fp16, and
        checkpoint formats other than torch_dist and torch_dcp.

    Bad:
        parallel: {use_torch_fsdp2: true}
        training: {bf16: true}

    Good:
        parallel: {use_torch_fsdp2: true}
        training: {bf16: true, gradient_accumulation_fusion: false}
        model: {untie_embeddings_and_output_weights: true}
    """
    args = ctx.args
    if not args.use_torch_fsdp2:
        return
    plan = ctx.plan
    parallel = plan.parallel
    untied = "model.untie_embeddings_and_output_weights"
    conflicts = (
        (
            (parallel.pipeline_model_parallel_size or 1) > 1,
            "parallel.pipeline_model_parallel_size",
            None,
        ),
        (
            (parallel.expert_model_parallel_size or 1) > 1,
            "parallel.expert_model_parallel_size",
            None,
        ),
        (asked_for_distributed_optimizer(ctx), "optimizer.use_distributed_optimizer", None),
        (args.gradient_accumulation_fusion, "training.gradient_accumulation_fusion", False),
        (
            args.ckpt_format not in {"torch_dist", "torch_dcp"},
            "checkpoint.ckpt_format",
            "torch_dist",
        ),
        (not plan.model.untie_embeddings_and_output_weights, untied, True),
        (args.fp16, "training.fp16", None),
    )
    for conflict, field, instead in conflicts:
        if not conflict:
            continue
        shown = f"{untied} = false" if field == untied else ctx.shown(field)
        yield ctx.found(
            f"parallel.use_torch_fsdp2 = true excludes {shown}",
            field,
            "parallel.use_torch_fsdp2",
            fix=(set_to((field, instead)), set_to(("parallel.use_torch_fsdp2", None))),
        )


@rule(
    "PP337",
    "torch-dcp-limits",
    "error",
    stage="validate",
    source=(arguments("1041-1047"),),
)
def torch_dcp_limits(ctx: Context) -> Iterator[Finding]:
    """The torch_dcp checkpoint format is for torch FSDP2 without tensor or pipeline parallelism.

    Why:
        It is tested for nothing else, and validate_args refuses it elsewhere.

    Bad:
        training: {bf16: true}
        checkpoint: {ckpt_format: torch_dcp}

    Good:
        training: {bf16: true, gradient_accumulation_fusion: false}
        model: {untie_embeddings_and_output_weights: true}
        parallel: {use_torch_fsdp2: true}
        checkpoint: {ckpt_format: torch_dcp}
    """
    args = ctx.args
    if args.ckpt_format != "torch_dcp":
        return
    parallel = ctx.plan.parallel
    demands = (
        (bool(args.use_torch_fsdp2), "parallel.use_torch_fsdp2", True),
        (
            (parallel.tensor_model_parallel_size or 1) <= 1,
            "parallel.tensor_model_parallel_size",
            1,
        ),
        (
            (parallel.pipeline_model_parallel_size or 1) <= 1,
            "parallel.pipeline_model_parallel_size",
            1,
        ),
    )
    for met, field, wanted in demands:
        if not met:
            needs = set_to((field, wanted))
            yield ctx.found(
                f"checkpoint.ckpt_format = torch_dcp needs {needs.text}",
                "checkpoint.ckpt_format",
                field,
                fix=(set_to(("checkpoint.ckpt_format", "torch_dist")), needs),
            )


@rule(
    "PP339",
    "meta-device-without-sharding",
    "error",
    stage="validate",
    source=(arguments("1151-1156", "core_v0.18.2"),),
    versions=core("0.18.0"),
)
def meta_device(ctx: Context) -> Found:
    """Initialization on the meta device needs sharded parameters.

    Why:
        Megatron-FSDP materializes meta parameters shard by shard; with the strategy ``no_shard``
        there is nothing to materialize, and validate_args raises.

    Bad:
        software: {megatron_core: 0.18.2}
        parallel: {use_megatron_fsdp: true, init_model_with_meta_device: true,
                   data_parallel_sharding_strategy: no_shard}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: 0.18.2}
        parallel: {use_megatron_fsdp: true, init_model_with_meta_device: true,
                   data_parallel_sharding_strategy: optim_grads_params}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if not args.init_model_with_meta_device or not args.use_megatron_fsdp:
        return None
    if args.data_parallel_sharding_strategy != "no_shard":
        return None
    return ctx.found(
        "parallel.init_model_with_meta_device = true excludes "
        "parallel.data_parallel_sharding_strategy = no_shard",
        "parallel.init_model_with_meta_device",
        "parallel.data_parallel_sharding_strategy",
        fix=(
            set_to(("parallel.init_model_with_meta_device", None)),
            Fix(
                "parallel.data_parallel_sharding_strategy: optim_grads_params",
                {"parallel.data_parallel_sharding_strategy": "optim_grads_params"},
            ),
        ),
    )


RULES: tuple[Rule, ...] = (
    torch_fsdp2_limits,
    torch_dcp_limits,
    meta_device,
)

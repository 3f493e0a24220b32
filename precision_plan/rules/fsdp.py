"""PP330 to PP335 and PP338: Megatron-FSDP."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.distributed import CONNECTIONS, asked_for_distributed_optimizer
from precision_plan.rules.sources import arguments, core, megatron

_ADAPTER = "core/distributed/fsdp/mcore_fsdp_adapter.py"


@rule(
    "PP330",
    "fsdp-device-connections",
    "error",
    stage="validate",
    source=(arguments(687), arguments(622)),
)
def fsdp_device_connections(ctx: Context) -> Found:
    """FSDP needs more than one device connection.

    Why:
        With ``CUDA_DEVICE_MAX_CONNECTIONS=1`` the all-gathers of FSDP would queue behind the
        computation that they are to hide. validate_args refuses the value 1 for Megatron-FSDP and
        torch FSDP2 on every GPU. Scripts for tensor parallelism export exactly that value.

    Bad:
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}

    Good:
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "8"}}
    """
    args = ctx.args
    if not (args.use_megatron_fsdp or args.use_torch_fsdp2 or args.use_custom_fsdp):
        return None
    found = ctx.train_env.get(CONNECTIONS)
    if found is None or found[0] != "1":
        return None
    field = "parallel.use_torch_fsdp2" if args.use_torch_fsdp2 else "parallel.use_megatron_fsdp"
    if args.use_custom_fsdp:
        field = "parallel.use_custom_fsdp"
    return ctx.found(
        f"{CONNECTIONS}=1 excludes {field}",
        found[1],
        field,
        fix=(set_to((found[1], "8")), set_to((found[1], None))),
    )


@rule(
    "PP331",
    "megatron-fsdp-checkpoint-format",
    "error",
    stage="validate",
    source=(arguments(690), arguments(1050)),
    versions=core("0.14.0"),
)
def fsdp_checkpoint_format(ctx: Context) -> Found:
    """Megatron-FSDP and the fsdp_dtensor checkpoint format go together.

    Why:
        Sharded parameters are saved as DTensors, and validate_args accepts neither one without
        the other. The default format is torch_dist.

    Bad:
        software: {megatron_core: 0.16.1}
        parallel: {use_megatron_fsdp: true}

    Good:
        software: {megatron_core: 0.16.1}
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    dtensor = args.ckpt_format == "fsdp_dtensor"
    if dtensor == bool(args.use_megatron_fsdp):
        return None
    if dtensor:
        return ctx.found(
            "checkpoint.ckpt_format = fsdp_dtensor needs parallel.use_megatron_fsdp",
            "checkpoint.ckpt_format",
            "parallel.use_megatron_fsdp",
            fix=(
                set_to(("checkpoint.ckpt_format", "torch_dist")),
                set_to(("parallel.use_megatron_fsdp", True)),
            ),
        )
    return ctx.found(
        "parallel.use_megatron_fsdp = true needs checkpoint.ckpt_format = fsdp_dtensor",
        "parallel.use_megatron_fsdp",
        "checkpoint.ckpt_format",
        fix=(set_to(("checkpoint.ckpt_format", "fsdp_dtensor")),),
    )


@rule(
    "PP332",
    "custom-fsdp-limits",
    "error",
    stage="validate",
    source=(arguments("646-654", "core_v0.13.0"),),
    versions=core(None, "0.13"),
)
def custom_fsdp_limits(ctx: Context) -> Iterator[Finding]:
    """The FSDP of Megatron 0.12 and 0.13 needs the distributed optimizer and plain accumulation.

    Why:
        ``--use-custom-fsdp`` is refused without ``--use-distributed-optimizer``, and with the
        strategies that shard gradients the fused gradient accumulation must be switched off.

    Bad:
        software: {megatron_core: 0.13.0}
        parallel: {use_custom_fsdp: true}

    Good:
        software: {megatron_core: 0.13.0}
        parallel: {use_custom_fsdp: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.use_custom_fsdp:
        return
    if not args.use_distributed_optimizer:
        yield ctx.found(
            "parallel.use_custom_fsdp = true needs the distributed optimizer",
            "parallel.use_custom_fsdp",
            "optimizer.use_distributed_optimizer",
            fix=(set_to(("optimizer.use_distributed_optimizer", True)),),
        )
    strategy = args.data_parallel_sharding_strategy
    if strategy in {"optim_grads", "optim_grads_params"} and args.gradient_accumulation_fusion:
        yield ctx.found(
            f"parallel.data_parallel_sharding_strategy = {strategy} needs "
            "training.gradient_accumulation_fusion = false",
            "parallel.data_parallel_sharding_strategy",
            "training.gradient_accumulation_fusion",
            "parallel.use_custom_fsdp",
            fix=(set_to(("training.gradient_accumulation_fusion", False)),),
        )


@rule(
    "PP333",
    "megatron-fsdp-fused-accumulation",
    "error",
    stage="build",
    source=(megatron(f"{_ADAPTER}:112", "core_v0.17.1"),),
    versions=core("0.17.0"),
    needs=("transformer_engine",),
)
def fsdp_fused_accumulation(ctx: Context) -> Found:
    """Megatron-FSDP with fused gradient accumulation needs Transformer Engine 2.10.

    Why:
        Fused accumulation is on by default. The FSDP adapter asserts the TE version while the
        model is wrapped.

    Bad:
        software: {megatron_core: 0.17.1, transformer_engine: 2.9.0}
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: 0.17.1, transformer_engine: 2.10.0}
        parallel: {use_megatron_fsdp: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if not args.use_megatron_fsdp or not args.gradient_accumulation_fusion:
        return None
    if ctx.at_least("transformer_engine", "2.10"):
        return None
    return ctx.found(
        "Megatron-FSDP with fused gradient accumulation needs Transformer Engine 2.10 or later; "
        f"the target has {ctx.target.package('transformer_engine')}",
        "parallel.use_megatron_fsdp",
        "training.gradient_accumulation_fusion",
        "software.transformer_engine",
        fix=(
            set_to(("training.gradient_accumulation_fusion", False)),
            set_to(("software.transformer_engine", "2.10.0"), also=" or later"),
        ),
    )


@rule(
    "PP334",
    "megatron-fsdp-2-with-distributed-optimizer",
    "error",
    stage="validate",
    source=(arguments("1124-1135", "HEAD"),),
    versions=core("HEAD"),
)
def fsdp_two_distributed_optimizer(ctx: Context) -> Found:
    """Version 2 of Megatron-FSDP brings its own sharded optimizer.

    Why:
        validate_args refuses ``--megatron-fsdp-version 2`` with the distributed optimizer, which
        version 1 in contrast turns on by itself.

    Bad:
        software: {megatron_core: HEAD}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_version: 2}
        optimizer: {use_distributed_optimizer: true}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: HEAD}
        training: {gradient_accumulation_fusion: false}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_version: 2}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if args.megatron_fsdp_version != 2 or not args.use_megatron_fsdp:
        return None
    if not asked_for_distributed_optimizer(ctx):
        return None
    return ctx.found(
        "parallel.megatron_fsdp_version = 2 excludes the distributed optimizer",
        "parallel.megatron_fsdp_version",
        "optimizer.use_distributed_optimizer",
        fix=(
            set_to(("optimizer.use_distributed_optimizer", None)),
            set_to(("parallel.megatron_fsdp_version", 1)),
        ),
    )


@rule(
    "PP335",
    "megatron-fsdp-2-limits",
    "error",
    stage="build",
    source=(megatron(f"{_ADAPTER}:664-680", "HEAD"),),
    versions=core("HEAD"),
)
def fsdp_two_limits(ctx: Context) -> Iterator[Finding]:
    """Version 2 of Megatron-FSDP trains neither FP8 nor FP4, nor with fused accumulation or graphs.

    Why:
        The adapter raises ValueError for each while the model is wrapped. Fused gradient
        accumulation is on by default and must be switched off by name.

    Bad:
        software: {megatron_core: HEAD}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   gradient_accumulation_fusion: false}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_version: 2}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: HEAD}
        training: {bf16: true, gradient_accumulation_fusion: false}
        parallel: {use_megatron_fsdp: true, megatron_fsdp_version: 2}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if args.megatron_fsdp_version != 2 or not args.use_megatron_fsdp:
        return
    conflicts = (
        (bool(args.fp8), "training.fp8_format", None),
        (bool(args.fp4), "training.fp4_format", None),
        (args.gradient_accumulation_fusion, "training.gradient_accumulation_fusion", False),
        (args.cuda_graph_impl != "none", "training.cuda_graph_impl", None),
    )
    for conflict, field, instead in conflicts:
        if conflict:
            yield ctx.found(
                f"parallel.megatron_fsdp_version = 2 excludes {ctx.shown(field)}",
                field,
                "parallel.megatron_fsdp_version",
                fix=(set_to((field, instead)), set_to(("parallel.megatron_fsdp_version", 1))),
            )


@rule(
    "PP338",
    "fsdp-manual-registration",
    "error",
    stage="validate",
    source=(arguments(694),),
    versions=core("0.16.0"),
)
def manual_registration(ctx: Context) -> Iterator[Finding]:
    """Manual registration of buffers needs Megatron-FSDP and user buffers of NCCL.

    Why:
        ``--fsdp-manual-registration`` registers the buffers of ``--use-nccl-ub`` in few calls.
        From 0.18 on ``--use-nccl-ub`` with Megatron-FSDP turns it on by itself.

    Bad:
        software: {megatron_core: 0.16.1}
        parallel: {use_megatron_fsdp: true, fsdp_manual_registration: true}
        checkpoint: {ckpt_format: fsdp_dtensor}

    Good:
        software: {megatron_core: 0.16.1}
        parallel: {use_megatron_fsdp: true, fsdp_manual_registration: true, use_nccl_ub: true}
        checkpoint: {ckpt_format: fsdp_dtensor}
    """
    args = ctx.args
    if not args.fsdp_manual_registration:
        return
    for dest, field in (
        ("use_megatron_fsdp", "parallel.use_megatron_fsdp"),
        ("nccl_ub", "parallel.use_nccl_ub"),
    ):
        if not getattr(args, dest):
            yield ctx.found(
                f"parallel.fsdp_manual_registration = true needs {field}",
                "parallel.fsdp_manual_registration",
                field,
                fix=(
                    set_to((field, True)),
                    set_to(("parallel.fsdp_manual_registration", None)),
                ),
            )


RULES: tuple[Rule, ...] = (
    fsdp_device_connections,
    fsdp_checkpoint_format,
    custom_fsdp_limits,
    fsdp_fused_accumulation,
    fsdp_two_distributed_optimizer,
    fsdp_two_limits,
    manual_registration,
)

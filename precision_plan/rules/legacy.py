"""PP388: models from before megatron-core."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core


@rule(
    "PP388",
    "legacy-models-limits",
    "error",
    stage="validate",
    source=(arguments(310), arguments(602), arguments(1022)),
    versions=core(None, "0.17"),
)
def legacy_models(ctx: Context) -> Iterator[Finding]:
    """Legacy models know neither today's checkpoints nor some kinds of parallelism.

    Why:
        ``--use-legacy-models`` selects the layers from before megatron-core. validate_args takes
        them with the ``torch`` checkpoint format only, which is not the default, and without
        overlapped parameter gathering or context parallelism. 0.18 dropped them.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, use_legacy_models: true, transformer_impl: local}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, use_legacy_models: true, transformer_impl: local}
        checkpoint: {ckpt_format: torch}
    """
    args = ctx.args
    if not args.use_legacy_models:
        return
    field = "training.use_legacy_models"
    parallel = ctx.plan.parallel
    conflicts = (
        (args.ckpt_format != "torch", "checkpoint.ckpt_format", "torch"),
        (args.overlap_param_gather, "parallel.overlap_param_gather", None),
        ((parallel.context_parallel_size or 1) > 1, "parallel.context_parallel_size", None),
    )
    for conflict, other, instead in conflicts:
        if conflict:
            yield ctx.found(
                f"{field} = true excludes {ctx.shown(other)}",
                field,
                other,
                fix=(set_to((field, None)), set_to((other, instead))),
            )


RULES: tuple[Rule, ...] = (legacy_models,)

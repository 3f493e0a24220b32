"""PP456 to PP459: arguments that a plan passes on without a field of their own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_absent import absent_flags
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to


@lru_cache(maxsize=1)
def _precision_flags() -> dict[str, MegatronFlag]:
    """Megatron's precision flags, by their spellings without dashes."""
    return {flag.lstrip("-"): row for row in megatron_flags() for flag in row.flags}


@rule(
    "PP456",
    "precision-flag-beside-the-plan",
    "error",
    stage="parse",
    source=("THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py:195",),
)
def beside_the_plan(ctx: Context) -> Iterator[Finding]:
    """A precision flag stands in launch.extra_args instead of its plan field.

    Why:
        extra_args are passed on unseen: no rule looks at them, and argparse keeps the last of
        two values without a message. Each of these flags has a field.

    Bad:
        training: {bf16: true}
        launch: {extra_args: {fp8-format: hybrid}}

    Good:
        training: {bf16: true, fp8_format: hybrid}
    """
    extra = ctx.plan.launch.extra_args
    if not extra:
        return
    flags = _precision_flags()
    for name, value in extra.items():
        row = flags.get(name.lstrip("-").replace("_", "-"))
        if row is not None:
            place, meant = f"launch.extra_args.{name}", value
            if row.action == "store_false":
                meant = value in {False, "false"}
            yield ctx.found(
                f"--{name.lstrip('-')} belongs to {row.field}",
                place,
                row.field,
                fix=(set_to((place, None), (row.field, meant)),),
            )


@rule(
    "PP457",
    "overrides-after-parsing",
    "advice",
    stage="run",
    source=(
        "vllm-project/vime@035f9834:vime/utils/arguments.py",
        "THUDM/slime@624b824a:slime/utils/arguments.py:1775",
    ),
    frameworks=RL_FRAMEWORKS,
)
def after_parsing(ctx: Context) -> Found:
    """A file may override any argument after the command line has been parsed.

    Why:
        The keys of --custom-config-path are set on the arguments one by one, and those of
        --megatron-config-path and --vllm-config per role or server group. What such a file
        changes (fp8, dtype, quantization, kv_cache_dtype) is out of sight here.

    Bad:
        software: {framework: vime}
        launch: {extra_args: {custom-config-path: my.yaml}}

    Good:
        software: {framework: vime}
        launch: {extra_args: {num-rollout: 100}}
    """
    extra = ctx.plan.launch.extra_args
    if not extra:
        return None
    for name in extra:
        if name.lstrip("-").replace("_", "-") in _OVERRIDE_FILES:
            return ctx.found(
                f"--{name.lstrip('-')} may override precision settings after parsing",
                f"launch.extra_args.{name}",
                Because(f"read by {ctx.target.framework} after the command line"),
                fix=(Fix("keep precision settings out of that file, in the recipe's sections"),),
            )
    return None


_OVERRIDE_FILES = ("custom-config-path", "megatron-config-path", "vllm-config", "sglang-config")


@rule(
    "PP459",
    "assumed-flag-does-not-exist",
    "error",
    stage="parse",
    source=("NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py",),
)
def assumed_flag(ctx: Context) -> Iterator[Finding]:
    """launch.extra_args has a precision flag that people assume and no parser knows.

    Why:
        Configuration fields of Megatron (tp_only_amax_red, store_param_remainders) have no
        flag, and some flags have another name than their field (--fp8 is --fp8-format).
        Megatron's own programs stop at such a flag; vime and slime drop it without a message.

    Bad:
        software: {framework: vime}
        training: {bf16: true}
        launch: {extra_args: {fp8: hybrid}}

    Good:
        software: {framework: vime}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise}
    """
    extra = ctx.plan.launch.extra_args
    if not extra or ctx.target.framework == "vllm":
        return
    for name in extra:
        flag = f"--{name.lstrip('-').replace('_', '-')}"
        row = absent_flags().get(flag)
        if row is None or flag in _NOT_PRECISION:
            continue
        place = f"launch.extra_args.{name}"
        instead = (Fix(f"use {row.use} instead", {place: None}),) if row.use else ()
        yield ctx.found(
            f"{flag} does not exist",
            place,
            Because(row.reason),
            fix=(*instead, set_to((place, None))),
        )


_NOT_PRECISION = frozenset(
    {"--config-path", "--model-path", "--max-new-tokens", "--quantization", "--dtype"}
)
"""Absent flags without a bearing on formats, and those of PP476."""


RULES: tuple[Rule, ...] = (
    beside_the_plan,
    after_parsing,
    assumed_flag,
)

"""PP673 and PP674: engine arguments without the framework's prefix, or of another release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from precision_plan.facts.frameworks import RL_FRAMEWORKS, engine_passthrough
from precision_plan.facts.megatron_parser import parser_of_any_version
from precision_plan.facts.sglang_flags import sglang_flags
from precision_plan.facts.vllm import engine_args
from precision_plan.facts.vllm_flags import flag_names, flag_spans
from precision_plan.plan import Because
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to

_VIME = "vllm-project/vime@0696c9bd:vime/backends/vllm_utils/arguments.py"
_SLIME = "THUDM/slime@624b824a:slime/backends/sglang_utils/arguments.py:51-69"


@rule(
    "PP673",
    "engine-flag-without-prefix",
    "error",
    stage="parse",
    source=(_VIME, _SLIME, "radixark/miles@31f1ca96:miles/utils/arguments.py:2676"),
    frameworks=RL_FRAMEWORKS,
)
def without_prefix(ctx: Context) -> Iterator[Finding]:
    """An argument of the engine lacks the framework's prefix.

    Why:
        vime, slime and miles take the engine's arguments as `--vllm-...` and `--sglang-...`. The
        bare flag is the engine's own spelling, which their parser does not have: vime and slime
        drop it without a message, miles stops.

    Bad:
        software: {framework: vime}
        launch: {extra_args: {kv-cache-dtype: fp8}}

    Good:
        software: {framework: vime}
        rollout: {kv_cache_dtype: fp8}
    """
    extra = ctx.plan.launch.extra_args
    passthrough = engine_passthrough(ctx.target.framework or "") if extra else None
    if passthrough is None:
        return
    for name, value in (extra or {}).items():
        flag = _flag(name)
        if flag not in _flags_of(passthrough.engine) or flag in parser_of_any_version():
            continue
        place = f"launch.extra_args.{name}"
        meant = f"{passthrough.prefix}{flag[2:]}"
        owned = flag[2:].replace("-", "_") in passthrough.dropped
        instead = (place, None), (f"launch.extra_args.{meant[2:]}", value)
        yield ctx.found(
            f"{passthrough.framework} has no {flag}",
            place,
            Because(f"arguments of the engine begin with {passthrough.prefix}"),
            fix=(set_to((place, None)),) if owned else (set_to(*instead),),
        )


@rule(
    "PP674",
    "engine-flag-of-another-release",
    "error",
    stage="parse",
    source=(_VIME, "vllm@0.33.0:vllm/engine/arg_utils.py"),
    frameworks=("vime",),
    needs=("vllm",),
)
def of_another_release(ctx: Context) -> Iterator[Finding]:
    """The declared vLLM does not have this argument, so that vime drops it.

    Why:
        vime registers the arguments of the vLLM that is installed. One that came later, or is gone,
        is unknown to its parser, which passes over it without a message.

    Bad:
        software: {framework: vime, vllm: 0.33.0}
        launch: {extra_args: {vllm-calculate-kv-scales: true}}

    Good:
        software: {framework: vime, vllm: 0.22.1}
        launch: {extra_args: {vllm-calculate-kv-scales: true}}
    """
    have = ctx.target.package("vllm")
    for name in ctx.plan.launch.extra_args or {}:
        written = _flag(name)
        flag = f"--{written.removeprefix('--vllm-')}"
        if written == flag or have is None or flag not in flag_spans():
            continue
        if flag in flag_names(str(have)):
            continue
        place = f"launch.extra_args.{name}"
        spans = " and ".join(str(span.versions) for span in flag_spans()[flag])
        yield ctx.found(
            f"{written} is dropped: vLLM {have} has no {flag}",
            place,
            Because(f"vLLM has it in {spans}"),
            "software.vllm",
            fix=(set_to((place, None)),),
        )


def _flag(name: str) -> str:
    return f"--{name.lstrip('-').replace('_', '-')}"


@lru_cache(maxsize=2)
def _flags_of(engine: str) -> frozenset[str]:
    """Flags of precision and layout of an engine; a trainer's parser may have some of them, too."""
    own = frozenset(row.flag for row in engine_args().values())
    return own if engine == "vllm" else own & sglang_flags().keys()


RULES: tuple[Rule, ...] = (without_prefix, of_another_release)

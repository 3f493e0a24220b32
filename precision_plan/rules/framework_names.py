"""PP665 to PP667: names in a launch that belong to another framework, or to nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS, engine_passthrough
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to

_MODULE = re.compile(rf"({'|'.join(RL_FRAMEWORKS)})(_plugins)?\.\w")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from (each for each in value if isinstance(each, str))


@rule(
    "PP665",
    "module-of-another-framework",
    "warning",
    stage="run",
    source=(
        "vllm-project/vime@45d26df9:scripts/low_precision/run-moonlight-16B-A3B-int4.sh",
        "THUDM/slime@582d0e8f:slime/utils/misc.py:8-16",
    ),
    frameworks=RL_FRAMEWORKS,
)
def module(ctx: Context) -> Iterator[Finding]:
    """An argument names a Python module of another framework.

    Why:
        vime and miles began as copies of slime, and scripts were carried over with their module
        paths: ``--dynamic-sampling-filter-path slime.rollout...`` in vime imports a package that
        is not there, when the first rollout is asked for.

    Bad:
        software: {framework: vime}
        launch:
          extra_args:
            dynamic-sampling-filter-path:
              slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std

    Good:
        software: {framework: vime}
        launch:
          extra_args:
            dynamic-sampling-filter-path:
              vime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std
    """
    framework = ctx.target.framework or ""
    for name, value in (ctx.plan.launch.extra_args or {}).items():
        for text in _texts(value):
            found = _MODULE.match(text)
            if found is None or found[1] == framework:
                continue
            place = f"launch.extra_args.{name}"
            own = f"{framework}{text[len(found[1]) :]}"
            yield ctx.found(
                f"{text} is a module of {found[1]}",
                place,
                "software.framework",
                fix=(Fix(f"use {own}", {place: own} if isinstance(value, str) else {}),),
            )


@rule(
    "PP666",
    "entry-of-another-framework",
    "warning",
    stage="run",
    source=("vllm-project/vime@45d26df9:scripts/low_precision/run-kimi-k2-Thinking-int4.sh",),
    frameworks=RL_FRAMEWORKS,
)
def entry(ctx: Context) -> Found:
    """The file that is started lies in a folder of another framework.

    Why:
        Where several of these frameworks are checked out side by side, a script that was carried
        over starts the old one: the arguments are nearly the same, and flags that only the
        intended framework knows are dropped.

    Bad:
        software: {framework: vime}
        launch: {entrypoint: /root/slime/train.py}

    Good:
        software: {framework: vime}
        launch: {entrypoint: /root/vime/train.py}
    """
    path = ctx.plan.launch.entrypoint
    folders = (path or "").split("/")[:-1]
    others = [name for name in RL_FRAMEWORKS if name in folders and name != ctx.target.framework]
    if not others or ctx.target.framework in folders:
        return None
    return ctx.found(
        f"{path} lies in a folder of {others[0]}",
        "launch.entrypoint",
        "software.framework",
        fix=(set_to(("software.framework", others[0])), Fix("start the file of the framework")),
    )


_OWN = frozenset({"config"})
"""An engine argument's name that the frameworks give to an argument of their own."""


@rule(
    "PP667",
    "engine-argument-not-registered",
    "warning",
    stage="run",
    source=(
        "vllm-project/vime@0696c9bd:vime/backends/vllm_utils/arguments.py",
        "THUDM/slime@624b824a:slime/backends/sglang_utils/arguments.py:51-69",
    ),
    frameworks=("vime", "slime"),
)
def not_registered(ctx: Context) -> Iterator[Finding]:
    """An argument of the engine is one that the framework leaves out; it is dropped.

    Why:
        vime and slime register the engine's arguments with a prefix, except those that they decide
        themselves: seed, ports, ranks, host, tokenizer. With the prefix such an argument looks
        like any other, is not known to any parser, and nobody says so.

    Bad:
        software: {framework: vime}
        launch: {extra_args: {vllm-seed: 7}}

    Good:
        software: {framework: vime}
        launch: {extra_args: {vllm-max-num-seqs: 64}}
    """
    extra = ctx.plan.launch.extra_args
    passthrough = engine_passthrough(ctx.target.framework or "") if extra else None
    if passthrough is None:
        return
    prefix = passthrough.prefix.lstrip("-").replace("-", "_")
    for name in extra or {}:
        dest = name.lstrip("-").replace("-", "_")
        argument = dest.removeprefix(prefix)
        if dest == argument or argument in _OWN or argument not in passthrough.dropped:
            continue
        place = f"launch.extra_args.{name}"
        yield ctx.found(
            f"--{dest.replace('_', '-')} is dropped: {passthrough.framework} does not register it",
            place,
            Because(f"{passthrough.framework} decides this argument of the engine itself"),
            fix=(set_to((place, None)),),
        )


RULES: tuple[Rule, ...] = (module, entry, not_registered)

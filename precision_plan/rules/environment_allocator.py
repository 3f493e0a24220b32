"""PP610 to PP612: what the environment tells torch's CUDA allocator."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.allocator import ALLOC_CONF, refused_option
from precision_plan.facts.frameworks import framework_env
from precision_plan.facts.versions import VersionRange
from precision_plan.plan import Because
from precision_plan.plan.unknown import is_reference
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.environment import declared

_CUDA, _ANY = ALLOC_CONF[:2]
_CONFIG = "torch@2.13.0:torch/include/c10/cuda/CUDAAllocatorConfig.h:133-150"
_SEGMENTS = "expandable_segments:True"


@rule(
    "PP610",
    "allocator-configured-twice",
    "warning",
    stage="run",
    source=(_CONFIG,),
)
def configured_twice(ctx: Context) -> Iterator[Finding]:
    """PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF say different things to one process.

    Why:
        Both configure torch's CUDA allocator. torch up to 2.9 reads the first alone; from 2.10
        on it reads the second only if the first is not set. The two are not merged: the options
        of PYTORCH_ALLOC_CONF are dropped without a word.

    Bad:
        env:
          all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}
          train_actor: {PYTORCH_ALLOC_CONF: "max_split_size_mb:512"}

    Good:
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True,max_split_size_mb:512"}}
    """
    told = set()
    for env in (ctx.train_env, ctx.rollout_env):
        if _CUDA not in env or _ANY not in env:
            continue
        (first, winner), (second, loser) = env[_CUDA], env[_ANY]
        if loser in told or first == second:
            continue
        told.add(loser)
        yield ctx.found(
            f"{_ANY}={second} has no effect: {_CUDA} is set, too",
            loser,
            winner,
            fix=(set_to((loser, None)), set_to((winner, None))),
        )


@rule(
    "PP611",
    "sleep-mode-with-expandable-segments",
    "error",
    stage="worker",
    source=(
        "vllm@0.19.1:vllm/device_allocator/cumem.py:131-137",
        "vllm@0.20.2:vllm/device_allocator/cumem.py:266-268",
        "vllm-project/vllm#40812",
    ),
    versions={"vllm": VersionRange(None, "0.19")},
)
def sleep_mode(ctx: Context) -> Found:
    """Up to vLLM 0.19 sleep mode refuses expandable segments of torch's allocator.

    Why:
        Sleep mode allocates from a memory pool of its own, which expandable segments cannot
        back; vLLM asserts it when the worker starts. From 0.20 on vLLM turns the option off
        around its pool. vime and slime take the variable out of the engine's environment.

    Bad:
        software: {framework: vllm, vllm: 0.19.1}
        rollout: {enable_sleep_mode: true}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}

    Good:
        software: {framework: vllm, vllm: 0.23.0}
        rollout: {enable_sleep_mode: true}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}
    """
    if not ctx.plan.rollout.enable_sleep_mode:
        return None
    found = ctx.rollout_env.get(_CUDA)
    if found is None or _SEGMENTS not in found[0]:
        return None
    if any(
        row.name == _CUDA and row.how == "removed"
        for row in framework_env(ctx.target.framework or "")
    ):
        return None
    return ctx.found(
        f"{_CUDA}={found[0]} excludes rollout.enable_sleep_mode",
        found[1],
        "rollout.enable_sleep_mode",
        "software.vllm",
        fix=(set_to((found[1], None)), set_to(("rollout.enable_sleep_mode", None))),
    )


@rule(
    "PP612",
    "allocator-option-refused",
    "error",
    stage="run",
    source=(
        "torch@2.13.0:torch/include/c10/core/AllocatorConfig.h:30-125",
        "pytorch/pytorch@065861fba7:c10/core/AllocatorConfig.cpp",
    ),
)
def option_refused(ctx: Context) -> Iterator[Finding]:
    """torch's allocator refuses its configuration: an option without a colon, or a wrong value.

    Why:
        The text is a list of ``option:value``. Switches are ``True`` or ``False`` with a
        capital letter; ``true`` and ``1`` raise ValueError, and so does ``option=value``, when
        the process touches the allocator for the first time.

    Bad:
        env: {train_actor: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:true"}}

    Good:
        env: {train_actor: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}
    """
    for scope, name, value in declared(ctx):
        if name not in ALLOC_CONF or is_reference(value):
            continue
        why = refused_option(value)
        if why is None:
            continue
        place = f"env.{scope}.{name}"
        meant = value.replace("=", ":").replace(":true", ":True").replace(":false", ":False")
        better = (set_to((place, meant)),) if refused_option(meant) is None else ()
        yield ctx.found(
            f"{name} = {value!r}: {why}",
            place,
            Because("read by torch when the process starts to allocate"),
            fix=(*better, set_to((place, None))),
        )


RULES: tuple[Rule, ...] = (configured_twice, sleep_mode, option_refused)

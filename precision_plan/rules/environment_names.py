"""PP603: names of environment variables that nothing reads, and that differ little from one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache

from precision_plan.facts.env_names import env_name, listed_names
from precision_plan.facts.env_readers import env_readers
from precision_plan.facts.env_vars import dead_names, env_var, env_vars
from precision_plan.facts.vllm_env_names import vllm_env_names
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.environment import declared

_CLOSED = ("NVTE_", "OPEN_TRAINING_", "VLLM_", "DSA_KV_")
"""Families whose names are all known: a name of theirs that is not listed has no reader."""
_OPEN = (
    *("NCCL_", "CUDA_", "RAY_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_"),
    *("SGLANG_", "FLASHINFER_", "HF_", "PYTHON"),
)
"""Families of which the names of the releases that were read are known."""


@rule(
    "PP603",
    "variable-name-misspelt",
    "warning",
    stage="run",
    source=("vllm@0.33.0:vllm/platforms/interface.py:1457-1470", "gpustack/gpustack#5556"),
)
def misspelt(ctx: Context) -> Iterator[Finding]:
    """A variable has a name that nothing reads, and a known one differs by a letter or two.

    Why:
        Nobody rejects an unknown variable: Transformer Engine, NCCL, torch, Ray and the
        frameworks never notice, vLLM logs a line among many. Names that Kubernetes injects for
        services (``VLLM_X_SERVICE_HOST``, ``VLLM_X_PORT_80_TCP``), names that differ from a
        known one by a number, and names that resemble nothing are left alone.

    Bad:
        env: {all: {NVTE_FP8_BLOCK_SCALING_FP32_SCALE: "1"}}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        env: {all: {NVTE_FP8_BLOCK_SCALING_FP32_SCALES: "1"}}
    """
    for scope, name, value in declared(ctx, "shell"):
        if not name.startswith((*_CLOSED, *_OPEN)) or value.startswith("tcp://"):
            continue
        if _is_known(name):
            continue
        close = _closest(name)
        if close is not None:
            yield ctx.found(
                f"nothing reads {name}; did you mean {close}?",
                f"env.{scope}.{name}",
                fix=(set_to((f"env.{scope}.{close}", value), (f"env.{scope}.{name}", None)),),
            )


def _is_known(name: str) -> bool:
    return (
        env_var(name) is not None
        or name in dead_names()
        or (name.startswith("VLLM_") and name in vllm_env_names())
        or bool(env_readers(name))
        or env_name(name) is not None
    )


_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
"""What Kubernetes adds to a process for each service."""


@lru_cache(maxsize=1024)
def _closest(name: str) -> str | None:
    """The listed name that was meant, if there can be little doubt."""
    if _SERVICE.search(name):
        return None
    names = {*env_vars(), *vllm_env_names(), *listed_names()}
    close = get_close_matches(name, sorted(names), n=1, cutoff=0.9)
    if not close:
        return None
    if not name.startswith(_CLOSED):
        number = re.sub(r"\d+", "0", name) == re.sub(r"\d+", "0", close[0])
        if number or _distance(name, close[0]) > _SLIPS:
            return None
    return close[0]


_SLIPS = 2


def _distance(one: str, other: str) -> int:
    """How many letters must be changed, added, dropped or swapped with their neighbour."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, against in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != against))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == against:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


RULES: tuple[Rule, ...] = (misspelt,)

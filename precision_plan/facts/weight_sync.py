"""What the RL frameworks' weight update sends to the rollout engine, by checkpoint method.

The frameworks decide by ``quant_method`` (and ``quant_algo``) of the rollout checkpoint's
``quantization_config`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.te_modules import ModuleKind
from precision_plan.facts.versions import VersionRange


class SyncQuantizer(NamedTuple):
    """One branch of a framework's dispatch.

    ``quant_method`` ``None`` is the branch for every other method, ``quant_algo`` ``None`` any
    algorithm. ``emits`` is what leaves the trainer; ``nothing`` means that the update fails.
    """

    framework: str
    quant_method: str | None
    quant_algo: str | None
    emits: Literal["fp8", "int4", "mxfp8", "nvfp4", "bf16", "nothing"]
    source: str
    note: str | None = None


@lru_cache(maxsize=1)
def sync_quantizers() -> Mapping[str, tuple[SyncQuantizer, ...]]:
    """The branches of each framework, the one for every other method last."""
    rows: dict[str, list[SyncQuantizer]] = {}
    for row in table("weight_sync"):
        rows.setdefault(row["framework"], []).append(record(SyncQuantizer, row))
    return MappingProxyType({name: tuple(branches) for name, branches in rows.items()})


@lru_cache(maxsize=256)
def sync_quantizer(
    framework: str, quant_method: str, quant_algo: str | None
) -> SyncQuantizer | None:
    """The branch that a checkpoint's method takes; ``None`` for an unknown framework."""
    for branch in sync_quantizers().get(framework, ()):
        if branch.quant_method in {None, quant_method} and branch.quant_algo in {None, quant_algo}:
            return branch
    return None


class SyncModules(NamedTuple):
    """Modules of decoder and MTP layers that the weight update sends in one format.

    ``kinds`` are those of :mod:`precision_plan.facts.te_modules`. ``extra_high_precision`` tells
    whether the names in ``--extra-high-precision-layers-megatron`` are left out.
    """

    emits: str
    frameworks: tuple[str, ...]
    kinds: tuple[ModuleKind, ...]
    extra_high_precision: bool
    source: str


@lru_cache(maxsize=64)
def sync_modules(framework: str, emits: str) -> SyncModules | None:
    """What ``framework`` sends in the format ``emits``; ``None`` if it sends nothing in it."""
    for row in table("sync_modules"):
        if row["emits"] == emits and framework in row["frameworks"]:
            return record(SyncModules, row)
    return None


class EngineUpdate(NamedTuple):
    """One ability that vLLM needs for updates of a running model, and the releases that have it."""

    what: str
    meaning: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=8)
def engine_update(what: str) -> EngineUpdate:
    """The row of one ability.

    Raises:
        KeyError: if there is no such row.
    """
    for row in table("engine_updates"):
        if row["what"] == what:
            return record(EngineUpdate, row)
    raise KeyError(what)

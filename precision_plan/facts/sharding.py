"""How vLLM cuts a checkpoint's layers over ranks, and which cuts through scales it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table

LayerCut = Literal["query", "key", "value", "first", "second", "inputs", "outputs", "none"]
ScaleCut = Literal["inputs", "outputs", "merged", "experts"]


class ShardedLayer(NamedTuple):
    """Which side of a layer each rank holds a part of, by the last part of the layer's name.

    ``query``, ``key`` and ``value`` are merged by heads, ``first`` and ``second``
    are two merged outputs.
    ``parents`` limits the row to layers of a module of that name.
    """

    name: str
    cut: LayerCut
    source: str
    parents: tuple[str, ...] = ()


class ShardedScale(NamedTuple):
    """A weight format whose scales must not be cut there.

    ``alone`` is set if one rank by itself is refused too; since ``refined_since`` blocks that
    come out uneven are split into smaller ones.
    """

    format: str
    where: ScaleCut
    source: str
    alone: bool = False
    refined_since: str | None = None


@lru_cache(maxsize=1)
def sharded_layers() -> Mapping[str, ShardedLayer]:
    """Rows by name."""
    rows = (record(ShardedLayer, row) for row in table("sharded_layers"))
    return MappingProxyType({row.name: row for row in rows})


@lru_cache(maxsize=1)
def sharded_scales() -> Mapping[tuple[str, ScaleCut], ShardedScale]:
    """Rows by format and place."""
    rows = (record(ShardedScale, row) for row in table("sharded_scales"))
    return MappingProxyType({(row.format, row.where): row for row in rows})

"""vLLM's choice of an attention backend: what each one takes, and in which order they are tried.

The tables are those of 0.33.0, read off the real checks for every capability in them; a capability
between two of them behaves like the lower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import table
from precision_plan.facts.gpus import parse_capability

Capability = tuple[int, int]
Attention = Literal["dense", "mla", "mm_prefix"]


class Heads(NamedTuple):
    """Head sizes that a backend takes: ``only`` some, or multiples up to ``most``."""

    only: tuple[int, ...] = ()
    multiple_of: int = 1
    most: int | None = None

    def __contains__(self, size: object) -> bool:
        if not isinstance(size, int):
            return False
        if self.only:
            return size in self.only
        return size % self.multiple_of == 0 and (self.most is None or size <= self.most)


class Selectable(NamedTuple):
    """One backend on a range of compute capabilities; outside of its rows it does not run.

    ``classname`` is what the engine reports. ``kv_not_heads`` names head sizes that a KV cache
    dtype is refused with; ``block`` divides the block sizes it takes.
    """

    name: str
    classname: str
    mla: bool
    sparse: bool
    min_cc: Capability | None
    below_cc: Capability | None
    heads: Heads
    dtypes: tuple[str, ...]
    kv: frozenset[str]
    kv_not_heads: Mapping[str, tuple[int, ...]]
    block: int
    sinks: bool
    mm_prefix: bool
    batch_invariant: bool
    sliding_window: bool
    source: str


class Layer(NamedTuple):
    """What the selection asks of a backend for one kind of attention layer."""

    head_size: int
    dtype: str
    kv_cache_dtype: str
    mla: bool
    block_size: int | None = None
    batch_invariant: bool = False
    sparse: bool = False
    sinks: bool = False


@lru_cache(maxsize=1)
def every_selectable() -> tuple[Selectable, ...]:
    """Every backend on every range of capabilities where it runs."""
    return tuple(_row(row) for row in table("vllm_selection"))


def _row(row: Mapping[str, Any]) -> Selectable:
    heads = dict(row.get("heads", {}))
    if "only" in heads:
        heads["only"] = tuple(heads["only"])
    exceptions = {kv: tuple(sizes) for kv, sizes in row.get("kv_not_heads", {}).items()}
    return Selectable(
        name=row["name"],
        classname=row["class"],
        mla=row.get("mla", False),
        sparse=row.get("sparse", False),
        min_cc=_capability(row["min_cc"]),
        below_cc=_capability(row["below_cc"]),
        heads=Heads(**heads),
        dtypes=tuple(row["dtypes"]),
        kv=frozenset(row["kv"]),
        kv_not_heads=MappingProxyType(exceptions),
        block=row["block"],
        sinks=row.get("sinks", False),
        mm_prefix=row.get("mm_prefix", False),
        batch_invariant=row.get("batch_invariant", False),
        sliding_window=not row.get("no_sliding_window", False),
        source=row["source"],
    )


def _capability(text: str | None) -> Capability | None:
    return None if text is None else parse_capability(text)


def _covers(least: Capability | None, below: Capability | None, found: Capability) -> bool:
    return (least is None or found >= least) and (below is None or found < below)


@lru_cache(maxsize=1)
def backend_names() -> frozenset[str]:
    """Every name that ``--attention-backend`` takes, on whatever platform it runs."""
    return frozenset(row["name"] for row in table("vllm_attention_names"))


@lru_cache(maxsize=512)
def selectable(name: str, capability: Capability) -> Selectable | None:
    """One backend on one capability; ``None`` where it does not run."""
    for row in every_selectable():
        if row.name == name and _covers(row.min_cc, row.below_cc, capability):
            return row
    return None


@lru_cache(maxsize=64)
def selection_order(attention: Attention, capability: Capability) -> tuple[str, ...]:
    """Names in the order in which vLLM tries them where none is asked for."""
    for row in table("vllm_selection_order"):
        span = _capability(row["min_cc"]), _capability(row["below_cc"])
        if row["kind"] == attention and _covers(*span, capability):
            return tuple(row["names"])
    return ()


@lru_cache(maxsize=4096)
def refusals(name: str, capability: Capability, layer: Layer) -> tuple[str, ...]:
    """Why a backend cannot serve a layer; empty if it can."""
    row = selectable(name, capability)
    if row is None:
        return (f"it does not run on compute capability {capability[0]}.{capability[1]}",)
    found = []
    if layer.head_size not in row.heads:
        found.append(f"it has no head size {layer.head_size}")
    if layer.dtype not in row.dtypes:
        found.append(f"it does not compute in {layer.dtype}")
    if layer.kv_cache_dtype not in row.kv:
        found.append(f"it takes no KV cache in {layer.kv_cache_dtype} there")
    elif layer.head_size in row.kv_not_heads.get(layer.kv_cache_dtype, ()):
        found.append(f"no KV cache in {layer.kv_cache_dtype} with head size {layer.head_size}")
    if layer.block_size is not None and layer.block_size % row.block:
        found.append(f"its block size is a multiple of {row.block}")
    if layer.mla != row.mla:
        found.append("it is for latent attention" if row.mla else "it has no latent attention")
    if layer.sparse != row.sparse:
        found.append("it is for sparse attention" if row.sparse else "it is not sparse")
    if layer.sinks and not row.sinks:
        found.append("it has no attention sinks")
    if layer.batch_invariant and not row.batch_invariant:
        found.append("it is not batch invariant")
    return tuple(found)


@lru_cache(maxsize=4096)
def select(capability: Capability, layer: Layer) -> str | None:
    """Name of the backend that vLLM takes; ``None`` if none serves the layer."""
    for name in selection_order("mla" if layer.mla else "dense", capability):
        if not refusals(name, capability, layer):
            return name
    return None

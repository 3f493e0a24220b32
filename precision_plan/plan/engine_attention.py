"""The attention backend that vLLM ends with, or why it has none."""

from __future__ import annotations

from typing import NamedTuple

from precision_plan.facts.vllm_selection import (
    Capability,
    Layer,
    backend_names,
    refusals,
    select,
    selectable,
    selection_order,
)


class AttentionChoice(NamedTuple):
    """The class of the chosen backend, or the problem; ``unknown`` if there is no such name."""

    classname: str | None
    problem: str | None = None
    unknown: bool = False


def choose_attention(
    asked: str | None,
    capability: Capability | None,
    *,
    head_size: int | None,
    dtype: str | None,
    kv_cache_dtype: str,
    mla: bool,
    block_size: int | None,
    batch_invariant: bool,
) -> AttentionChoice | None:
    """Select as vLLM does; ``None`` if something that decides is not known.

    Source: vllm@0.33.0:vllm/platforms/cuda.py:420-520.
    """
    name = None if asked is None or asked.lower() == "auto" else asked.upper()
    if name is not None and name not in backend_names():
        return AttentionChoice(None, f"vLLM has no attention backend {asked}", unknown=True)
    if capability is None or head_size is None or dtype is None:
        return None
    layer = Layer(head_size, dtype, kv_cache_dtype, mla, block_size, batch_invariant)
    where = f"{capability[0]}.{capability[1]}"
    if name is not None:
        why = refusals(name, capability, layer)
        if why:
            return AttentionChoice(None, f"{name} cannot serve this on {where}: {'; '.join(why)}")
    else:
        name = select(capability, layer)
    if name is None:
        tried = selection_order("mla" if mla else "dense", capability)
        return AttentionChoice(
            None,
            f"no attention backend takes head size {head_size}, {dtype} and a KV cache in "
            f"{kv_cache_dtype} on {where} (tried {', '.join(tried)})",
        )
    row = selectable(name, capability)
    return None if row is None else AttentionChoice(row.classname)

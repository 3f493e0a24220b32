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
    """The class of the chosen backend, or the problem.

    ``unknown`` if there is no such name; ``later`` if only building the layers brings it up.
    """

    classname: str | None
    problem: str | None = None
    unknown: bool = False
    later: bool = False
    name: str | None = None


def choose_attention(
    asked: str | None, capability: Capability | None, layer: Layer | None
) -> AttentionChoice | None:
    """Select as vLLM does; ``None`` if something that decides is not known.

    Source: vllm@0.33.0:vllm/platforms/cuda.py:420-520.
    """
    name = None if asked is None or asked.lower() == "auto" else asked.upper()
    if name is not None and name not in backend_names():
        return AttentionChoice(None, f"vLLM has no attention backend {asked}", unknown=True)
    if capability is None or layer is None:
        return None
    where = f"{capability[0]}.{capability[1]}"
    if name is not None:
        why = refusals(name, capability, layer)
        if why:
            return AttentionChoice(None, f"{name} cannot serve this on {where}: {'; '.join(why)}")
    else:
        name = select(capability, layer)
    if name is None:
        tried = selection_order("mla" if layer.mla else "dense", capability)
        return AttentionChoice(
            None,
            f"no attention backend takes head size {layer.head_size}, {layer.dtype} and a KV cache "
            f"in {layer.kv_cache_dtype} on {where} (tried {', '.join(tried)})",
        )
    row = selectable(name, capability)
    return None if row is None else AttentionChoice(row.classname, name=name)

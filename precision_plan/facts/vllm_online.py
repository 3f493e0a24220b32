"""Names that ``--quantization-config`` takes for online quantization (vLLM 0.33.0)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from precision_plan.facts._load import table

Layers = Literal["linear", "moe"]


@lru_cache(maxsize=1)
def online_shorthands() -> frozenset[str]:
    """Shorthands, which ``--quantization`` takes, too."""
    return frozenset(
        row["name"] for row in table("vllm_online_names") if row["kind"] == "shorthand"
    )


@lru_cache(maxsize=2)
def online_specs(layers: Layers) -> frozenset[str]:
    """Texts that ``linear`` or ``moe`` may hold: shorthands that speak of it, and weight keys."""
    return frozenset(
        row["name"]
        for row in table("vllm_online_names")
        if (row["kind"] == "key" and row["name"] not in online_shorthands()) or row.get(layers)
    )


@lru_cache(maxsize=1)
def online_keys() -> frozenset[str]:
    """Names of single weight or activation formats."""
    return frozenset(row["name"] for row in table("vllm_online_names") if row["kind"] == "key")

"""The safetensors container: element types and limits of its header."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from precision_plan.facts._load import table


@lru_cache(maxsize=1)
def dtype_bits() -> Mapping[str, int]:
    """Bits of one element of every dtype that a header may name."""
    return MappingProxyType({row["name"]: row["bits"] for row in table("safetensors_dtypes")})


@lru_cache(maxsize=1)
def header_limits() -> Mapping[str, int]:
    """``length_bytes``: size of the length in front; ``header_bytes``: the longest header."""
    return MappingProxyType({row["name"]: row["value"] for row in table("safetensors_limits")})

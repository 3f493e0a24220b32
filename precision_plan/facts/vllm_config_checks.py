"""What vLLM's quantization config classes demand of a checkpoint's config, by method (0.33.0)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table


class ConfigCheck(NamedTuple):
    """One method: keys without which its config is refused (one of each group will do).

    ``files`` are those that a checkpoint without ``quantization_config`` must hold.
    """

    method: str
    required: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]
    source: str


@lru_cache(maxsize=1)
def config_checks() -> Mapping[str, ConfigCheck]:
    """Every check by the method that vLLM reports."""
    rows = (record(ConfigCheck, row) for row in table("vllm_config_checks"))
    return MappingProxyType({row.method: row for row in rows})

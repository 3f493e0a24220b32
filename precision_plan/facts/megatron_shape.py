"""Megatron-LM flags that decide no number format: architecture, parallel sizes, batch, rates.

They are kept apart from the precision flags because no silent override resolves them; a command
line needs both (:func:`command_line_at`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from precision_plan.facts._load import table
from precision_plan.facts.megatron import MegatronFlag, flag_from_row, flags_at


@lru_cache(maxsize=1)
def shape_flags() -> tuple[MegatronFlag, ...]:
    """Every shape flag, in the order of the plan's fields."""
    return tuple(flag_from_row(row) for row in table("megatron_shape_flags"))


@lru_cache(maxsize=1)
def shape_fields() -> frozenset[str]:
    """The plan fields that hold a shape flag."""
    return frozenset(flag.field for flag in shape_flags())


@lru_cache(maxsize=32)
def command_line_at(megatron_core: str) -> Mapping[str, MegatronFlag]:
    """Every flag that a plan field has at one version, by that field (``section.name``)."""
    flags = [*flags_at(megatron_core).values()]
    flags += [flag.at(megatron_core) for flag in shape_flags() if megatron_core in flag.versions]
    return MappingProxyType({flag.field: flag for flag in flags})


@lru_cache(maxsize=1)
def megadlm_command_line() -> Mapping[str, MegatronFlag]:
    """The flags of MegaDLM's parser (a fork of Megatron-LM 0.10) by plan field."""
    flags = (flag_from_row(row) for row in table("megadlm_flags"))
    return MappingProxyType({flag.field: flag for flag in flags})

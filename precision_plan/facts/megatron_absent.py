"""Flags that people pass to Megatron-LM and that its parser does not have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table


class AbsentFlag(NamedTuple):
    """A flag that does not exist in any known version.

    ``use`` is what to write instead, ``None`` if the thing cannot be set on a command line.
    """

    flags: tuple[str, ...]
    use: str | None
    reason: str
    source: str


@lru_cache(maxsize=1)
def absent_flags() -> Mapping[str, AbsentFlag]:
    """Every assumed flag by spelling."""
    rows = (record(AbsentFlag, row) for row in table("megatron_absent_flags"))
    return MappingProxyType({flag: row for row in rows for flag in row.flags})

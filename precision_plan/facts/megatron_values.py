"""Values of flags for which Megatron's parser lists no choices, but later code does."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange


class ListedValue(NamedTuple):
    """One accepted value of ``flag``; ``stage`` is where another one is refused."""

    flag: str
    value: str
    stage: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=1)
def _rows() -> tuple[ListedValue, ...]:
    return tuple(record(ListedValue, row) for row in table("megatron_listed_values"))


@lru_cache(maxsize=256)
def listed_values(flag: str, megatron_core: str, stage: str | None = None) -> tuple[str, ...]:
    """What ``flag`` (``--recompute-modules``) takes at one version; empty if nothing is listed.

    ``stage`` limits the answer to values that are checked there.
    """
    return tuple(
        row.value
        for row in _rows()
        if row.flag == flag and megatron_core in row.versions and stage in (None, row.stage)
    )

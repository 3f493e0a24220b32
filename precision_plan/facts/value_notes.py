"""Values that documents promise or people try and the plan refuses: why, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from precision_plan.facts._load import table


@dataclass(frozen=True, slots=True)
class ValueNote:
    """Why ``field`` does not take ``value``, what to write instead, and who says so."""

    field: str
    value: str
    why: str
    fix: tuple[str, ...]
    source: tuple[str, ...]


@lru_cache(maxsize=1)
def value_notes() -> Mapping[tuple[str, str], ValueNote]:
    """Every note by ``(field, value)``."""
    return MappingProxyType(
        {
            (row["field"], row["value"]): ValueNote(
                row["field"], row["value"], row["why"], tuple(row["fix"]), tuple(row["source"])
            )
            for row in table("value_notes")
        }
    )

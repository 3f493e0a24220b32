"""Values that documents promise or people try and the plan refuses: why, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import table


class ValueNote(NamedTuple):
    """Why ``field`` does not take ``value``, and who says so.

    ``fix`` holds the ways out: a text, and what to set (plan field to value).
    """

    field: str
    value: str
    why: str
    fix: tuple[tuple[str, Mapping[str, Any]], ...]
    source: tuple[str, ...]


@lru_cache(maxsize=1)
def value_notes() -> Mapping[tuple[str, str], ValueNote]:
    """Every note by ``(field, value)``."""
    notes = (
        ValueNote(
            row["field"],
            row["value"],
            row["why"],
            tuple((fix["text"], fix["edits"]) for fix in row["fix"]),
            tuple(row["source"]),
        )
        for row in table("value_notes")
    )
    return MappingProxyType({(note.field, note.value): note for note in notes})

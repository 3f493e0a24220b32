"""Which keys of a Hugging Face ``config.json`` hold which architecture fact."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table

KeyKind = Literal["positive", "count", "number", "text", "flag", "dtype"]


class ConfigKeys(NamedTuple):
    """One plan field of ``model`` and the keys that hold it, in the order they are looked up.

    ``kind`` is what a value must be to count: ``positive`` and ``count`` are whole numbers from
    one and from nought.
    """

    field: str
    keys: tuple[str, ...]
    kind: KeyKind
    source: str


@lru_cache(maxsize=1)
def config_keys() -> tuple[ConfigKeys, ...]:
    """Every fact that stands under one key."""
    return tuple(record(ConfigKeys, row) for row in table("hf_config_keys"))

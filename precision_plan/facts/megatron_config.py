"""Fields of Megatron's configuration dataclasses that concern precision and have no flag.

Fields with a flag are named by the flag (``MegatronFlag.feeds``); these are the others, so that
a field which is in neither place is known to be new.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange


class ConfigField(NamedTuple):
    """One field of one dataclass; ``set_by`` tells what gives it its value."""

    config: str
    name: str
    set_by: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=1)
def fields_without_flag() -> tuple[ConfigField, ...]:
    """Every such field, class by class."""
    return tuple(record(ConfigField, row) for row in table("megatron_config_fields"))

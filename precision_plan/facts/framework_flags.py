"""Arguments of slime's and miles' own parsers that a plan has no field for.

They are here so that a command line can be split; vime's list was not read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import record, table


class OtherFlag(NamedTuple):
    """One argument: its spellings and what it takes (``action`` and ``nargs`` are argparse's)."""

    flags: tuple[str, ...]
    action: str
    frameworks: tuple[str, ...]
    source: str
    type: str | None = None
    nargs: str | int | None = None
    choices: tuple[str, ...] | None = None


@lru_cache(maxsize=4)
def other_framework_flags(framework: str) -> tuple[OtherFlag, ...]:
    """The arguments of one framework."""
    rows = (record(OtherFlag, row) for row in table("framework_other_flags"))
    return tuple(row for row in rows if framework in row.frameworks)

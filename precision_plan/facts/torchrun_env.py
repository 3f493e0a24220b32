"""What torchrun sets for the processes that it starts and nobody sets where Ray starts them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import table


class ProcessDefault(NamedTuple):
    """A variable, its value for each process, why it is needed, and who says so."""

    name: str
    value: str
    why: str
    source: str


@lru_cache(maxsize=1)
def process_defaults() -> tuple[ProcessDefault, ...]:
    """Every default, in the order of the table."""
    return tuple(ProcessDefault(**row) for row in table("torchrun_env"))

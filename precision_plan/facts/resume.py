"""What becomes of a checkpoint's state when a run resumes it in other number formats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table


class ResumeEffect(NamedTuple):
    """What happens on loading; ``loses``: state that the run needs is not there afterwards."""

    name: str
    effect: str
    source: str
    loses: bool = False


@lru_cache(maxsize=1)
def resume_effects() -> Mapping[str, ResumeEffect]:
    """Every effect by name."""
    rows = (record(ResumeEffect, row) for row in table("resume"))
    return MappingProxyType({row.name: row for row in rows})

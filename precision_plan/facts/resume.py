"""What becomes of a checkpoint's state when a run resumes it in other number formats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import EVERY_VERSION, VersionRange


class ResumeEffect(NamedTuple):
    """What happens on loading; ``loses``: state that the run needs is not there afterwards.

    It holds for ``versions`` of Transformer Engine, ``unless`` that variable is ``1``.
    """

    name: str
    effect: str
    source: str
    loses: bool = False
    versions: VersionRange = EVERY_VERSION
    unless: str | None = None


@lru_cache(maxsize=1)
def resume_effects() -> Mapping[str, ResumeEffect]:
    """Every effect by name."""
    rows = (record(ResumeEffect, row) for row in table("resume"))
    return MappingProxyType({row.name: row for row in rows})

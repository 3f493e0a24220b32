"""Every spelling of an argument of ``vllm serve``, and the releases that have it.

What the arguments behind a plan field take stands in ``facts.vllm``; here are names alone, so
that a word of a command line can be told to be too new, gone, or none at all. ``--no-`` forms of
booleans are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange


class FlagSpan(NamedTuple):
    """One spelling on one run of releases; one that went and came back has two."""

    flag: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=1)
def flag_spans() -> Mapping[str, tuple[FlagSpan, ...]]:
    """The runs of releases of every spelling."""
    spans: dict[str, tuple[FlagSpan, ...]] = {}
    for row in table("vllm_flags"):
        span = record(FlagSpan, row)
        spans[span.flag] = (*spans.get(span.flag, ()), span)
    return MappingProxyType(spans)


@lru_cache(maxsize=16)
def flag_names(vllm: str) -> frozenset[str]:
    """Every spelling that one release has."""
    rows = flag_spans().items()
    return frozenset(name for name, runs in rows if any(vllm in run.versions for run in runs))

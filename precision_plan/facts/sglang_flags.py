"""The command line of SGLang's server, which slime and miles pass on with a prefix.

Nine releases from 0.5.5.post1 to 0.5.23 were read. A plan does not declare SGLang's version, so
that the table is their union: what it does not have, none of them has. ``since`` and ``until`` are
the first and the last release among those read that has the spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.versions import EVERY_VERSION, VersionRange

Capability = tuple[int, int]


class SglangFlag(NamedTuple):
    """One spelling of one argument.

    ``kind`` ``optional`` is a switch with a ``--no-`` spelling. ``choices`` are those of every
    release together; ``None`` where a release takes any value.
    """

    flag: str
    dest: str
    kind: Literal["value", "true", "false", "optional"]
    source: str
    type: str | None = None
    nargs: str | int | None = None
    choices: tuple[str, ...] | None = None
    versions: VersionRange = EVERY_VERSION


@lru_cache(maxsize=1)
def sglang_flags() -> Mapping[str, SglangFlag]:
    """Every spelling."""
    return MappingProxyType({row["flag"]: record(SglangFlag, row) for row in table("sglang_flags")})


class SglangAttention(NamedTuple):
    """What an attention backend demands, in whichever release asks for the least."""

    backend: str
    min_cc: Capability
    source: str
    kv: tuple[str, ...] | None = None


@lru_cache(maxsize=1)
def sglang_attention() -> Mapping[str, SglangAttention]:
    """Attention backends with demands of their own."""
    rows = ({**row, "min_cc": parse_capability(row["min_cc"])} for row in table("sglang_attention"))
    return MappingProxyType({row["backend"]: record(SglangAttention, row) for row in rows})


@lru_cache(maxsize=1)
def sglang_moe_methods() -> Mapping[str, tuple[str, ...]]:
    """Values of ``--quantization`` that a runner of experts takes; other runners take all."""
    return MappingProxyType({r["backend"]: tuple(r["quantization"]) for r in table("sglang_moe")})

"""Names of environment variables that the packages around training and serving read.

A row says that a name exists, and where. What the variables that matter here do stands in
``facts.env_vars``; vLLM's own table, with its releases, in ``facts.vllm_env_names``. A name that
is in none of the three may still be read by something: nothing follows from its absence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import EVERY_VERSION, VersionRange


class EnvName(NamedTuple):
    """One name. ``versions``: the releases that have it, as far as those were read."""

    name: str
    package: str
    source: str
    versions: VersionRange = EVERY_VERSION


@lru_cache(maxsize=1)
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return MappingProxyType({row["name"]: row for row in table("env_names")})


def env_name(name: str) -> EnvName | None:
    """The row of one name; the table is read when it is asked for the first time."""
    row = _rows().get(name)
    return None if row is None else record(EnvName, row)


def listed_names() -> tuple[str, ...]:
    """Every name of the table."""
    return tuple(_rows())

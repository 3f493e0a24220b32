"""Names of environment variables that the packages around training and serving read.

A row names up to eight variables of one source file, and says of what type they are and how they
are read where that is known. What the variables that matter here do stands in ``facts.env_vars``;
vLLM's own table, with its releases, in ``facts.vllm_env_names``. A name that is in none of the
three may still be read by something: nothing follows from its absence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import table
from precision_plan.facts.versions import EVERY_VERSION, VersionRange


class EnvName(NamedTuple):
    """One name.

    ``versions``: the releases that have it, as far as those were read. ``reads`` is an expression
    of :mod:`facts.env_readers`, ``default`` the text that the unset variable counts as; ``None``
    where that is not known.
    """

    name: str
    package: str
    source: str
    type: str | None = None
    reads: str | None = None
    default: str | None = None
    versions: VersionRange = EVERY_VERSION


@lru_cache(maxsize=1)
def package_roles() -> Mapping[str, tuple[str, ...]]:
    """In which process roles each package runs, hence reads its variables."""
    return MappingProxyType({r["package"]: tuple(r["roles"]) for r in table("env_packages")})


@lru_cache(maxsize=1)
def _places() -> Mapping[str, tuple[Mapping[str, Any], int]]:
    """The row of each name, and the name's place in it."""
    return MappingProxyType(
        {name: (row, at) for row in table("env_names") for at, name in enumerate(row["names"])}
    )


@lru_cache(maxsize=512)
def env_name(name: str) -> EnvName | None:
    """What is known of one name; the table is read when it is asked for the first time."""
    found = _places().get(name)
    if found is None:
        return None
    row, at = found
    line = f":{row['lines'][at]}" if "lines" in row else ""
    return EnvName(
        name,
        row["package"],
        f"{row['source']}{line}",
        row.get("type"),
        row.get("reads"),
        row["defaults"][at] if "defaults" in row else None,
        VersionRange(row.get("since"), row.get("until")),
    )


def listed_names() -> tuple[str, ...]:
    """Every name of the table."""
    return tuple(_places())

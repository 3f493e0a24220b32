"""Names that ``vllm/envs.py`` declares, and the releases that have them.

What the variables of these that matter here do stands in ``facts.env_vars``; a row there without
a version range of its own takes that of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange


class VllmEnvName(NamedTuple):
    """One name on one run of releases; one that went and came back has two.

    ``defaults`` lists texts that an unset variable counts as, from which version on, where they
    changed and stand in the source as a text.
    """

    name: str
    versions: VersionRange
    source: str
    defaults: tuple[Mapping[str, Any], ...] = ()

    def default_at(self, vllm: str) -> str | None:
        """The text that the unset variable counts as; ``None`` if it never changed."""
        found = None
        for row in self.defaults:
            if vllm in VersionRange(row["since"]):
                found = row["default"]
        return found


@lru_cache(maxsize=1)
def vllm_env_names() -> Mapping[str, tuple[VllmEnvName, ...]]:
    """The runs of releases of every name."""
    runs: dict[str, tuple[VllmEnvName, ...]] = {}
    for row in table("vllm_env_names"):
        run = record(VllmEnvName, row)
        runs[run.name] = (*runs.get(run.name, ()), run)
    return MappingProxyType(runs)


@lru_cache(maxsize=1)
def _ends() -> Mapping[str, tuple[str | None, str | None]]:
    ends: dict[str, tuple[str | None, str | None]] = {}
    for row in table("vllm_env_names"):
        since = ends[row["name"]][0] if row["name"] in ends else row["since"]
        ends[row["name"]] = (since, row.get("until"))
    return ends


def vllm_span(name: str) -> VersionRange | None:
    """The releases from the first to the last that have a name; ``None`` for other names."""
    ends = _ends().get(name)
    return None if ends is None else VersionRange(*ends)


@lru_cache(maxsize=16)
def declared_names(vllm: str) -> frozenset[str]:
    """Every name that one release declares."""
    rows = vllm_env_names().items()
    return frozenset(name for name, runs in rows if any(vllm in run.versions for run in runs))

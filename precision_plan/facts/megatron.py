"""Megatron-LM command-line flags, version by version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import table
from precision_plan.facts.versions import UnknownVersion, VersionRange, version

DEFAULT_VERSION = "0.16.1"
"""The version whose flags are emitted when ``software.megatron_core`` is not declared."""

OLDEST_VERSION = "0.12.0"
"""The oldest version whose flags are known; an older one (MegaDLM's 0.10) is resolved like it."""


@lru_cache(maxsize=64)
def catalogued_version(text: str | None) -> str:
    """The version whose flags stand for a declared one.

    That is the declared version itself, :data:`OLDEST_VERSION` where it is older than that, and
    :data:`DEFAULT_VERSION` where nothing, or nothing that is a version, is declared.
    """
    if text is None:
        return DEFAULT_VERSION
    try:
        return OLDEST_VERSION if version(text) < version(OLDEST_VERSION) else text
    except UnknownVersion:
        return DEFAULT_VERSION


class MegatronFlag(NamedTuple):
    """One argument of Megatron's parser.

    ``flags`` are its spellings, ``dest`` its name in the parsed namespace, ``field`` the plan
    field that holds it, ``feeds`` the dataclass fields (``Class.field``) that it ends in.
    ``meaning`` says in a phrase what the field decides (of an inverted flag such as
    ``--no-fp8-wgrad`` too); it is empty for a flag that no field holds and in MegaDLM's table.
    ``action`` is argparse's: ``store``, ``store_true`` or ``store_false``.
    """

    flags: tuple[str, ...]
    dest: str
    field: str
    action: str
    default: Any
    versions: VersionRange
    feeds: tuple[str, ...]
    source: str
    meaning: str = ""
    type: str | None = None
    choices: tuple[str, ...] | None = None
    nargs: str | int | None = None
    group: str | None = None
    note: str | None = None
    changes: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def at(self, megatron_core: str) -> MegatronFlag:
        """The flag as it stands at one version (choices, default, dest, ... change)."""
        delta: dict[str, Any] = {}
        for since, change in self.changes:
            if version(megatron_core) >= version(since):
                delta.update(change)
        return self._replace(**delta) if delta else self


def flag_from_row(row: Mapping[str, Any]) -> MegatronFlag:
    """Build a flag from one row of a flag table."""
    row = dict(row)
    row["versions"] = VersionRange(row.pop("since", None), row.pop("until", None))
    changes = []
    for change in row.pop("changes", ()):
        delta = {key: value for key, value in change.items() if key != "since"}
        for key in ("choices", "feeds", "flags"):
            if delta.get(key) is not None:
                delta[key] = tuple(delta[key])
        changes.append((change["since"], MappingProxyType(delta)))
    for key in ("flags", "feeds"):
        row[key] = tuple(row.get(key, ()))
    if row.get("choices") is not None:
        row["choices"] = tuple(row["choices"])
    return MegatronFlag(changes=tuple(changes), **row)


@lru_cache(maxsize=1)
def megatron_flags() -> tuple[MegatronFlag, ...]:
    """Every flag known to the catalogue, in catalogue order."""
    return tuple(flag_from_row(row) for row in table("megatron_flags"))


@lru_cache(maxsize=32)
def flags_at(megatron_core: str) -> Mapping[str, MegatronFlag]:
    """The flags that exist at one version, by dest."""
    present = (
        flag.at(megatron_core) for flag in megatron_flags() if megatron_core in flag.versions
    )
    return MappingProxyType({flag.dest: flag for flag in present})


@lru_cache(maxsize=1)
def flags_by_field() -> Mapping[str, MegatronFlag]:
    """The flag behind each plan field; the newest one where a flag was renamed."""
    return MappingProxyType({flag.field: flag for flag in megatron_flags()})

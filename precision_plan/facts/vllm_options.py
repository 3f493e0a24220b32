"""The whole command line of ``vllm serve`` at one release, as its parser registers it.

Arguments that a plan has a field for are described in ``facts.vllm``; the rest are here so that a
command line is split, and an unknown word refused, as the real parser does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from precision_plan.facts._load import freeze, table
from precision_plan.facts.megatron_parser import Kind, Option
from precision_plan.facts.versions import version
from precision_plan.facts.vllm import engine_args_at

RELEASE = "0.33.0"
"""The release whose parser the table holds."""


class Limits(NamedTuple):
    """What the engine's configuration demands of a number, after parsing."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def broken(self, value: float) -> str | None:
        """The limit that ``value`` breaks, as text; ``None`` if it is within all of them."""
        if self.ge is not None and value < self.ge:
            return f"at least {self.ge}"
        if self.gt is not None and value <= self.gt:
            return f"more than {self.gt}"
        if self.le is not None and value > self.le:
            return f"at most {self.le}"
        if self.lt is not None and value >= self.lt:
            return f"less than {self.lt}"
        return None


@lru_cache(maxsize=1)
def limits() -> Mapping[str, Limits]:
    """Limits of numbers by dest."""
    rows = table("vllm_options")
    return MappingProxyType({row["dest"]: Limits(**row["range"]) for row in rows if "range" in row})


@lru_cache(maxsize=1)
def object_keys() -> Mapping[str, frozenset[str]]:
    """Keys that an argument's JSON object may have, by dest; others are refused."""
    rows = table("vllm_options")
    return MappingProxyType({row["dest"]: frozenset(row["keys"]) for row in rows if "keys" in row})


class ObjectValue(NamedTuple):
    """What one key of an argument's JSON object may be: one of some words, or an object."""

    choices: tuple[str | int | None, ...] | None
    keys: frozenset[str] | None

    def refused(self, value: object) -> str | None:
        """What is wrong with a value, if anything is; ``True`` is not the number 1."""
        if self.choices is not None:
            if not any(type(value) is type(each) and value == each for each in self.choices):
                shown = ("null" if each is None else str(each) for each in self.choices)
                return f"is one of {', '.join(shown)}"
        elif self.keys is not None and isinstance(value, Mapping):
            unknown = [key for key in value if key not in self.keys]
            if unknown:
                return f"has no key {unknown[0]!r}"
        return None


@lru_cache(maxsize=1)
def object_values() -> Mapping[tuple[str, str], ObjectValue]:
    """Values that arguments' JSON objects may hold, by dest and key."""
    return MappingProxyType(
        {(row["dest"], row["key"]): _object_value(row) for row in table("vllm_object_values")}
    )


def _object_value(row: Mapping[str, Any]) -> ObjectValue:
    choices, keys = row.get("choices"), row.get("keys")
    return ObjectValue(
        None if choices is None else tuple(choices), None if keys is None else frozenset(keys)
    )


@lru_cache(maxsize=8)
def options_at(vllm: str) -> Mapping[str, Option]:
    """Every spelling of every argument.

    At other releases than :data:`RELEASE` the arguments with a plan field are those of that
    release, the others are taken to be the same.
    """
    fields = engine_args_at(vllm)
    found: dict[str, Option] = {}
    for row in table("vllm_options"):
        field = row.get("field")
        if field is None or field in fields:
            found.update((option.flag, option) for option in _options(row, vllm))
    for arg in fields.values():
        if arg.flag not in found and arg.kind != "json_key" and not is_release(vllm):
            kind: Kind = "true" if arg.kind == "boolean" else "value"
            dest = arg.flag[2:].replace("-", "_")
            found[arg.flag] = Option(arg.flag, dest, kind, None, "text", arg.choices, arg.field)
    return MappingProxyType(found)


def is_release(vllm: str) -> bool:
    """True if the table is that of the release, so that an unlisted word is certainly unknown."""
    return version(vllm).release[:2] == version(RELEASE).release[:2]


def _options(row: Mapping[str, Any], vllm: str) -> list[Option]:
    choices = row.get("choices")
    field = row.get("field")
    if field is not None and not is_release(vllm):
        choices = engine_args_at(vllm)[field].choices
    shown = None if choices is None else tuple(choices)
    kind = row["kind"]
    type = row.get("type", "") + ("?" if row.get("optional") else "") or None
    return [
        Option(
            flag,
            row["dest"],
            ("false" if off else "true") if kind == "boolean" else kind,
            freeze(row.get("nargs")),
            type,
            shown,
            field,
        )
        for flag, off in _spellings(row)
    ]


def _spellings(row: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """``(flag, it switches off)``; ``--no-enable-x`` is accepted beside ``--disable-x``."""
    flags: list[str] = row["flags"]
    if row["kind"] != "boolean":
        return [(flag, False) for flag in flags]
    first = flags[0]
    off = {f"--no-{first[2:]}"}
    for one, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if first.startswith(one):
            off.add(other + first.removeprefix(one))
    return [(flag, flag in off) for flag in dict.fromkeys((*flags, *sorted(off)))]

"""Megatron's whole command-line parser, version by version: what the importers read argv with.

Flags that have a plan field come from the other two tables; the rest (data, logging, inference
servers, ...) are here only so that a command line can be split as argparse would split it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import table
from precision_plan.facts.megatron import (
    OLDEST_VERSION,
    MegatronFlag,
    flag_from_row,
    megatron_flags,
)
from precision_plan.facts.megatron_shape import shape_flags
from precision_plan.facts.megatron_values import listed_values

Kind = Literal["value", "true", "false", "none"]


class Option(NamedTuple):
    """One spelling of one argument at one version.

    ``kind`` tells what the spelling does: take values (``value``), set ``true`` or ``false``.
    ``nargs`` is argparse's (``None`` for exactly one, ``+``, ``*``, or a count); ``type`` is the
    converter's name; ``field`` is the plan field, if the plan has one.
    """

    flag: str
    dest: str
    kind: Kind
    nargs: str | int | None
    type: str | None
    choices: tuple[str, ...] | None
    field: str | None
    required: bool = False


@lru_cache(maxsize=1)
def other_flags() -> tuple[MegatronFlag, ...]:
    """Flags without a plan field; their ``field`` is empty."""
    return tuple(_other(row) for row in table("megatron_other_flags"))


def _other(row: Mapping[str, Any]) -> MegatronFlag:
    row = {key: value for key, value in row.items() if key != "required"}
    return flag_from_row({"field": "", "default": None, **row})


_KINDS: Mapping[str, Kind] = MappingProxyType(
    {"store": "value", "append": "value", "store_true": "true", "store_false": "false"}
)


def spellings(flag: MegatronFlag, megatron_core: str | None = None) -> list[Option]:
    """One option for each spelling of a flag, which is that of the version already."""
    options = []
    for spelling in flag.flags:
        choices = flag.choices
        if not choices and megatron_core is not None:
            choices = listed_values(spelling, megatron_core, "parse")
        if flag.action == "boolean_optional":
            kind: Kind = "false" if spelling.startswith("--no-") else "true"
        else:
            kind = _KINDS[flag.action]
        options.append(
            Option(
                spelling,
                flag.dest,
                kind,
                flag.nargs,
                flag.type,
                tuple(map(str, choices)) if choices else None,
                flag.field or None,
            )
        )
    return options


_SEPARATE_PARSERS = frozenset(
    {"post_training", "post_training (ModelOpt; only parsers that call add_modelopt_args)"}
)
"""Groups of the export scripts, which the training parser does not have."""


@lru_cache(maxsize=1)
def parser_of_any_version() -> Mapping[str, Option]:
    """Every option of any version, taking what any version takes: for a version not declared."""
    found: dict[str, Option] = {}
    for flag in (*megatron_flags(), *shape_flags(), *other_flags()):
        if flag.group in _SEPARATE_PARSERS:
            continue
        first = flag.versions.since or OLDEST_VERSION
        last = flag.versions.until or "HEAD"
        for version in dict.fromkeys((last, *(since for since, _ in flag.changes), first)):
            if version in flag.versions:
                for option in spellings(flag.at(version), version):
                    found[option.flag] = either(found.get(option.flag), option)
    return MappingProxyType(found)


@lru_cache(maxsize=1)
def options_of_other_parsers() -> Mapping[str, Option]:
    """Options that a training program has only if another package is installed."""
    flags = (
        flag for flag in (*megatron_flags(), *other_flags()) if flag.group in _SEPARATE_PARSERS
    )
    found = (option._replace(choices=None) for flag in flags for option in spellings(flag))
    return MappingProxyType({option.flag: option for option in found})


def either(one: Option | None, other: Option) -> Option:
    """What takes the values of both; in everything else the first, newer one counts."""
    if one is None:
        return other
    choices = None
    if one.choices is not None and other.choices is not None:
        choices = tuple(dict.fromkeys((*one.choices, *other.choices)))
    return one._replace(choices=choices, required=False)


@lru_cache(maxsize=32)
def parser_at(megatron_core: str) -> Mapping[str, Option]:
    """Every option of the parser at one version, by spelling."""
    found: dict[str, Option] = {}
    for flag in (*megatron_flags(), *shape_flags(), *other_flags()):
        if megatron_core in flag.versions and flag.group not in _SEPARATE_PARSERS:
            for option in spellings(flag.at(megatron_core), megatron_core):
                found[option.flag] = option
    return MappingProxyType(found)

"""Megatron's configuration dataclasses in the sources against the fields that the facts name.

This is all that can be said of a wheel, which has the dataclasses but not the parser. Flags that
Megatron generates from a dataclass are then compared as the parser would make them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from precision_plan.drift.changes import Change, about_precision
from precision_plan.drift.dataclass_fields import DataclassField, FieldReader
from precision_plan.drift.flags_against import changed, is_precise, known_flags
from precision_plan.drift.group_factory import generated_flag
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Values
from precision_plan.facts.megatron_config import fields_without_flag

_FEED = re.compile(r"(\w+)\.(\w+)")
_FOLDER = "megatron/core"
_GENERATED_FROM = "TransformerConfig"  # the only class of the wheel that flags are generated from

Configs = Mapping[str, Mapping[str, DataclassField]]


def read_configs(modules: Modules, fields: FieldReader, megatron_core: str) -> Configs:
    """The fields of every dataclass that the facts name, by class and field name.

    A class that the sources lack has no fields.
    """
    names = {match[1] for match in _feeds(megatron_core)}
    names |= {field.config for field in fields_without_flag()}
    configs: dict[str, dict[str, DataclassField]] = {}
    for name in sorted(names):
        found = _find_class(modules, name)
        configs[name] = {field.name: field for field in fields.of(found)} if found else {}
    return configs


def compare_configs(
    configs: Configs, megatron_core: str, dests: Iterable[str] = ()
) -> Iterator[Change]:
    """Fields that flags end in and that are gone; precision fields that nothing names.

    Args:
        dests: names in the parsed namespace of the sources' own flags, which name their fields.
    """
    for flag in known_flags(megatron_core):
        for feed in filter(None, map(_FEED.fullmatch, flag.feeds)):
            if feed[2] not in configs[feed[1]]:
                yield Change(
                    "vanished",
                    "config field",
                    feed[0],
                    is_precise(flag),
                    fact_source=flag.source,
                    note=f"{flag.flags[0]} ends in it",
                )
    without_flag = {
        (field.config, field.name): field
        for field in fields_without_flag()
        if megatron_core in field.versions
    }
    for (config, name), field in without_flag.items():
        if name not in configs[config]:
            yield Change(
                "vanished", "config field", f"{config}.{name}", True, fact_source=field.source
            )
    named = {match[2] for match in _feeds(megatron_core)} | set(dests)
    named |= {flag.dest for flag in known_flags(megatron_core)}
    yield from _appeared(configs, named, set(without_flag))


def compare_generated(
    configs: Configs, values: Values, megatron_core: str
) -> Iterator[tuple[str, list[Change]]]:
    """Each flag of the facts that a field generates, with what differs.

    Only flags whose source is the dataclass: others are declared by hand, where the parser is.
    """
    generated = {}
    for field in configs[_GENERATED_FROM].values():
        flag = generated_flag(field, values)
        for spelling in flag.flags if flag else ():
            generated[spelling] = flag
    for known in known_flags(megatron_core):
        flag = next((generated[name] for name in known.flags if name in generated), None)
        if flag is not None and f":{_FOLDER}/" in known.source:
            yield known.flags[0], list(changed(known, flag))


def _appeared(
    configs: Configs, named: set[str], without_flag: set[tuple[str, str]]
) -> Iterator[Change]:
    for config, fields in configs.items():
        for name, field in fields.items():
            if field.owner != config or name in named or (config, name) in without_flag:
                continue
            if about_precision(name):
                yield Change(
                    "appeared",
                    "config field",
                    f"{config}.{name}",
                    True,
                    sources=None if field.value is None else str(field.default),
                    at=field.source,
                )


def _feeds(megatron_core: str) -> Iterator[re.Match[str]]:
    for flag in known_flags(megatron_core):
        yield from filter(None, map(_FEED.fullmatch, flag.feeds))


def _find_class(modules: Modules, name: str) -> Found | None:
    """The class with a name; of several (Megatron-FSDP keeps a copy) the one highest up."""
    declared = re.compile(rf"^class {name}\b", re.MULTILINE)
    paths = modules.tree.under(_FOLDER, ".py")
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        module = modules.at(path) if declared.search(modules.tree.text(path)) else None
        found = modules.find(name, Scope(module)) if module else None
        if isinstance(found, Found):
            return found
    return None

"""Entries of a Hydra defaults list, each with its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import UNKNOWN, Origin

ENTRY_LIMIT = 100
"""Entries of one defaults list, and choices of one entry; a recipe has some twenty."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a defaults list.

    ``kind`` is ``self`` (``_self_``), ``config`` (a path without a group) or ``group``. ``name``
    is the path or the group, which starts with ``/`` if it is absolute; ``value`` the choice, or
    choices, of a group (``None``: nothing chosen). ``package`` is the part after ``@``.
    """

    kind: Literal["self", "config", "group"]
    name: str
    value: str | tuple[str, ...] | None = None
    package: str | None = None
    optional: bool = False
    override: bool = False
    appended: bool = False
    origin: Origin = UNKNOWN

    def raw(self) -> Any:
        """The entry as YAML spells it: a text, or a mapping of one group."""
        at = "" if self.package is None else f"@{self.package or '_here_'}"
        if self.kind != "group":
            return f"{self.name}{at}"
        keywords = ("optional " if self.optional else "") + ("override " if self.override else "")
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {f"{keywords}{self.name}{at}": value}


_FIX = Fix("write '- group: choice', '- override /group: choice', '- name' or '- _self_'")


def entries_in(node: yaml.Node, shown: str) -> tuple[tuple[Entry, ...], list[Diagnostic]]:
    """Read the value of a ``defaults:`` key; an item that cannot be read is reported, left out."""
    if not isinstance(node, yaml.SequenceNode):
        return (), [_problem("defaults is not a list", node, shown)]
    if len(node.value) > ENTRY_LIMIT:
        message = f"the defaults list has {len(node.value)} entries; at most {ENTRY_LIMIT} are read"
        return (), [compose_diagnostic("PP012", message, _origin(node, shown))]
    entries: list[Entry] = []
    problems: list[Diagnostic] = []
    for item in node.value:
        try:
            entries.append(_entry(item, shown))
        except _Malformed as error:
            problems.append(_problem(str(error), item, shown))
    return tuple(entries), problems


class _Malformed(ValueError):
    pass


def _problem(message: str, node: yaml.Node, shown: str) -> Diagnostic:
    return compose_diagnostic("PP016", message, _origin(node, shown), fix=(_FIX,))


def _origin(node: yaml.Node, shown: str) -> Origin:
    return Origin(shown, node.start_mark.line + 1, node.start_mark.column + 1)


def _entry(node: yaml.Node, shown: str) -> Entry:
    origin = _origin(node, shown)
    if isinstance(node, yaml.ScalarNode):
        if not _is_text(node):
            raise _Malformed("an entry of the defaults list is empty or not a text")
        if node.value == "_self_":
            return Entry("self", "_self_", origin=origin)
        path, _, package = node.value.partition("@")
        return Entry("config", path, package=_package(package), origin=origin)
    if not isinstance(node, yaml.MappingNode) or len(node.value) != 1:
        raise _Malformed("an entry of the defaults list names one group")
    key, value = node.value[0]
    if not isinstance(key, yaml.ScalarNode) or not _is_text(key):
        raise _Malformed("the group of a defaults list entry is not a text")
    *keywords, group = key.value.split(" ")
    if unknown := [word for word in keywords if word not in ("optional", "override")]:
        raise _Malformed(f"{unknown[0]!r} is no keyword of a defaults list (optional, override)")
    group, _, package = group.partition("@")
    if not group.strip("/"):
        raise _Malformed("an entry of the defaults list lacks its group")
    return Entry(
        "group",
        group,
        _choice(value, group),
        _package(package),
        "optional" in keywords,
        "override" in keywords,
        origin=origin,
    )


def _package(text: str) -> str | None:
    """The package of ``group@package``; of ``group@old:new``, Hydra takes the first."""
    package = text.partition(":")[0]
    if package == "_here_":
        return ""
    return package if text else None


def _choice(node: yaml.Node, group: str) -> str | tuple[str, ...] | None:
    if isinstance(node, yaml.SequenceNode):
        if len(node.value) > ENTRY_LIMIT:
            raise _Malformed(f"more than {ENTRY_LIMIT} choices for {group}")
        return tuple(_name(item, group) for item in node.value)
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
        return None
    return _name(node, group)


def _name(node: yaml.Node, group: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _Malformed(f"the choice for {group} is not a name")
    if not _is_text(node):
        raise _Malformed(f"the choice for {group} must be a text: write '{node.value}' in quotes")
    return str(node.value)


def _is_text(node: Any) -> bool:
    return bool(node.tag.endswith(":str")) and bool(node.value)

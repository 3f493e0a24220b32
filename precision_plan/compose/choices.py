"""Which group files say nothing but what a section of settings says, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.compose.search_path import SearchPath


@dataclass(frozen=True, slots=True)
class Choice:
    """A group file that holds a part of a section; ``fields`` are the dotted keys it sets."""

    group: str
    name: str
    fields: frozenset[str]

    @property
    def entry(self) -> str:
        """The entry of a defaults list that chooses it."""
        return f"override /{self.group}: {self.name}"


def matching_choices(
    search_path: SearchPath, settings: Mapping[str, Mapping[str, Any]]
) -> tuple[Choice, ...]:
    """For each section of ``settings``, the file that holds the most of it and nothing else.

    A file with interpolations or a defaults list of its own says more than its keys, and is left
    out.
    """
    found = (_best(search_path, section, values) for section, values in settings.items())
    return tuple(choice for choice in found if choice is not None)


def _best(search_path: SearchPath, section: str, values: Mapping[str, Any]) -> Choice | None:
    wanted = dict(leaves(section, values))
    fitting = []
    for name in search_path.choices(section):
        path = search_path.find(f"{section}/{name}")
        if path is None:
            continue
        document = search_path.read(path)
        if document.problems or document.entries or document.package:
            continue
        held = dict(leaves(section, document.data))
        if held and all(_same(value, wanted.get(key)) for key, value in held.items()):
            fitting.append(Choice(section, name, frozenset(held)))
    return max(fitting, key=lambda each: len(each.fields), default=None)


def leaves(section: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; of the mappings in a section only those of variables are taken
    apart, because the rest is compared as a whole."""
    for key, value in values.items():
        if isinstance(value, Mapping) and (section, key) in _taken_apart(section, values):
            yield from ((f"{section}.{key}.{name}", each) for name, each in value.items())
        else:
            yield f"{section}.{key}", value


def _taken_apart(section: str, values: Iterable[str]) -> set[tuple[str, str]]:
    return {(section, key) for key in values if section == "env" or key == "extra_args"}


def _same(one: Any, other: Any) -> bool:
    """Equal, and of the same type: 1 is not true, and an interpolation is nothing known."""
    if isinstance(one, str) and "${" in one:
        return False
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and list(one.items()) == list(other.items())
    return type(one) is type(other) and bool(one == other)

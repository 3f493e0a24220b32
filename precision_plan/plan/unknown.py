"""Values that are set, but not known before a run starts: ``--fp8-recipe $RECIPE`` in a script.

Such a field is neither *not set* nor any value. It is taken out of its section, so that to read
it raises :class:`NotKnown`; whoever asks the plan a question then knows that there is no answer.
A free text (a path, a variable's value) may instead hold a *reference*, ``$BASE/model``: it can
be shown and compared by its spelling, and what it stands for is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from precision_plan.plan.base import NotKnown, Section
from precision_plan.plan.precision_plan import PrecisionPlan

__all__ = ["NotKnown", "is_reference", "known", "look_up", "settled", "unknown", "with_unknown"]

_Section = TypeVar("_Section", bound=Section)
_Plan = TypeVar("_Plan", bound=PrecisionPlan)


def is_reference(value: object) -> bool:
    """True for a text with ``$VAR``, ``${VAR}`` or ``$(...)`` in it: what it becomes is unknown."""
    return isinstance(value, str) and "$" in value


def with_unknown(plan: PrecisionPlan, fields: Iterable[str]) -> PrecisionPlan:
    """``plan`` with ``section.name`` fields set to something that is not known."""
    by_section: dict[str, list[str]] = {}
    for field in fields:
        section, _, name = field.partition(".")
        by_section.setdefault(section, []).append(name)
    changed = {
        section: _without(getattr(plan, section), names) for section, names in by_section.items()
    }
    return plan.model_copy(update=changed) if changed else plan


def _without(section: _Section, names: Iterable[str]) -> _Section:
    copy = section.model_copy(update=dict.fromkeys(names))
    for name in names:
        del copy.__dict__[name]
    return copy


def unknown(plan: PrecisionPlan) -> Iterator[str]:
    """Yield the dotted fields of ``plan`` that are not known."""
    for name, section in plan.__dict__.items():
        if isinstance(section, Section):
            yield from (f"{name}.{field}" for field in section.unknown())


def settled(plan: _Plan) -> _Plan:
    """``plan`` with every field that is not known left unset: what of it can be written down."""
    changed: dict[str, Section] = {}
    for field in unknown(plan):
        name, _, key = field.partition(".")
        section = changed.get(name, getattr(plan, name))
        changed[name] = section.model_copy(update={key: None})
    return plan.model_copy(update=changed) if changed else plan


def known(section: Section, name: str) -> Any:
    """Value of a field; ``None`` if it is not set, or not known."""
    return section.__dict__.get(name)


class _References(dict[str, Any]):
    """A mapping of which some values are references; to look one of those up raises."""

    def __init__(self, values: Mapping[str, Any], field: str) -> None:
        super().__init__(values)
        self.field = field

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if is_reference(value[0] if isinstance(value, tuple) and value else value):
            raise NotKnown(f"{self.field}.{key}")
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """As of any mapping, but for a reference.

        Raises:
            NotKnown: if the value is a reference.
        """
        try:
            return self[key]
        except KeyError:
            return default


def look_up(values: Mapping[str, Any] | None, field: str) -> Mapping[str, Any]:
    """``values``, of which a reference cannot be looked up; ``items`` still shows its text.

    A value may be the text itself, or a tuple that begins with it.
    """
    if not values:
        return {}
    for value in values.values():
        if is_reference(value[0] if isinstance(value, tuple) and value else value):
            return _References(values, field)
    return values

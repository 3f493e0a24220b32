"""Megatron's arguments as they end up: defaults of the version, then every silent override.

Two namespaces by *dest*: ``parsed`` is what the argument parser returns (defaults plus what the
plan sets) and ``args`` what is left after the framework's and Megatron's own overrides. Rules
compare them, and lowering emits explicitly what would otherwise be decided in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from precision_plan.facts.megatron import catalogued_version
from precision_plan.facts.megatron_shape import command_line_at
from precision_plan.plan.base import NotKnown
from precision_plan.plan.overrides import STEPS, Step
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import Target


@dataclass(frozen=True, slots=True)
class Override:
    """One value that a program would silently replace."""

    step: Step
    dest: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Effective:
    """The resolved arguments. ``given`` holds the dests that the plan sets.

    ``parsed`` and ``args`` raise :class:`NotKnown` for what is not known (see :class:`Values`).
    """

    megatron_core: str
    parsed: SimpleNamespace
    args: SimpleNamespace
    given: Mapping[str, str]
    overrides: tuple[Override, ...]


class Values(SimpleNamespace):
    """A namespace of which some names are not known; to read one raises :class:`NotKnown`.

    ``vars`` has the others. ``unknown`` maps a name to the plan field that is the reason.
    """

    __slots__ = ("unknown",)

    def __init__(self, values: Mapping[str, Any], unknown: Mapping[str, str]) -> None:
        super().__init__(**values)
        self.unknown = dict(unknown)
        for name in unknown:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        field = self.unknown.get(name)
        if field is None:
            raise AttributeError(name)
        raise NotKnown(field)


@lru_cache(maxsize=32)
def _frame(megatron_core: str) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Defaults by dest, and section -> field name -> dest, of one version."""
    defaults: dict[str, Any] = {}
    dests: dict[str, dict[str, str]] = {}
    for field, flag in command_line_at(megatron_core).items():
        section, _, name = field.partition(".")
        dests.setdefault(section, {})[name] = flag.dest
        defaults[flag.dest] = flag.default
    return defaults, dests


def effective(plan: PrecisionPlan, target: Target) -> Effective:
    """Resolve ``plan`` as the declared framework and Megatron version would.

    Fields without a flag at that version do not take part (a rule reports them). What depends on
    a field that is not known is not known either.
    """
    megatron_core = catalogued_version(target.package("megatron_core"))
    defaults, dests = _frame(megatron_core)
    values = dict(defaults)
    given: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for section, names in dests.items():
        written = getattr(plan, section)
        for name, value in written.set_items():
            dest = names.get(name)
            if dest is not None:
                values[dest] = value
                given[dest] = f"{section}.{name}"
        for name in written.unknown():
            dest = names.get(name)
            if dest is not None:
                given[dest] = unknown[dest] = f"{section}.{name}"
    any_framework = "framework" in plan.software.unknown()
    steps = _steps(None if any_framework else target.framework, megatron_core, any_framework)
    if unknown or any_framework:
        args = Values(values, unknown)
        parsed: SimpleNamespace = Values(values, unknown)
        overrides = _override_known(steps, args, target, any_framework)
        return Effective(megatron_core, parsed, args, given, overrides)
    plain = SimpleNamespace(**values)
    return Effective(
        megatron_core, SimpleNamespace(**values), plain, given, _override(steps, plain, target)
    )


def _override(
    steps: tuple[Step, ...], args: SimpleNamespace, target: Target
) -> tuple[Override, ...]:
    overrides: list[Override] = []
    for step in steps:
        for dest, after in (step.apply(args, target) or {}).items():
            before = getattr(args, dest, None)
            if before != after:
                overrides.append(Override(step, dest, before, after))
                setattr(args, dest, after)
    return tuple(overrides)


def _override_known(
    steps: tuple[Step, ...], args: Values, target: Target, any_framework: bool
) -> tuple[Override, ...]:
    """The same where some arguments are not known: neither is what an override makes of them.

    An override that does not depend on what it replaces makes it known again; whether there was
    anything to replace is then not known, and is not said. If the framework is not known
    (``any_framework``), neither is what one of them would change.
    """
    overrides: list[Override] = []
    for step in steps:
        try:
            changes = step.apply(args, target) or {}
        except NotKnown as reason:
            for dest in step.changes:
                args.unknown.setdefault(dest, reason.field)
                args.__dict__.pop(dest, None)
            continue
        if any_framework and step.frameworks:
            for dest, after in changes.items():
                if dest in args.unknown or getattr(args, dest, None) != after:
                    args.unknown.setdefault(dest, "software.framework")
                    args.__dict__.pop(dest, None)
            continue
        for dest, after in changes.items():
            known = dest not in args.unknown
            before = getattr(args, dest, None) if known else None
            args.unknown.pop(dest, None)
            if known and before != after:
                overrides.append(Override(step, dest, before, after))
            setattr(args, dest, after)
    return tuple(overrides)


@lru_cache(maxsize=64)
def _steps(framework: str | None, megatron_core: str, any_framework: bool) -> tuple[Step, ...]:
    return tuple(
        step
        for step in STEPS
        if megatron_core in step.versions
        and (any_framework or not step.frameworks or framework in step.frameworks)
    )

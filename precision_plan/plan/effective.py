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
    """The resolved arguments. ``given`` holds the dests that the plan sets."""

    megatron_core: str
    parsed: SimpleNamespace
    args: SimpleNamespace
    given: Mapping[str, str]
    overrides: tuple[Override, ...]


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

    Fields without a flag at that version do not take part (a rule reports them).
    """
    megatron_core = catalogued_version(target.package("megatron_core"))
    defaults, dests = _frame(megatron_core)
    values = dict(defaults)
    given: dict[str, str] = {}
    for section, names in dests.items():
        for name, value in getattr(plan, section).set_items():
            dest = names.get(name)
            if dest is not None:
                values[dest] = value
                given[dest] = f"{section}.{name}"
    args = SimpleNamespace(**values)
    overrides: list[Override] = []
    for step in _steps(target.framework, megatron_core):
        for dest, after in (step.apply(args, target) or {}).items():
            before = getattr(args, dest, None)
            if before != after:
                overrides.append(Override(step, dest, before, after))
                setattr(args, dest, after)
    return Effective(megatron_core, SimpleNamespace(**values), args, given, tuple(overrides))


@lru_cache(maxsize=64)
def _steps(framework: str | None, megatron_core: str) -> tuple[Step, ...]:
    return tuple(
        step
        for step in STEPS
        if megatron_core in step.versions and (not step.frameworks or framework in step.frameworks)
    )

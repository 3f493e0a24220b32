"""What a rule is, and what it may look at."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from precision_plan.facts.versions import VersionRange, version
from precision_plan.plan import (
    Because,
    Effective,
    Fix,
    PrecisionPlan,
    Severity,
    Stage,
    Target,
    effective,
)
from precision_plan.plan.environment import declared_env, train_env


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule returns; the engine adds identity, severity and positions.

    ``field`` is the plan field at fault, ``because`` the premises (fields and texts), ``fix`` the
    ways out in order of preference. ``resolved`` is set by rules about silent overrides.
    """

    message: str
    field: str | None = None
    because: tuple[Because, ...] = ()
    fix: tuple[Fix, ...] = ()
    resolved: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Found = Finding | Iterable[Finding] | None


class Context:
    """Everything that a rule may look at; built once per plan.

    ``plan`` is what was written, ``parsed`` Megatron's arguments with defaults filled in, ``args``
    the same after silent overrides, ``given`` the dests that were written (dest -> plan field).
    """

    def __init__(self, plan: PrecisionPlan) -> None:
        self.plan = plan
        self.target = Target.of(plan)
        resolved: Effective = effective(plan, self.target)
        self.effective = resolved
        self.parsed = resolved.parsed
        self.args = resolved.args
        self.given = resolved.given

    @cached_property
    def train_env(self) -> Mapping[str, tuple[str, str]]:
        """``{variable: (value, plan field)}`` of the train actor."""
        return train_env(self.plan)

    @cached_property
    def rollout_env(self) -> Mapping[str, tuple[str, str]]:
        """``{variable: (value, plan field)}`` of the rollout engine's workers."""
        return declared_env(self.plan, "vllm_worker")

    def is_set(self, name: str) -> bool:
        """True if a layer set the plan field ``section.name``."""
        return self.plan.get(name) is not None

    def at_least(self, package: str, least: str) -> bool | None:
        """Compare a declared package version; ``None`` if it is not declared."""
        found = self.target.package(package)
        return None if found is None else version(found) >= version(least)

    def premise(self, name: str, text: str | None = None) -> Because:
        """A premise about a plan field (``hardware.gpu = h100``); the engine adds its position."""
        return Because(text or f"{name} = {_shown(self.plan.get(name))}", field=name)


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule holds.

    ``frameworks`` empty means all. ``versions`` maps a package to its range. ``needs`` lists what
    must be known before the rule can speak: ``gpu`` (or compute capability) or a package name; if
    it is unknown, the rule is skipped and reported as unchecked. ``hardware`` is text for the page.
    """

    frameworks: tuple[str, ...] = ()
    versions: Mapping[str, VersionRange] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hardware: str = "any"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: identity, scope, sources and a pure check.

    The check's docstring is the page: first line the summary, then the sections ``Why``, ``Bad``
    and ``Good``.
    """

    id: str
    slug: str
    severity: Severity
    stage: Stage
    source: tuple[str, ...]
    check: Callable[[Context], Found]
    scope: Scope = Scope()
    since: str = "0.1.0"
    experimental: bool = False

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.partition("\n")[0].rstrip(".")

    @property
    def page(self) -> str:
        """The page text, dedented."""
        return inspect.cleandoc(self.check.__doc__ or "")


def rule(
    id: str,
    slug: str,
    severity: Severity,
    *,
    stage: Stage,
    source: tuple[str, ...],
    frameworks: tuple[str, ...] = (),
    versions: Mapping[str, VersionRange] | None = None,
    needs: tuple[str, ...] = (),
    hardware: str = "any",
    since: str = "0.1.0",
    experimental: bool = False,
) -> Callable[[Callable[[Context], Found]], Rule]:
    """Turn a check into a :class:`Rule`. It registers nothing: the registry is an explicit dict."""

    def wrap(check: Callable[[Context], Found]) -> Rule:
        scope = Scope(frameworks, versions or {}, needs, hardware)
        return Rule(id, slug, severity, stage, source, check, scope, since, experimental)

    return wrap

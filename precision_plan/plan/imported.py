"""A launch script as a recipe, and what of the script the recipe does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_plan.plan.diagnostic import Diagnostic
from precision_plan.plan.leftover import Leftover
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import PrecisionPlan


@dataclass(frozen=True, slots=True)
class Way:
    """One launch of a script: its number among the places that launch, and how it is reached."""

    launch: int
    origin: Origin
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """A field that the launch sets and the recipe does not hold; ``text`` is how it is spelt."""

    field: str
    text: str
    origin: Origin
    because: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What a script was turned into.

    ``text`` is the recipe as YAML, ``data`` the same as plain data, ``plan`` what the launch says
    (some of it may be not known); there is none if nothing could be imported. ``way`` is the launch
    that was taken and ``others`` those that were not. ``diagnostics`` say why a script cannot be
    read. No secret is in it, except in ``plan``.
    """

    script: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    plan: PrecisionPlan | None = None
    way: Way | None = None
    others: tuple[Way, ...] = ()
    gaps: tuple[Gap, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

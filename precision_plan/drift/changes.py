"""The nouns of a comparison: one difference, and all of them for one package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["appeared", "vanished", "changed"]
Subject = Literal[
    "flag",
    "config field",
    "variable",
    "recipe",
    "recipe field",
    "choices",
    "parser rules",
    "method",
    "attention backend",
    "model family",
]

_PRECISION = re.compile(
    r"(?:^|[-_.])(?:"
    r"(?:mx|nv)?(?:fp|int)[468]|[bt]?f(?:p|loat)?(?:16|32)|e[2458]m\d|4over6|"
    r"dtypes?|precision|precise|quant\w*|qat|amax|scales?(?![-_]up)|scaling|recipe|kitchen|"
    r"autocast|master[-_](?:weights?|params?)|main[-_](?:params?|grads?)|exp[-_]avg|rht|hadamard|stochastic|2d|emulate|"
    r"te|transformer[-_]engine|modelopt|cuda[-_]graphs?|deterministic|"
    r"accumulat\w*|gradient[-_]accumulation[-_]fusion|batch[-_]invariant"
    r")(?=$|[-_.])",
    re.IGNORECASE,
)


def about_precision(name: str) -> bool:
    """Whether the words of a flag, field or variable name speak of number formats or scaling."""
    return _PRECISION.search(name) is not None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between sources and facts.

    ``aspect`` is what changed of the subject (``choices``, ``default``, ...), ``facts`` and
    ``sources`` are the values on either side (``None`` on the side that has none). ``at`` is
    ``path:line`` in the sources, ``fact_source`` where the fact was taken from. ``precise`` tells
    whether number formats or scaling are concerned.
    """

    kind: Kind
    subject: Subject
    name: str
    precise: bool
    aspect: str | None = None
    facts: Any = None
    sources: Any = None
    at: str | None = None
    fact_source: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not compared: what and why, and the names concerned."""

    what: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """One package: the version found, the version of the facts it is held against, and changes.

    ``compared`` counts what was looked at, ``gaps`` is what was not.
    """

    package: str
    sources: str
    found: str | None
    facts: str
    changes: tuple[Change, ...]
    compared: tuple[tuple[str, int], ...]
    gaps: tuple[Gap, ...]

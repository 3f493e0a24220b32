"""The target that a file declares in a comment: ``# precision-plan: gpu=h100 framework=slime``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from precision_plan.compose.suggest import closest, listed, printable
from precision_plan.importers.texts import Source
from precision_plan.plan import Diagnostic, Fix, Origin, PrecisionPlan
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.given_target import TARGET_KEYS, check_target, with_target

_MARKER = b"precision-plan:"
_COMMENT = re.compile(
    rb"^[ \t]*(?:#|//)[ \t]*precision-plan:(?![ \t]*ignore)[ \t]*([^\r\n]*)", re.MULTILINE
)
_WORD = re.compile(rb"[^\s,]+")


@dataclass(frozen=True, slots=True)
class Declared:
    """Keys of a target with the position of each; ``diagnostics`` are those that say nothing."""

    values: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}))
    diagnostics: tuple[Diagnostic, ...] = ()

    def over(self, given: Mapping[str, str]) -> Declared:
        """The declared keys, and of those ``given`` from outside what they leave open."""
        return Declared({**given, **self.values}, self.origins, self.diagnostics)

    def into(self, plan: PrecisionPlan) -> PrecisionPlan:
        """``plan`` with what it leaves unset."""
        if not self.values:
            return plan
        filled = with_target(plan, self.values)
        origins = dict(filled.origins)
        for key, origin in self.origins.items():
            place = TARGET_KEYS[key]
            if place in origins and origins[place] is not plan.origins.get(place):
                origins[place] = origin
        return filled.model_copy(update={"origins": origins})


NOTHING_DECLARED = Declared()


def declared_in(sources: Iterable[Source]) -> Declared:
    """What the comments of some files declare; of a key that stands twice the first one counts."""
    values: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    problems: list[Diagnostic] = []
    for source in sources:
        if _MARKER not in source.data:
            continue
        for comment in _COMMENT.finditer(source.data):
            for word in _WORD.finditer(comment[1]):
                origin = source.origin(comment.start(1) + word.start())
                key, equals, value = word[0].decode("utf-8", "replace").partition("=")
                problem = _problem(key, bool(equals), value, values)
                if problem is not None:
                    message, fix = problem
                    problems.append(compose_diagnostic("PP907", message, origin, fix=fix))
                else:
                    values.setdefault(key, value)
                    origins.setdefault(key, origin)
    return Declared(values, origins, tuple(problems)) if values or problems else NOTHING_DECLARED


@lru_cache(maxsize=1024)
def _refusal(key: str, value: str) -> str | None:
    """Why the schema does not take a value."""
    try:
        check_target({key: value})
    except ValueError as error:
        return printable(str(error).removeprefix("target "))
    return None


def _problem(
    key: str, assigned: bool, value: str, so_far: Mapping[str, str]
) -> tuple[str, tuple[Fix, ...]] | None:
    shown = printable(key)
    if key not in TARGET_KEYS:
        close = closest(key, TARGET_KEYS)
        names = Fix(f"known keys: {listed(tuple(TARGET_KEYS), 40)}")
        return f"a target has no key {shown}", (
            (Fix(f"did you mean {close}?"),) if close else (names,)
        )
    if not assigned:
        return f"{shown} has no value: the comment takes key=value", ()
    refusal = _refusal(key, value)
    if refusal is not None:
        return refusal, ()
    if so_far.get(key, value) != value:
        return f"{shown} = {value} was declared before as {so_far[key]}", ()
    return None

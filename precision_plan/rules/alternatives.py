"""Judges a launch that may be one of several: what holds for each of them, holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from precision_plan.plan import CheckpointFiles, Diagnostic, PrecisionPlan
from precision_plan.rules.base import Context
from precision_plan.rules.engine import Report, check_context, rules_for
from precision_plan.rules.profiles import Profile

_FRAMEWORK = "software.framework"


def check_alternatives(
    plans: Sequence[PrecisionPlan],
    profile: Profile = "ci",
    checkpoint: CheckpointFiles | None = None,
) -> Report:
    """Run every rule over plans that differ in their framework only; at least one is given.

    A finding counts if it is found for all of them. A rule that does not speak about all of them,
    or finds something for some only, is unchecked for want of the framework.
    """
    first, *others = (Context(plan, checkpoint) for plan in plans)
    report = check_context(first, profile)
    if not others:
        return report
    fired = frozenset(each.id for each in report.diagnostics)
    found = [{_key(each): each for each in report.diagnostics}]
    unchecked = dict(report.unchecked)
    for context in others:
        again = check_context(context, profile, only=fired)  # the rest cannot be common
        found.append({_key(each): each for each in again.diagnostics})
        for rule_id, missing in again.unchecked.items():
            if unchecked.get(rule_id) == missing:
                continue
            unchecked[rule_id] = tuple(dict.fromkeys((*unchecked.get(rule_id, ()), *missing)))
    common = set(found[0]).intersection(*found[1:])
    undecided = _for_some(tuple(rules_for(context, profile) for context in (first, *others)))
    undecided |= {each.id for key, each in found[0].items() if key not in common}
    for rule_id in undecided:
        unchecked.setdefault(rule_id, (_FRAMEWORK,))
    names = [plan.software.framework or "" for plan in plans]
    kept = tuple(
        _undecided(diagnostic, [each[key] for each in found], names)
        for key, diagnostic in found[0].items()
        if key in common
    )
    return Report(kept, report.checked, unchecked)


@lru_cache(maxsize=64)
def _for_some(scopes: tuple[frozenset[str], ...]) -> frozenset[str]:
    """Rules that are in some of the scopes and not in all."""
    return frozenset.union(*scopes) - frozenset.intersection(*scopes)


def _key(diagnostic: Diagnostic) -> tuple[object, ...]:
    return (diagnostic.id, diagnostic.field, diagnostic.origin)


def _undecided(
    diagnostic: Diagnostic, same: Sequence[Diagnostic], names: Sequence[str]
) -> Diagnostic:
    """The finding without the name of one of the frameworks."""
    message = diagnostic.message
    if any(each.message != message for each in same):
        message = message.replace(names[0], "the framework")
    because = tuple(each for each in diagnostic.because if each.field != _FRAMEWORK)
    return replace(diagnostic, message=message, because=because)

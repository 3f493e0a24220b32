"""Judges a launch that may be one of several: what holds for each of them, holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from precision_plan.plan import CheckpointFiles, Diagnostic, PrecisionPlan
from precision_plan.rules.base import Context
from precision_plan.rules.engine import Report, check_context
from precision_plan.rules.profiles import Profile

_FRAMEWORK = "software.framework"


def check_alternatives(
    plans: Sequence[PrecisionPlan],
    profile: Profile = "ci",
    checkpoint: CheckpointFiles | None = None,
) -> Report:
    """Run every rule over plans that differ in their framework only; at least one is given.

    A finding counts if it is found for all of them. A rule that finds something for some only is
    unchecked for want of the framework.
    """
    reports = [check_context(Context(plan, checkpoint), profile) for plan in plans]
    first = reports[0]
    if len(reports) == 1:
        return first
    found = [{_key(each): each for each in report.diagnostics} for report in reports]
    common = set(found[0]).intersection(*found[1:])
    names = [plan.software.framework or "" for plan in plans]
    unchecked = dict(first.unchecked)
    for report in reports[1:]:
        for rule_id, missing in report.unchecked.items():
            unchecked[rule_id] = tuple(dict.fromkeys((*unchecked.get(rule_id, ()), *missing)))
    for each in found:
        for key, diagnostic in each.items():
            if key not in common:
                unchecked.setdefault(diagnostic.id, (_FRAMEWORK,))
    kept = tuple(
        _undecided(diagnostic, [each[key] for each in found], names)
        for key, diagnostic in found[0].items()
        if key in common
    )
    return Report(kept, min(report.checked for report in reports), unchecked)


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

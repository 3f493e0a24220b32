"""Runs the rules over a plan and turns findings into diagnostics with positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from precision_plan.plan import (
    UNKNOWN,
    Because,
    CheckpointFiles,
    Diagnostic,
    PrecisionPlan,
    Severity,
)
from precision_plan.plan.base import NotKnown
from precision_plan.rules.base import Context, Finding, Found, Rule
from precision_plan.rules.profiles import Profile, severity_under
from precision_plan.rules.registry import rules


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, how many rules ran, and those that could not (id -> what is unknown)."""

    diagnostics: tuple[Diagnostic, ...]
    checked: int
    unchecked: dict[str, tuple[str, ...]]


def check(
    plan: PrecisionPlan,
    profile: Profile = "ci",
    invalid: frozenset[str] = frozenset(),
    checkpoint: CheckpointFiles | None = None,
) -> Report:
    """Run every rule in scope over ``plan`` and, if somebody looked, its rollout checkpoint.

    ``invalid`` names plan fields whose value was refused by the schema: a finding that rests on
    one of them is dropped, because the value it speaks of was never read.
    """
    return check_context(Context(plan, checkpoint), profile, invalid)


def check_context(
    context: Context,
    profile: Profile = "ci",
    invalid: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> Report:
    """:func:`check` over a context that the caller built, to use it further.

    ``only`` names the rules to run, if not all shall be.
    """
    selection = _selection(context, profile)
    plan = context.plan
    diagnostics: list[Diagnostic] = []
    unchecked = dict(selection.unchecked)
    for examine, rule, severity in selection.runs:
        if only is not None and rule.id not in only:
            continue
        try:
            found = examine(context)
            if found is None:
                continue
            for finding in (found,) if isinstance(found, Finding) else found:
                if invalid and _rests_on(finding, invalid):
                    continue
                diagnostics.append(_diagnostic(rule, severity, finding, plan))
        except NotKnown as reason:  # what the rule had found before does not rest on it
            unchecked[rule.id] = (reason.field,)
    diagnostics.sort(key=Diagnostic.sort_key)
    checked = selection.checked - len(unchecked) + len(selection.unchecked)
    return Report(tuple(diagnostics), checked, unchecked)


def rules_for(context: Context, profile: Profile = "ci") -> frozenset[str]:
    """Rules that speak about the target of a context."""
    return _selection(context, profile).ids


def _selection(context: Context, profile: Profile) -> _Selection:
    target = context.target
    gpu_known = target.compute_capability is not None or target.platform == "rocm"
    return _select(profile, target.framework, target.versions, gpu_known, context.env_known)


class _Selection(NamedTuple):
    """What runs for a target (check, rule and severity), and what cannot for lack of knowledge."""

    runs: tuple[tuple[Callable[[Context], Found], Rule, Severity], ...]
    checked: int
    unchecked: tuple[tuple[str, tuple[str, ...]], ...]
    ids: frozenset[str]


@lru_cache(maxsize=512)
def _select(
    profile: Profile,
    framework: str | None,
    versions: tuple[tuple[str, str], ...],
    gpu_known: bool,
    env_known: bool,
) -> _Selection:
    """Rules in scope of a target; those that a profile silences count as checked."""
    known: dict[str, object] = dict(versions)
    if gpu_known:
        known["gpu"] = True
    if env_known:
        known["env"] = True
    applicable: list[Rule] = []
    unchecked: list[tuple[str, tuple[str, ...]]] = []
    for rule in rules().values():
        scope = rule.scope
        if scope.frameworks and framework is not None and framework not in scope.frameworks:
            continue
        if any(name in known and known[name] not in span for name, span in scope.versions.items()):
            continue
        missing = tuple(need for need in scope.needs if need not in known)
        missing += tuple(
            name
            for name, span in scope.versions.items()
            if name not in known and not span.is_open and name not in missing
        )
        if scope.frameworks and framework is None:
            missing += ("framework",)
        if missing:
            unchecked.append((rule.id, missing))
        else:
            applicable.append(rule)
    runs = tuple(
        (rule.check, rule, severity)
        for rule in applicable
        if (severity := severity_under(profile, rule)) is not None
    )
    ids = frozenset(rule.id for _, rule, _ in runs)
    return _Selection(runs, len(applicable), tuple(unchecked), ids)


def _rests_on(finding: Finding, invalid: frozenset[str]) -> bool:
    return finding.field in invalid or any(premise.field in invalid for premise in finding.because)


def _diagnostic(
    rule: Rule, severity: Severity, finding: Finding, plan: PrecisionPlan
) -> Diagnostic:
    return Diagnostic(
        id=rule.id,
        slug=rule.slug,
        severity=severity,
        message=finding.message,
        field=finding.field,
        origin=finding.origin or plan.origin(finding.field or ""),
        because=(
            *(_located(premise, plan) for premise in finding.because),
            *_folder(finding, plan),
        ),
        fix=finding.fix,
        source=rule.source,
        stage=finding.stage or rule.stage,
        resolved=finding.resolved,
    )


def _located(premise: Because, plan: PrecisionPlan) -> Because:
    if premise.field is None:
        return premise
    return replace(premise, origin=plan.origin(premise.field))


def _folder(finding: Finding, plan: PrecisionPlan) -> tuple[Because, ...]:
    """For a finding about a file: who names the folder, unless somebody asked for the folder."""
    field = "checkpoint.hf_checkpoint"
    origin = plan.origin(field)
    if finding.origin is None or origin == UNKNOWN:
        return ()
    return (Because(f"{field} = {plan.checkpoint.hf_checkpoint}", field, origin),)

"""One launch of a script as if it had been compiled: what ``diff``, ``why`` and ``lock`` ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from precision_plan.api.checking import Folders
from precision_plan.api.launch_names import numbered
from precision_plan.api.scripts import ScriptCheck, check_script
from precision_plan.compose.reading import display_path
from precision_plan.importers.job_words import unknown_texts
from precision_plan.lower import lower
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.compiled import Compiled
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.origin import Origin
from precision_plan.plan.unknown import settled
from precision_plan.rules.profiles import Profile

if TYPE_CHECKING:
    from precision_plan.importers.jobs import ImportedJob
    from precision_plan.plan.suppression import Suppression

_WAYS = 12
"""Launches of one script that a message lists."""


class CompiledLaunch(NamedTuple):
    """A compiled launch, and the launch as it was read: ``None`` if it is broken."""

    compiled: Compiled
    job: ImportedJob | None = None
    suppressions: tuple[Suppression, ...] = ()


def compile_launch(
    source: str | Path, overrides: Sequence[str], profile: Profile
) -> CompiledLaunch:
    """Check and lower one launch of a script.

    Of a plan with fields that are not known, what the others lower to is there.
    """
    started = perf_counter()
    path, number = numbered(source)
    checked = check_script(path, profile, {}, Folders())
    shown = display_path(path)
    problems = tuple(filter(is_broken_input, checked.diagnostics))
    if not problems:
        problems = _unclear(shown, overrides, checked.jobs, number)
    if problems:
        plan = PrecisionPlan()
        return CompiledLaunch(Compiled(shown, plan, problems, None, plan.fingerprint(), 0, {}, 0.0))
    at = (number or 1) - 1
    job = checked.jobs[at]
    compiled = Compiled(
        name=shown if number is None else f"{shown}#{number}",
        plan=job.plan,
        diagnostics=tuple(_of_launch(checked, at)),
        lowering=lower(settled(job.plan)),
        fingerprint=job.plan.fingerprint(),
        rules_checked=checked.rules,
        unchecked=checked.unchecked,
        seconds=perf_counter() - started,
        unknown=unknown_texts(job),
    )
    suppressions = checked.script.suppressions if checked.script else ()
    return CompiledLaunch(compiled, job, suppressions)


def _of_launch(checked: ScriptCheck, at: int) -> Iterator[Diagnostic]:
    """The findings of one launch, and those of the script."""

    def keys(of_job: Sequence[Diagnostic]) -> set[tuple[object, ...]]:
        return {(each.id, each.message, each.origin) for each in of_job}

    mine = keys(checked.by_job[at])
    others = set[tuple[object, ...]]().union(*map(keys, checked.by_job)) - mine
    for found in checked.diagnostics:
        if (found.id, found.message, found.origin) not in others:
            yield found


def _unclear(
    shown: str, overrides: Sequence[str], jobs: Sequence[ImportedJob], number: int | None
) -> tuple[Diagnostic, ...]:
    """Why it is not clear which launch is meant."""
    if overrides:
        message = f"{shown} is a script: overrides belong to a recipe"
        return (compose_diagnostic("PP009", message, Origin(shown)),)
    if not jobs:
        message = f"{shown} starts nothing that is known as training or serving"
        return (compose_diagnostic("PP036", message, Origin(shown)),)
    if (number is None and len(jobs) == 1) or (number is not None and 0 < number <= len(jobs)):
        return ()
    ways = tuple(
        Because(f"{shown}#{at}: {', '.join(map(str, job.branches)) or 'in every case'}",
                origin=job.command.origin)
        for at, job in enumerate(jobs[:_WAYS], 1)
    )  # fmt: skip
    message = f"{shown} starts {len(jobs)} launches, or one in {len(jobs)} ways"
    fix = (Fix(f"name one: {shown}#1"),)
    return (compose_diagnostic("PP036", message, Origin(shown), because=ways, fix=fix),)

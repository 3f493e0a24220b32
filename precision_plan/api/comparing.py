"""Two plans beside each other: what differs, and what a lock file keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from precision_plan.api.checking import check_profile
from precision_plan.api.compiling import compile
from precision_plan.compose import Composer
from precision_plan.compose.overrides import parse_overrides
from precision_plan.compose.reading import Unreadable, display_path, read_text
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.compiled import Compiled, LintReport
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.origin import Origin
from precision_plan.rules.profiles import Profile

if TYPE_CHECKING:
    from precision_plan.importers.jobs import ImportedJob
    from precision_plan.plan.comparison import Comparison
    from precision_plan.plan.lock import Lock
    from precision_plan.plan.snapshot import Snapshot

_LOCK_SUFFIX = ".lock"
_WAYS = 12
"""Launches of one script that a message lists."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side to compare: a recipe with its overrides, a lock file, or a launch of a script."""

    source: str | Path
    overrides: tuple[str, ...] = ()


def diff(
    a: Side | Compiled | Snapshot,
    b: Side | Compiled | Snapshot,
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Comparison:
    """What differs from ``a`` to ``b``: plan fields, what they lower to, and findings.

    A side is a recipe, a lock file or a launch script (``run.sh#2`` if it has several launches),
    or what compiling something else gave. What is wrong with a side is in its ``diagnostics``;
    nothing about it is raised.

    Raises:
        ValueError: if there is no such profile.
    """
    from precision_plan.plan.comparison import compare

    check_profile(profile)

    def snapshot(side: Side | Compiled | Snapshot) -> Snapshot:
        from precision_plan.plan.snapshot import snapshot_of

        if isinstance(side, Side):
            return _read(side, conf_dir, search_paths, profile)
        return snapshot_of(side) if isinstance(side, Compiled) else side

    return compare(snapshot(a), snapshot(b))


def _read(
    side: Side,
    conf_dir: str | Path | None,
    search_paths: Sequence[str | Path],
    profile: Profile,
) -> Snapshot:
    from precision_plan.plan.lock import BrokenLock, read_lock
    from precision_plan.plan.snapshot import Snapshot, snapshot_of

    if _is_script(side.source):
        return _script(side, profile)
    text = _lock_text(side.source)
    if text is not None:
        shown = display_path(Path(side.source))
        try:
            return replace(read_lock(text, shown).snapshot, name=shown)
        except BrokenLock as error:
            return Snapshot(shown, "lock", diagnostics=(error.diagnostic,))
    found = compile(
        side.source, side.overrides, conf_dir=conf_dir, search_paths=search_paths, profile=profile
    )
    name = " ".join((str(side.source), *_shown(side.overrides)))
    return replace(snapshot_of(found), name=name)


def _is_script(source: str | Path) -> bool:
    """True for a shell script, also with the number of a launch behind it: ``run.sh#2``."""
    from precision_plan.compose.discovery import is_script

    try:
        return is_script(_numbered(source)[0])
    except (OSError, ValueError):
        return False


def _numbered(source: str | Path) -> tuple[Path, int | None]:
    """``run.sh#2`` as path and number."""
    head, mark, number = str(source).rpartition("#")
    if mark and number.isdecimal() and len(number) < 5 and not Path(source).exists():
        return Path(head), int(number)
    return Path(source), None


def _script(side: Side, profile: Profile) -> Snapshot:
    """One launch of a script; effects are known if every field is."""
    from precision_plan.api.checking import Folders
    from precision_plan.api.scripts import check_script
    from precision_plan.lower import lower
    from precision_plan.plan.codes import is_broken_input
    from precision_plan.plan.snapshot import Snapshot, snapshot_of
    from precision_plan.plan.unknown import settled

    path, number = _numbered(side.source)
    checked = check_script(path, profile, {}, Folders())
    shown = display_path(path)
    problems = tuple(filter(is_broken_input, checked.diagnostics))
    if not problems:
        problems = _unclear(shown, side, checked.jobs, number)
    if problems:
        return Snapshot(shown, "script", diagnostics=problems)
    job = checked.jobs[(number or 1) - 1]
    compiled = Compiled(
        name=shown if number is None else f"{shown}#{number}",
        plan=job.plan,
        diagnostics=checked.diagnostics,
        lowering=lower(settled(job.plan)),
        fingerprint=job.plan.fingerprint(),
        rules_checked=checked.rules,
        unchecked=checked.unchecked,
        seconds=0.0,
    )
    return snapshot_of(compiled, "script")


def _unclear(
    shown: str, side: Side, jobs: Sequence[ImportedJob], number: int | None
) -> tuple[Diagnostic, ...]:
    """Why it is not clear which launch is meant."""
    if side.overrides:
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


def _lock_text(source: str | Path) -> str | None:
    """The text of a lock file; ``None`` for what is or names a recipe."""
    from precision_plan.plan.lock import is_lock

    path = Path(source)
    try:
        text = read_text(path, display_path(path))
    except (Unreadable, ValueError):
        return None  # a name in conf/recipes, or a path of which compiling says what is wrong
    return text if is_lock(text) or path.suffix == _LOCK_SUFFIX else None


# Locks ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Locked:
    """The text of a lock, and the findings; no text if there are errors to mend first."""

    text: str | None
    report: LintReport


def lock(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Locked:
    """Write a plan down: what it says and lowers to, the versions assumed, the findings accepted.

    The arguments are those of :func:`compile`. A plan with errors is not locked.

    Raises:
        ValueError: if there is no such profile.
    """
    from precision_plan.plan.lock import lock_text
    from precision_plan.plan.snapshot import snapshot_of

    compiled = compile(
        recipe, overrides, conf_dir=conf_dir, search_paths=search_paths, profile=profile
    )
    report = _report(recipe, compiled, compiled.diagnostics)
    if compiled.exit_code:
        return Locked(None, report)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    text = lock_text(snapshot_of(compiled), _shown(overrides), composition.suppressions)
    return Locked(text, report)


def lint_lock(
    recipe: str | Path,
    lock_file: str | Path,
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> LintReport:
    """Check a recipe as :func:`lint` does, and whether it still is what was locked.

    The overrides that the lock was written with are applied. Findings of a lock that cannot be
    read stand for themselves: nothing else is looked at.

    Raises:
        ValueError: if there is no such profile.
    """
    from precision_plan.plan.comparison import compare
    from precision_plan.plan.lock_findings import lock_findings
    from precision_plan.plan.snapshot import snapshot_of

    started = perf_counter()
    check_profile(profile)
    locked = _read_lock(Path(lock_file))
    if isinstance(locked, Diagnostic):
        return LintReport((locked,), (), 0, {}, perf_counter() - started)
    compiled = compile(
        recipe, locked.overrides, conf_dir=conf_dir, search_paths=search_paths, profile=profile
    )
    found = compiled.diagnostics
    if compiled.lowering is not None:
        more = lock_findings(locked, compare(locked.snapshot, snapshot_of(compiled)))
        found += tuple(each for each in more if profile != "explore" or each.severity == "error")
    report = _report(recipe, compiled, tuple(sorted(found, key=Diagnostic.sort_key)))
    return replace(report, seconds=perf_counter() - started)


def _read_lock(path: Path) -> Lock | Diagnostic:
    from precision_plan.plan.lock import BrokenLock, read_lock

    shown = display_path(path)
    try:
        return read_lock(read_text(path, shown), shown)
    except (BrokenLock, Unreadable) as error:
        return error.diagnostic


def _report(
    recipe: str | Path, compiled: Compiled, diagnostics: tuple[Diagnostic, ...]
) -> LintReport:
    return LintReport(
        diagnostics=diagnostics,
        files=(str(recipe),),
        rules_checked=compiled.rules_checked,
        unchecked=compiled.unchecked,
        seconds=compiled.seconds,
    )


def _shown(overrides: Sequence[str]) -> list[str]:
    """Overrides as they may be written down: without the values of secrets."""
    parsed, _ = parse_overrides(overrides)
    return [override.shown for override in parsed]

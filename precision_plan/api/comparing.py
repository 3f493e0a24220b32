"""Two plans beside each other: what differs, and what a lock file keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from precision_plan.api.checking import check_profile
from precision_plan.api.compiling import compile
from precision_plan.api.launch_names import names_script
from precision_plan.compose import Composer
from precision_plan.compose.overrides import parse_overrides
from precision_plan.compose.reading import Unreadable, display_path, read_text
from precision_plan.plan.compiled import Compiled, LintReport
from precision_plan.plan.diagnostic import Diagnostic
from precision_plan.rules.profiles import Profile

if TYPE_CHECKING:
    from precision_plan.plan.comparison import Comparison
    from precision_plan.plan.lock import Lock
    from precision_plan.plan.snapshot import Snapshot

_LOCK_SUFFIX = ".lock"


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

    if names_script(side.source):
        from precision_plan.api.script_compiling import compile_launch

        return snapshot_of(compile_launch(side.source, side.overrides, profile).compiled, "script")
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

    The arguments are those of :func:`compile`; ``recipe`` may be a launch script (``run.sh#2``).
    A plan with errors is not locked.

    Raises:
        ValueError: if there is no such profile.
    """
    from precision_plan.plan.lock import lock_text
    from precision_plan.plan.snapshot import snapshot_of

    check_profile(profile)
    if names_script(recipe):
        return _lock_launch(recipe, overrides, profile)
    compiled = compile(
        recipe, overrides, conf_dir=conf_dir, search_paths=search_paths, profile=profile
    )
    report = _report(recipe, compiled, compiled.diagnostics)
    if compiled.exit_code:
        return Locked(None, report)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    text = lock_text(snapshot_of(compiled), _shown(overrides), composition.suppressions)
    return Locked(text, report)


def _lock_launch(source: str | Path, overrides: Sequence[str], profile: Profile) -> Locked:
    from precision_plan.api.script_compiling import compile_launch
    from precision_plan.plan.lock import lock_text
    from precision_plan.plan.snapshot import snapshot_of

    found = compile_launch(source, overrides, profile)
    report = _report(source, found.compiled, found.compiled.diagnostics)
    if found.compiled.exit_code:
        return Locked(None, report)
    text = lock_text(snapshot_of(found.compiled, "script"), (), found.suppressions)
    return Locked(text, report)


def lint_lock(
    recipe: str | Path,
    lock_file: str | Path,
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> LintReport:
    """Check a recipe or script as :func:`lint` does, and whether it still is what was locked.

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
    script = names_script(recipe)
    if script:
        from precision_plan.api.script_compiling import compile_launch

        compiled = compile_launch(recipe, locked.overrides, profile).compiled
    else:
        compiled = compile(
            recipe, locked.overrides, conf_dir=conf_dir, search_paths=search_paths, profile=profile
        )
    found = compiled.diagnostics
    if compiled.lowering is not None:
        today = snapshot_of(compiled, "script" if script else "recipe")
        more = lock_findings(locked, compare(locked.snapshot, today))
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

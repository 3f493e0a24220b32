"""Launch scripts: read without running them, turned into plans, checked on every way through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.api.checking import Folders
from precision_plan.api.launch_files import NOTHING_INSTEAD, Script, read_launches
from precision_plan.api.script_report import Scripts
from precision_plan.plan import Because, Diagnostic, Origin
from precision_plan.plan.leftover import Leftover
from precision_plan.rules.alternatives import check_alternatives
from precision_plan.rules.profiles import Profile
from precision_plan.rules.suppress import suppress

if TYPE_CHECKING:
    from precision_plan.compose.discovery import Discovery
    from precision_plan.importers.jobs import Branch, ImportedJob


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """What there is to say about one script. ``jobs`` are its launches, one for each way.

    ``by_job`` are the findings of each launch alone, as they were before comments silenced any.
    """

    diagnostics: tuple[Diagnostic, ...]
    jobs: tuple[ImportedJob, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    rules: int = 0
    unchecked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_job: tuple[tuple[Diagnostic, ...], ...] = ()
    script: Script | None = None

    @property
    def is_launch(self) -> bool:
        """False for a script that starts nothing that is known here."""
        return bool(self.jobs)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The findings about one launch."""

    job: ImportedJob
    diagnostics: tuple[Diagnostic, ...]
    rules: int
    unchecked: Mapping[str, tuple[str, ...]]


def check_script(
    path: Path,
    profile: Profile,
    target: Mapping[str, str],
    folders: Folders,
    instead: Mapping[str, bytes] = NOTHING_INSTEAD,
) -> ScriptCheck:
    """Read one file and check every launch in it; a file that cannot be read is a finding.

    ``instead`` is that of :func:`read_launches`.
    """
    read = read_launches(path, target, instead)
    judged = [_judge(job, profile, folders) for job in read.jobs]
    unchecked = _all_unchecked(judged)
    kept = suppress([*read.diagnostics, *_together(judged)], read.suppressions, unchecked)
    if profile == "explore":
        kept = tuple(diagnostic for diagnostic in kept if diagnostic.severity == "error")
    return ScriptCheck(
        tuple(sorted(kept, key=Diagnostic.sort_key)),
        read.jobs,
        read.leftovers,
        max((each.rules for each in judged), default=0),
        unchecked,
        tuple(each.diagnostics for each in judged),
        read,
    )


def check_scripts(
    found: Discovery, profile: Profile, target: Mapping[str, str], folders: Folders
) -> Scripts:
    """Check every script, and every file whose content may be that of a launch."""
    diagnostics: list[Diagnostic] = []
    files: list[Path] = []
    skipped: list[Path] = []
    foreign: list[Path] = []
    leftovers: list[Leftover] = []
    checks: list[ScriptCheck] = []
    for path in (*found.scripts, *found.others):
        check = check_script(path, profile, target, folders)
        named = path in found.others
        if not check.is_launch and (named or not check.diagnostics):
            (foreign if named else skipped).append(path)
            continue
        checks.append(check)
        files.append(path)
        diagnostics += check.diagnostics
        leftovers += check.leftovers if check.is_launch else ()
    return Scripts(
        tuple(diagnostics),
        tuple(files),
        tuple(skipped),
        tuple(foreign),
        tuple(leftovers),
        max((check.rules for check in checks), default=0),
        _all_unchecked(checks),
    )


def _judge(job: ImportedJob, profile: Profile, folders: Folders) -> _Judged:
    """Check a launch as each framework that it may be; what all of them say, is so."""
    from precision_plan.importers.checkpoint_folder import with_folder

    folder, plans = folders.of(job.plan), job.alternatives()
    if folder is not None:
        plans = tuple(with_folder(plan, folder) for plan in plans)
    report = check_alternatives(plans, profile, folder)
    found = (*job.diagnostics, *(_placed(each, job) for each in report.diagnostics))
    return _Judged(job, found, report.checked, report.unchecked)


def _placed(diagnostic: Diagnostic, job: ImportedJob) -> Diagnostic:
    """A finding about what the script does not say stands where its first premise was written.

    Without a premise in the script it stands where the launch does.
    """
    if diagnostic.origin.line:
        return diagnostic
    written = (each.origin for each in diagnostic.because if each.origin and each.origin.line)
    return replace(diagnostic, origin=next(written, job.command.origin))


def _all_unchecked(judged: Iterable[_Judged | ScriptCheck]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in judged:
        for id, missing in each.unchecked.items():
            found[id] = tuple(dict.fromkeys((*found.get(id, ()), *missing)))
    return found


_Key = tuple[str, str, Origin]


def _together(judged: Sequence[_Judged]) -> list[Diagnostic]:
    """Findings of all ways, each once; one that not every way has tells the way."""
    found: dict[_Key, Diagnostic] = {}
    ways: dict[_Key, list[ImportedJob]] = {}
    for each in judged:
        for diagnostic in each.diagnostics:
            key = (diagnostic.id, diagnostic.message, diagnostic.origin)
            found.setdefault(key, diagnostic)
            ways.setdefault(key, []).append(each.job)
    started = [each.job for each in judged]
    return [
        _with_way(diagnostic, _decisive(ways[key], started)) for key, diagnostic in found.items()
    ]


def _decisive(having: list[ImportedJob], started: list[ImportedJob]) -> tuple[Branch, ...]:
    """The decisions that a finding depends on: those of its ways that not every way took.

    Only launches at the same place are ways of one another.
    """
    places = {job.command.origin for job in having}
    rest = [job for job in started if job.command.origin in places and job not in having]
    if not rest:
        return ()
    shared = [
        branch for branch in having[0].branches if all(branch in job.branches for job in having)
    ]
    decisive = [branch for branch in shared if any(branch not in job.branches for job in rest)]
    return tuple(decisive or having[0].branches)


def _with_way(diagnostic: Diagnostic, branches: tuple[Branch, ...]) -> Diagnostic:
    if not branches:
        return diagnostic
    premises = tuple(Because(f"where {branch}", None, branch.origin) for branch in branches)
    return replace(diagnostic, because=(*diagnostic.because, *premises))

"""Any number of recipes, scripts and checkpoint folders: found and checked, not lowered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from precision_plan.api.checking import NO_TITLE, Folders, check, check_profile
from precision_plan.api.script_report import Scripts
from precision_plan.compose import Composer, build_plan
from precision_plan.compose.discovery import discover
from precision_plan.compose.reading import display_path
from precision_plan.plan import UNKNOWN, CheckpointFiles, Diagnostic, Fix, Origin
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.compiled import LintReport
from precision_plan.plan.given_target import check_target, with_target
from precision_plan.rules import engine
from precision_plan.rules.profiles import Profile
from precision_plan.rules.registry import rules as all_rules
from precision_plan.rules.suppress import suppress

_OF_WHOLE_RECIPES = frozenset({NO_TITLE, "PP014"})
"""Findings that say nothing of a group file: its title, and keys that other files set."""


def lint(
    paths: Iterable[str | Path],
    *,
    profile: Profile = "ci",
    target: Mapping[str, str] | None = None,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    skip_others: bool = False,
) -> LintReport:
    """Check recipes, group files, scripts and checkpoint folders below ``paths``.

    Nothing is lowered, and nothing is run.

    A recipe or group file in a configuration folder is composed with that folder, any other with
    ``conf_dir``. A group file is checked against the schema alone: it is no complete plan.
    Of a shell script, every launch in it is checked, in every branch that can be reached.
    A checkpoint folder is checked as an engine would load it. ``target`` (keys of
    :data:`plan.given_target.TARGET_KEYS`) fills in what a recipe or folder does not declare.
    ``skip_others`` passes over named files that are no recipes, as over those in a folder.

    Raises:
        ValueError: if there is no such profile or target key, or a target value is impossible.
    """
    started = perf_counter()
    check_profile(profile)
    check_target(target or {})
    found = discover(paths, skip_others=skip_others)
    diagnostics = [*map(_missing, found.missing), *map(_foreign, found.foreign)]
    composers: dict[Path | None, Composer] = {}
    folders = Folders()
    rules = 0
    unchecked: dict[str, tuple[str, ...]] = {}
    for candidate in found.candidates:
        folder = candidate.conf if conf_dir is None else None
        composer = composers.get(folder)
        if composer is None:
            composer = composers[folder] = Composer(folder or conf_dir, search_paths)
        if candidate.section is not None:
            diagnostics += check_group(composer, candidate.section, candidate.path)
            continue
        checked = check(composer.compose(candidate.path), profile, target, folders)
        diagnostics += _placed(checked.diagnostics, display_path(candidate.path))
        rules = max(rules, checked.rules)
        _add(unchecked, checked.unchecked)
    scripts = Scripts()
    if found.scripts or found.others:
        from precision_plan.api.scripts import check_scripts  # recipes need no shell grammar

        scripts = check_scripts(found, profile, target or {}, folders)
        diagnostics += (*scripts.diagnostics, *map(_foreign, scripts.foreign))
        rules = max(rules, scripts.rules)
        _add(unchecked, scripts.unchecked)
    for path in found.checkpoints:
        report = _check_folder(folders.at(path), profile, target)
        diagnostics += _placed(report.diagnostics, display_path(path))
        rules = max(rules, report.checked)
        _add(unchecked, report.unchecked)
    return LintReport(
        diagnostics=_distinct(diagnostics),
        files=tuple(
            display_path(path)
            for path in (
                *(each.path for each in found.candidates),
                *scripts.files,
                *found.checkpoints,
            )
        ),
        rules_checked=rules,
        unchecked=unchecked,
        seconds=perf_counter() - started,
        skipped=tuple(map(display_path, (*found.skipped, *scripts.skipped))),
        leftovers=scripts.leftovers,
    )


def _placed(diagnostics: Iterable[Diagnostic], file: str) -> Iterable[Diagnostic]:
    """Findings about what no line says, at least with the file that they are about."""
    for found in diagnostics:
        origins = (found.origin, *(premise.origin for premise in found.because))
        nowhere = all(origin == UNKNOWN for origin in origins)
        yield replace(found, origin=Origin(file)) if nowhere else found


def _add(unchecked: dict[str, tuple[str, ...]], more: Mapping[str, tuple[str, ...]]) -> None:
    for id, missing in more.items():
        unchecked[id] = tuple(dict.fromkeys((*unchecked.get(id, ()), *missing)))


def _check_folder(
    files: CheckpointFiles, profile: Profile, target: Mapping[str, str] | None
) -> engine.Report:
    """Check a checkpoint folder by itself: its files make the plan, ``target`` the rest."""
    from precision_plan.importers.checkpoint_folder import plan_of

    target = dict(target or {})
    plan = plan_of(files, target.pop("framework", None))
    return engine.check(with_target(plan, target), profile, checkpoint=files)


def check_group(composer: Composer, section: str, file: Path) -> tuple[Diagnostic, ...]:
    """Check a group file by itself, against the schema.

    No rule runs, so that a suppression of a rule's finding is not unused.
    """
    composition = composer.compose(None, (f"{section}={file.stem}",))
    found = (*composition.diagnostics, *build_plan(composition).diagnostics)
    kept = [diagnostic for diagnostic in found if diagnostic.id not in _OF_WHOLE_RECIPES]
    return suppress(kept, composition.suppressions, all_rules())


def _distinct(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted, each once: what is wrong with a group is found in every recipe that uses it."""
    seen: dict[tuple[object, ...], Diagnostic] = {}
    for found in diagnostics:
        key = (found.id, found.message, found.origin, tuple(each.text for each in found.because))
        seen.setdefault(key, found)
    return tuple(sorted(seen.values(), key=Diagnostic.sort_key))


def _missing(path: str) -> Diagnostic:
    if not path:
        return compose_diagnostic("PP010", "an empty path names no file or folder")
    return compose_diagnostic("PP010", f"{path} does not exist", Origin(path))


def _foreign(path: Path) -> Diagnostic:
    return compose_diagnostic(
        "PP010",
        f"{path} is neither a recipe (*.yaml, *.yml) nor a shell script",
        Origin(str(path)),
        fix=(Fix("name recipes, shell scripts, folders of them, or a checkpoint's folder"),),
    )

"""The pipeline, and the one place where composing, rules and lowering meet.

``compile`` turns one recipe into a checked plan with everything that a launch needs; ``lint``
checks any number of recipes and stops before lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from precision_plan.compose import Composer, build_plan
from precision_plan.compose.discovery import discover
from precision_plan.compose.reading import display_path, is_folder
from precision_plan.plan import CheckpointFiles, Diagnostic, Fix, Origin, PrecisionPlan
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.compiled import Compiled, LintReport, Preflight
from precision_plan.plan.given_target import check_target, with_target
from precision_plan.plan.target import PACKAGES
from precision_plan.rules import engine
from precision_plan.rules.profiles import PROFILES, Profile
from precision_plan.rules.suppress import suppress

if TYPE_CHECKING:
    from precision_plan.compose import Composition
    from precision_plan.plan.matrix import Matrix


def compile(
    recipe: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Compiled:
    """Compile one recipe: compose, check, lower.

    Args:
        recipe: name of a recipe in ``conf/recipes``, a YAML file, or ``None`` if the overrides
            choose it (``+recipe=NAME``).
        overrides: in Hydra's grammar, as on its command line.
        conf_dir: configuration folder; default ``./conf`` if there is one, else the package's.
        search_paths: more folders with groups and recipes.
        profile: how strict to be, one of :data:`rules.profiles.PROFILES`.

    What is wrong with the recipe is in ``diagnostics``; nothing about it is raised.

    Raises:
        ValueError: if there is no such profile.
    """
    started = perf_counter()
    _check_profile(profile)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    checked = _check(composition, profile)
    lowering = None
    if not checked.broken:
        from precision_plan.lower import lower

        lowering = lower(checked.plan)
    return Compiled(
        name=composition.name,
        plan=checked.plan,
        diagnostics=checked.diagnostics,
        lowering=lowering,
        fingerprint=checked.plan.fingerprint(),
        rules_checked=checked.rules,
        unchecked=checked.unchecked,
        seconds=perf_counter() - started,
        options=composition.options,
    )


_NO_TITLE = "PP013"
_OF_WHOLE_RECIPES = frozenset({_NO_TITLE, "PP014"})
"""Findings that say nothing of a group file: its title, and keys that other files set."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A plan and everything that there is to say about it."""

    plan: PrecisionPlan
    diagnostics: tuple[Diagnostic, ...]
    rules: int
    unchecked: Mapping[str, tuple[str, ...]]
    broken: bool
    folder: CheckpointFiles | None = None


def _check(
    composition: Composition,
    profile: Profile,
    target: Mapping[str, str] | None = None,
    folders: _Folders | None = None,
) -> _Checked:
    """Validate and check one composition; rules do not run over input that could not be read."""
    built = build_plan(composition)
    found = (*composition.diagnostics, *built.diagnostics)
    plan, checked, rules, unchecked = built.plan, built.assumed, 0, {}
    folder = None
    broken = any(map(is_broken_input, found))
    if broken:
        found = tuple(each for each in found if each.id != _NO_TITLE)
    else:
        if target:
            plan, checked = with_target(plan, target), with_target(checked, target)
        folder = (folders or _Folders()).of(checked)
        report = engine.check(checked, profile, built.invalid, folder)
        found += report.diagnostics
        rules, unchecked = report.checked, report.unchecked
    kept = suppress(found, composition.suppressions, unchecked)
    if profile == "explore":
        kept = tuple(diagnostic for diagnostic in kept if diagnostic.severity == "error")
    kept = tuple(sorted(kept, key=Diagnostic.sort_key))
    return _Checked(plan, kept, rules, unchecked, broken, folder)


class _Folders:
    """Checkpoint folders on this machine, each read once in a run."""

    def __init__(self) -> None:
        self._read: dict[str, CheckpointFiles] = {}

    def of(self, plan: PrecisionPlan) -> CheckpointFiles | None:
        """The folder that ``checkpoint.hf_checkpoint`` names, if there is one here.

        A relative path is looked for below ``launch.working_dir``, then below the current folder.
        A path that leads to no folder is unknown: it lies on the cluster, or names a repository.
        """
        named = plan.checkpoint.hf_checkpoint
        if not named or "\0" in named:
            return None
        for start in (plan.launch.working_dir or "", ""):
            path = Path(start, named)
            if is_folder(path):
                return self.at(path)
        return None

    def at(self, path: Path) -> CheckpointFiles:
        """What lies in a folder."""
        from precision_plan.importers.checkpoint_folder import interpreted
        from precision_plan.preflight.checkpoint import read_checkpoint

        shown = display_path(path)
        found = self._read.get(shown)
        if found is None:
            found = self._read[shown] = interpreted(read_checkpoint(path, shown))
        return found


class _Nowhere(_Folders):
    """As if no folder were here: what is found without looking."""

    def of(self, plan: PrecisionPlan) -> CheckpointFiles | None:
        """Nothing."""
        return None


def _check_profile(profile: str) -> None:
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}; known: {', '.join(PROFILES)}")


def lint(
    paths: Iterable[str | Path],
    *,
    profile: Profile = "ci",
    target: Mapping[str, str] | None = None,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
) -> LintReport:
    """Check recipes, group files and checkpoint folders below ``paths``; nothing is lowered.

    A recipe or group file in a configuration folder is composed with that folder, any other with
    ``conf_dir``. A group file is checked against the schema alone: it is no complete plan.
    A checkpoint folder is checked as an engine would load it. ``target`` (keys of
    :data:`plan.given_target.TARGET_KEYS`) fills in what a recipe or folder does not declare.

    Raises:
        ValueError: if there is no such profile or target key, or a target value is impossible.
    """
    started = perf_counter()
    _check_profile(profile)
    check_target(target or {})
    found = discover(paths)
    diagnostics = [*map(_missing, found.missing), *map(_foreign, found.foreign)]
    composers: dict[Path | None, Composer] = {}
    folders = _Folders()
    rules = 0
    unchecked: dict[str, tuple[str, ...]] = {}
    for candidate in found.candidates:
        folder = candidate.conf if conf_dir is None else None
        composer = composers.get(folder)
        if composer is None:
            composer = composers[folder] = Composer(folder or conf_dir, search_paths)
        if candidate.section is not None:
            diagnostics += _check_group(composer, candidate.section, candidate.path)
            continue
        checked = _check(composer.compose(candidate.path), profile, target, folders)
        diagnostics += checked.diagnostics
        rules = max(rules, checked.rules)
        _add(unchecked, checked.unchecked)
    for path in found.checkpoints:
        report = _check_folder(folders.at(path), profile, target)
        diagnostics += report.diagnostics
        rules = max(rules, report.checked)
        _add(unchecked, report.unchecked)
    return LintReport(
        diagnostics=_distinct(diagnostics),
        files=tuple(
            display_path(path)
            for path in (*(each.path for each in found.candidates), *found.checkpoints)
        ),
        rules_checked=rules,
        unchecked=unchecked,
        seconds=perf_counter() - started,
        skipped=tuple(map(display_path, found.skipped)),
    )


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


_UNSEEN = ("hardware", "software", "Ray cluster", "checkpoint.load", "checkpoint.ref_load")
"""What a preflight does not look at yet."""


def preflight(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Preflight:
    """Look at the checkpoint folder that one recipe names, and say what is not looked at.

    The arguments are those of :func:`compile`. Findings that do not rest on the folder are left
    to :func:`lint`.

    Raises:
        ValueError: if there is no such profile.
    """
    started = perf_counter()
    _check_profile(profile)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    checked = _check(composition, profile)
    found = checked.diagnostics
    if not checked.broken:
        without = _check(composition, profile, folders=_Nowhere()).diagnostics
        found = tuple(each for each in found if each not in without)
    return Preflight(
        name=composition.name,
        diagnostics=found,
        seen={"checkpoint.hf_checkpoint": _seen(checked)},
        unseen=_UNSEEN,
        rules_checked=checked.rules,
        unchecked=checked.unchecked,
        seconds=perf_counter() - started,
    )


def _seen(checked: _Checked) -> str:
    named, files = checked.plan.checkpoint.hf_checkpoint, checked.folder
    if files is None:
        return f"unknown: {named} is no folder here" if named else "the recipe names none"
    shards = len(files.shards)
    tensors = "not read" if files.tensors is None else f"{len(files.tensors):,}"
    return (
        f"{files.folder}: headers of {shards} shard{'' if shards == 1 else 's'}, tensors: {tensors}"
    )


def _check_group(composer: Composer, section: str, file: Path) -> tuple[Diagnostic, ...]:
    composition = composer.compose(None, (f"{section}={file.stem}",))
    found = (*composition.diagnostics, *build_plan(composition).diagnostics)
    kept = [diagnostic for diagnostic in found if diagnostic.id not in _OF_WHOLE_RECIPES]
    return suppress(kept, composition.suppressions)


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
        f"{path} is no recipe: its name does not end in .yaml or .yml",
        Origin(str(path)),
        fix=(Fix("name recipes (*.yaml, *.yml), folders of them, or a checkpoint's folder"),),
    )


def matrix(
    gpus: Sequence[str],
    *,
    frameworks: Sequence[str],
    versions: Mapping[str, str] | None = None,
) -> Matrix:
    """Which trained format goes with which rollout format: every cell judged by the rules.

    Args:
        gpus: names as in ``hardware.gpu``.
        frameworks: RL frameworks, names as in ``software.framework``.
        versions: of packages (:data:`plan.target.PACKAGES`); what is absent is unknown.

    Raises:
        KeyError: if there is no such GPU.
        ValueError: if a version is impossible or of another thing than a package.
    """
    from precision_plan.rules.matrix import matrix as judge

    other = [name for name in versions or {} if name not in PACKAGES]
    if other:
        raise ValueError(f"{other[0]!r} is no package; known: {', '.join(PACKAGES)}")
    check_target(versions or {})
    return judge(gpus, frameworks, versions or {})

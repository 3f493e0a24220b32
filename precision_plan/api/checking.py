"""Checks one composition: what ``compile``, ``lint`` and ``preflight`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.compose import build_plan
from precision_plan.compose.reading import display_path, is_folder
from precision_plan.plan import CheckpointFiles, Diagnostic, PrecisionPlan
from precision_plan.plan.codes import is_broken_input
from precision_plan.plan.given_target import with_target
from precision_plan.plan.unknown import known
from precision_plan.rules import engine
from precision_plan.rules.profiles import PROFILES, Profile
from precision_plan.rules.suppress import suppress

if TYPE_CHECKING:
    from precision_plan.compose import Composition

NO_TITLE = "PP013"


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan and everything that there is to say about it."""

    plan: PrecisionPlan
    diagnostics: tuple[Diagnostic, ...]
    rules: int
    unchecked: Mapping[str, tuple[str, ...]]
    broken: bool
    folder: CheckpointFiles | None = None


def check(
    composition: Composition,
    profile: Profile,
    target: Mapping[str, str] | None = None,
    folders: Folders | None = None,
) -> Checked:
    """Validate and check one composition; rules do not run over input that could not be read."""
    built = build_plan(composition)
    found = (*composition.diagnostics, *built.diagnostics)
    plan, checked, rules, unchecked = built.plan, built.assumed, 0, {}
    folder = None
    broken = any(map(is_broken_input, found))
    if broken:
        found = tuple(each for each in found if each.id != NO_TITLE)
    else:
        if target:
            plan, checked = with_target(plan, target), with_target(checked, target)
        folder = (folders or Folders()).of(checked)
        report = engine.check(checked, profile, built.invalid, folder)
        found += report.diagnostics
        rules, unchecked = report.checked, report.unchecked
    kept = suppress(found, composition.suppressions, unchecked)
    if profile == "explore":
        kept = tuple(diagnostic for diagnostic in kept if diagnostic.severity == "error")
    kept = tuple(sorted(kept, key=Diagnostic.sort_key))
    return Checked(plan, kept, rules, unchecked, broken, folder)


class Folders:
    """Checkpoint folders on this machine, each read once in a run."""

    def __init__(self) -> None:
        self._read: dict[str, CheckpointFiles] = {}

    def of(self, plan: PrecisionPlan) -> CheckpointFiles | None:
        """The folder that ``checkpoint.hf_checkpoint`` names, if there is one here.

        A relative path is looked for below ``launch.working_dir``, then below the current folder.
        A path that leads to no folder is unknown: it lies on the cluster, or names a repository.
        """
        named = known(plan.checkpoint, "hf_checkpoint")
        if not named or "\0" in named:
            return None
        for start in (known(plan.launch, "working_dir") or "", ""):
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


class Nowhere(Folders):
    """As if no folder were here: what is found without looking."""

    def of(self, plan: PrecisionPlan) -> CheckpointFiles | None:
        """Nothing."""
        return None


def check_profile(profile: str) -> None:
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}; known: {', '.join(PROFILES)}")

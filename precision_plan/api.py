"""The pipeline, and the one place where composing, rules and lowering meet.

``compile`` turns one recipe into a checked plan with everything that a launch needs; ``lint``
checks any number of recipes and stops before lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from precision_plan.compose import Composer, build_plan
from precision_plan.plan import UNKNOWN, Diagnostic, Origin, PrecisionPlan
from precision_plan.plan.codes import is_broken_input
from precision_plan.plan.compiled import Compiled, LintReport
from precision_plan.plan.target import PACKAGES
from precision_plan.rules import engine
from precision_plan.rules.profiles import PROFILES, Profile
from precision_plan.rules.suppress import suppress

if TYPE_CHECKING:
    from precision_plan.compose import Composition

TARGET_KEYS: Mapping[str, str] = {
    "gpu": "hardware.gpu",
    "compute_capability": "hardware.compute_capability",
    "platform": "hardware.platform",
    "nodes": "hardware.nodes",
    "gpus_per_node": "hardware.gpus_per_node",
    "framework": "software.framework",
    **{package: f"software.{package}" for package in PACKAGES},
}
"""Keys of a target that is given from outside, and the plan fields that they fill."""


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


@dataclass(frozen=True, slots=True)
class _Checked:
    """A plan and everything that there is to say about it."""

    plan: PrecisionPlan
    diagnostics: tuple[Diagnostic, ...]
    rules: int
    unchecked: Mapping[str, tuple[str, ...]]

    @property
    def broken(self) -> bool:
        return any(is_broken_input(found) for found in self.diagnostics)


def _check(
    composition: Composition, profile: Profile, target: Mapping[str, str] | None = None
) -> _Checked:
    """Validate and check one composition; rules do not run over input that could not be read."""
    built = build_plan(composition)
    found = (*composition.diagnostics, *built.diagnostics)
    plan, rules, unchecked = built.plan, 0, {}
    if not any(is_broken_input(diagnostic) for diagnostic in found):
        if target:
            plan = _with_target(plan, target)
        report = engine.check(plan, profile, built.invalid)
        found += report.diagnostics
        rules, unchecked = report.checked, report.unchecked
    kept = suppress(found, composition.suppressions, unchecked)
    if profile == "explore":
        kept = tuple(diagnostic for diagnostic in kept if diagnostic.severity == "error")
    return _Checked(plan, tuple(sorted(kept, key=Diagnostic.sort_key)), rules, unchecked)


def _check_profile(profile: str) -> None:
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}; known: {', '.join(PROFILES)}")

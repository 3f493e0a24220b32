"""One recipe: composed, checked, lowered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from precision_plan.api.checking import check, check_profile
from precision_plan.compose import Composer
from precision_plan.plan.compiled import Compiled
from precision_plan.rules.profiles import Profile


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
    check_profile(profile)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    checked = check(composition, profile)
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

"""Why a field, flag or variable has its value in one recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.api.checking import check, check_profile
from precision_plan.api.launch_names import names_script
from precision_plan.compose import Composer
from precision_plan.rules.profiles import Profile

if TYPE_CHECKING:
    from precision_plan.plan.tracing import Why


def why(
    recipe: str | Path,
    subject: str,
    overrides: Sequence[str] = (),
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Why:
    """Trace ``subject`` back to the layers, defaults and rules that it comes from, and forward.

    Args:
        recipe: as for :func:`compile`, like the arguments that are not named here; or a launch
            script, ``run.sh#2`` if it has several launches.
        subject: a plan field, its name without the section where one section has it, a section
            (for the choice of its group), a command-line flag or an environment variable.

    Raises:
        UnknownName: if nothing of this name is known (:mod:`precision_plan.plan.names`).
        ValueError: if there is no such profile.
    """
    from precision_plan.lower import lower
    from precision_plan.plan.names import Subject, subject_of
    from precision_plan.plan.tracing import Sources, Why, trace

    check_profile(profile)
    if names_script(recipe):
        return _of_launch(recipe, subject, overrides, profile)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    checked = check(composition, profile)
    plan = checked.plan
    if checked.broken:
        unread = Subject("field", subject, ())
        return Why(
            composition.name, unread.name, unread.kind, plan, None, diagnostics=checked.diagnostics
        )
    found = Sources(
        recipe=composition.name,
        plan=plan,
        lowering=lower(plan),
        diagnostics=checked.diagnostics,
        asked=composition.data,
        history=composition.history,
        chosen=composition.chosen,
        written=composition.written,
    )
    return trace(subject_of(subject, plan, composition.choices), found)


def _of_launch(source: str | Path, subject: str, overrides: Sequence[str], profile: Profile) -> Why:
    from precision_plan.api.script_compiling import compile_launch
    from precision_plan.importers.job_words import history_of, written_elsewhere
    from precision_plan.plan.diagnostic import Because
    from precision_plan.plan.names import subject_of
    from precision_plan.plan.tracing import Sources, Why, trace
    from precision_plan.plan.unknown import settled

    found = compile_launch(source, overrides, profile)
    compiled, job = found.compiled, found.job
    if job is None or compiled.lowering is None:
        return Why(
            compiled.name, subject, "field", compiled.plan, None, diagnostics=compiled.diagnostics
        )
    plan = settled(compiled.plan)
    answer = trace(
        subject_of(subject, plan),
        Sources(
            recipe=compiled.name,
            plan=plan,
            lowering=compiled.lowering,
            diagnostics=compiled.diagnostics,
            asked=plan.settings(),
            history=history_of(job),
            chosen={},
            written=written_elsewhere(job),
            unknown={name: compiled.unknown.get(name) for name in compiled.plan.unknown_fields()},
        ),
    )
    decisions = tuple(Because(f"where {each}", None, each.origin) for each in job.branches)
    open_words = tuple(
        Because(each.text, None, each.origin) for each in job.leftovers if each.kind == "arguments"
    )
    return replace(answer, decisions=decisions, open=open_words)

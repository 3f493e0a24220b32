"""A launch script as a recipe: the way back from what people start to what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.api.launch_files import Script, read_launches
from precision_plan.compose import Composer
from precision_plan.compose.reading import display_path
from precision_plan.plan import Origin
from precision_plan.plan.codes import is_broken_input
from precision_plan.plan.given_target import check_target
from precision_plan.plan.imported import Imported, Way

if TYPE_CHECKING:
    from precision_plan.importers.jobs import ImportedJob


def import_script(
    path: str | Path,
    *,
    target: Mapping[str, str] | None = None,
    launch: int | None = None,
    branches: Sequence[str] = (),
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
) -> Imported:
    """Read a script without running it, and write one of its launches as a recipe.

    Args:
        path: a launch script.
        target: what the script does not declare, by :data:`plan.given_target.TARGET_KEYS`.
        launch: which of the places that launch something, from 1; default the first.
        branches: texts of conditions that shall hold (``not: TEXT``: that shall not), to choose
            among the ways to that place; default the first way.
        conf_dir: where group files are looked for, as for :func:`compile`.
        search_paths: more folders with group files.

    Raises:
        ValueError: if the target is impossible, or there is no such launch or branch.
    """
    check_target(target or {})
    script = read_launches(Path(path), target or {})
    shown = display_path(Path(path))
    broken = tuple(filter(is_broken_input, script.diagnostics))
    if broken or not script.jobs:
        return Imported(shown, leftovers=script.reading_leftovers, diagnostics=broken)
    ways = _ways(script.jobs)
    chosen = _chosen(ways, launch, branches)
    job, way = script.jobs[chosen], ways[chosen]
    others = tuple(each for index, each in enumerate(ways) if index != chosen)
    return _imported(script, job, way, others, Composer(conf_dir, search_paths))


def _imported(
    script: Script, job: ImportedJob, way: Way, others: tuple[Way, ...], composer: Composer
) -> Imported:
    from precision_plan.importers.recipe_data import gaps_of, mask_of, recipe_data
    from precision_plan.importers.recipe_text import recipe_text

    data = recipe_data(job, script.name)
    mask = mask_of(job)
    leftovers = tuple(
        replace(each, text=mask.text(each.text))
        for each in dict.fromkeys((*script.reading_leftovers, *job.leftovers))
    )
    settings = {name: values for name, values in data.items() if name != "recipe"}
    text = recipe_text(
        job,
        script.name,
        leftovers=leftovers,
        choices=composer.matching_choices(settings),
        notes=_notes(others),
    )
    return Imported(script.name, text, data, job.plan, way, others, gaps_of(job), leftovers)


def _notes(others: Sequence[Way]) -> tuple[str, ...]:
    if not others:
        return ()
    number = len(others)
    what = "one other way" if number == 1 else f"{number} other ways"
    return (f"The script has {what} to a launch; --launch and --branch choose.",)


def _ways(jobs: Sequence[ImportedJob]) -> tuple[Way, ...]:
    places: dict[Origin, int] = {}
    for job in jobs:
        places.setdefault(job.command.origin, len(places) + 1)
    return tuple(
        Way(places[job.command.origin], job.command.origin, tuple(map(str, job.branches)))
        for job in jobs
    )


def _chosen(ways: Sequence[Way], launch: int | None, branches: Sequence[str]) -> int:
    """The index of the way that was asked for."""
    number = max(way.launch for way in ways)
    if launch is not None and not 1 <= launch <= number:
        only = "only one launch" if number == 1 else f"launches 1 to {number}"
        raise ValueError(f"there is no launch {launch}: the script has {only}")
    for text in branches:
        part = text.removeprefix("not: ")
        if not any(part in each for way in ways for each in way.branches):
            raise ValueError(f"no condition before a launch has {part} in it")
    left = [
        index
        for index, way in enumerate(ways)
        if launch in (None, way.launch) and all(_goes(way, text) for text in branches)
    ]
    if not left:
        raise ValueError(f"no way to a launch goes where {' and '.join(branches)}")
    return left[0]


def _goes(way: Way, text: str) -> bool:
    """True if a way takes the branch: its whole text, or a part of a condition that holds there
    (``not:``, of none that does)."""
    if text in way.branches:
        return True
    part = text.removeprefix("not: ")
    holds = any(part in each for each in way.branches if not each.startswith("not: "))
    return holds != text.startswith("not: ")

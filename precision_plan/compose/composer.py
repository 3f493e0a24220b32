"""Composes recipes: files and overrides in, one mapping with origins out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_plan.compose.choices import Choice, matching_choices
from precision_plan.compose.composition import Composition
from precision_plan.compose.defaults import Expansion, expand
from precision_plan.compose.interpolation import resolve
from precision_plan.compose.merge import Draft
from precision_plan.compose.overrides import Override, parse_overrides
from precision_plan.compose.reading import display_path, is_folder
from precision_plan.compose.search_path import (
    PRIMARY,
    RECIPE_GROUP,
    SearchPath,
    conf_folder,
    looks_like_path,
)
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import Origin

OPTIONS = ("dry_run", "launcher")
"""Top-level keys that steer ``launch.py`` and are no part of a plan."""
LAUNCHERS = ("local", "ray")
_SCHEMES = ("file://", "precision-plan://")


class Composer:
    """Composes recipes from one configuration folder and any number of further folders.

    ``conf_dir`` is found by :func:`conf_folder` if it is not given. Each of ``search_paths`` may
    hold ``recipes/`` and group folders; where several hold the same file, the first wins.
    ``texts`` stand in for files, by their real path. A composer may be used for any number of
    recipes; files are parsed once per process.
    """

    def __init__(
        self,
        conf_dir: str | os.PathLike[str] | None = None,
        search_paths: Iterable[str | os.PathLike[str]] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.conf_dir = conf_folder(conf_dir)
        folders = (self.conf_dir, *map(Path, search_paths))
        self._search_path = SearchPath(folders, texts=texts)

    def recipes(self) -> tuple[str, ...]:
        """Names of the recipes in the search path, sorted."""
        return self._search_path.choices(RECIPE_GROUP)

    def compose(
        self,
        recipe: str | os.PathLike[str] | None = None,
        overrides: Sequence[str] = (),
    ) -> Composition:
        """Compose ``recipe`` (a name in ``recipes/`` or the path of a YAML file) under overrides.

        ``overrides`` follow Hydra's grammar and may name the recipe (``+recipe=NAME``). Whatever
        a person got wrong is in ``diagnostics`` of the result; nothing is raised for it.
        """
        parsed, problems = parse_overrides(overrides)
        search_path, refused = self._searched(parsed)
        problems += refused
        mine: list[Override] = []
        if recipe is not None:
            search_path, found, missing = _recipe_override(recipe, search_path)
            mine += found
            problems += missing
        of_groups, of_keys, refused = _sorted_out(parsed, search_path)
        problems += refused
        expansion = expand(search_path, (*mine, *of_groups))
        return _composition(expansion, of_keys, problems)

    def matching_choices(self, settings: Mapping[str, Mapping[str, Any]]) -> tuple[Choice, ...]:
        """The group files that hold a part of ``settings`` and nothing else, one for a section."""
        return matching_choices(self._search_path, settings)

    def _searched(self, overrides: Iterable[Override]) -> tuple[SearchPath, list[Diagnostic]]:
        """The search path with ``hydra.searchpath`` of an override or of the primary config."""
        listed, origin = self._configured()
        for override in overrides:
            if override.key == "hydra.searchpath":
                listed, origin = override.value, override.origin
        if not listed:
            return self._search_path, []
        folders, problems = [], []
        for text in listed if isinstance(listed, list) else [listed]:
            name = str(text)
            for scheme in _SCHEMES:
                name = name.removeprefix(scheme)
            if is_folder(Path(name)):
                folders.append(Path(name))
                continue
            problems.append(
                compose_diagnostic("PP010", f"hydra.searchpath: {text!r} is no folder", origin)
            )
        return self._search_path.with_folders(folders), problems

    def _configured(self) -> tuple[Any, Origin]:
        path = self._search_path.find(PRIMARY)
        if path is None:
            return None, Origin("")
        document = self._search_path.read(path)
        hydra = document.data.get("hydra")
        listed = hydra.get("searchpath") if isinstance(hydra, dict) else None
        return listed, document.origin("hydra.searchpath", "config")


def _recipe_override(
    recipe: str | os.PathLike[str], search_path: SearchPath
) -> tuple[SearchPath, list[Override], list[Diagnostic]]:
    """The override that chooses ``recipe``, and the search path in which it is found."""
    text = os.fspath(recipe)
    path = Path(text)
    if isinstance(recipe, str):
        found = search_path.find(f"{RECIPE_GROUP}/{text}")
        if found not in (None, path) or not looks_like_path(text):
            return search_path, [_chosen(text)], []
    if os.path.lexists(path) and not is_folder(path):
        return search_path.beside(path), [_chosen(path.name)], []
    shown = display_path(path)
    reason = "it is a folder" if is_folder(path) else "it does not exist"
    problem = compose_diagnostic("PP010", f"cannot read {shown}: {reason}", Origin(shown))
    return search_path, [], [problem]


def _chosen(name: str) -> Override:
    return Override("add", RECIPE_GROUP, name, f"+{RECIPE_GROUP}={name}")


def _sorted_out(
    overrides: Iterable[Override], search_path: SearchPath
) -> tuple[list[Override], list[Override], list[Diagnostic]]:
    """Split overrides into those of groups and those of keys; Hydra's own settings are left out."""
    of_groups: list[Override] = []
    of_keys: list[Override] = []
    problems: list[Diagnostic] = []
    for override in overrides:
        if override.key.startswith(("hydra.", "hydra/")):
            continue
        is_group = not isinstance(override.value, dict) and search_path.is_group(override.key)
        problem = _misuse(override, is_group)
        if problem is not None:
            problems.append(problem)
        elif is_group:
            of_groups.append(override)
        else:
            of_keys.append(override)
    return of_groups, of_keys, problems


def _misuse(override: Override, is_group: bool) -> Diagnostic | None:
    key, value = override.key, override.value
    code, message, fix = "PP009", None, None
    if not key:
        message, fix = f"the override {override.text!r} names no key", "write key=value"
    elif not is_group:
        if override.package is not None or "/" in key:
            code, message = "PP006", f"there is no group {key}"
        return _problem(override, code, message, fix)
    elif override.kind == "force_add":
        message, fix = f"a group cannot be added by force: {override.text}", override.text[1:]
    elif override.kind == "delete":
        if value is not None and not isinstance(value, str):
            message, fix = f"{override.text} names no choice of {key}", f"write ~{key}"
    elif value is None:
        message, fix = f"{key} cannot be set to null", f"write ~{key} to leave the group out"
    elif not isinstance(value, str) and not (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ):
        message, fix = f"{value!r} is no name of a choice of {key}", f"write {key}='\"{value}\"'"
    return _problem(override, code, message, fix)


def _problem(
    override: Override, code: str, message: str | None, fix: str | None
) -> Diagnostic | None:
    if message is None:
        return None
    fixes = (Fix(fix),) if fix else ()
    return compose_diagnostic(code, message, override.origin, fix=fixes)


def _composition(
    expansion: Expansion, of_keys: Iterable[Override], problems: list[Diagnostic]
) -> Composition:
    draft = Draft()
    recipe: Origin | None = None
    problems = [*problems, *expansion.problems]
    for layer in expansion.layers:
        document = layer.document
        problems.extend(document.problems)
        if document.empty and layer.label in ("recipe", "config"):
            problems.append(
                compose_diagnostic(
                    "PP011",
                    "the file holds nothing",
                    document.origin(layer=layer.label),
                    fix=(Fix("write {} if it is meant to be empty"),),
                )
            )
        if layer.label == "recipe":
            recipe = Origin(document.file, 1, 0, layer.label)
        draft.add_layer(layer)
    for override in of_keys:
        draft.apply(override)
    written = resolve(draft, incomplete=any(map(is_broken_input, problems)))
    options = {name: draft.data.pop(name) for name in OPTIONS if name in draft.data}
    problems += draft.problems
    problems += _option_problems(options, draft)
    chosen = dict(expansion.choices)
    if RECIPE_GROUP in chosen:
        chosen[RECIPE_GROUP] = _name(chosen[RECIPE_GROUP])
    documents = [layer.document for layer in expansion.layers]
    return Composition(
        name=chosen.get(RECIPE_GROUP, PRIMARY),
        data=draft.data,
        origins=draft.origins,
        suppressions=tuple(
            {id(found): found for each in documents for found in each.suppressions}.values()
        ),
        diagnostics=_distinct(problems),
        files=tuple(dict.fromkeys(each.file for each in documents)),
        choices=chosen,
        options=options,
        texts=draft.texts,
        recipe=recipe,
        history=draft.history,
        chosen=expansion.words,
        written=written,
    )


def _distinct(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Without repetitions: a file may be part of a composition twice."""
    return tuple({(each.id, each.message, each.origin): each for each in problems}.values())


def _name(choice: str) -> str:
    return Path(choice).stem if choice.endswith((".yaml", ".yml")) else choice


def _option_problems(options: dict[str, Any], draft: Draft) -> list[Diagnostic]:
    problems = []
    dry_run, launcher = options.get("dry_run"), options.get("launcher")
    if dry_run is not None and not isinstance(dry_run, bool):
        problems.append(
            compose_diagnostic(
                "PP004",
                f"dry_run is {dry_run!r}; it takes true or false",
                draft.origin("dry_run"),
                field="dry_run",
                fix=(Fix("dry_run=true"),),
            )
        )
    if launcher is not None and launcher not in LAUNCHERS:
        problems.append(
            compose_diagnostic(
                "PP003",
                f"launcher is {launcher!r}; it takes {' or '.join(LAUNCHERS)}",
                draft.origin("launcher"),
                field="launcher",
            )
        )
    return problems

"""What composing a recipe gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_plan.plan.diagnostic import Diagnostic
from precision_plan.plan.history import Word
from precision_plan.plan.origin import UNKNOWN, Origin
from precision_plan.plan.suppression import Suppression


@dataclass(frozen=True, slots=True)
class Composition:
    """A recipe with its groups and overrides merged, not yet checked against the schema.

    ``data`` holds the sections as plain mappings, ``origins`` the position of every section and
    key by dotted name. ``texts`` keeps how numbers were written (``12.10`` is not ``12.1`` where
    a version is meant). ``choices`` maps each group to the choice made, ``options`` holds the
    top-level switches that are no part of a plan (``dry_run``, ``launcher``), ``files`` the files
    read, in order. ``recipe`` is the position of the recipe file, ``None`` without a recipe.

    ``history`` holds, first to last, what layers said of a key before the one that was heard,
    ``chosen`` the same of a group with the choice that was made as its last word, ``written`` the
    text of a value in which ``${...}`` was resolved.
    """

    name: str
    data: Mapping[str, Any]
    origins: Mapping[str, Origin]
    suppressions: tuple[Suppression, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    files: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    recipe: Origin | None = None
    history: Mapping[str, Sequence[Word]] = field(default_factory=dict)
    chosen: Mapping[str, Sequence[Word]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)


def origin_of(origins: Mapping[str, Origin], field: str) -> Origin:
    """Origin of a dotted key, or of the closest enclosing key that has one."""
    while field:
        if (found := origins.get(field)) is not None:
            return found
        field = field.rpartition(".")[0]
    return UNKNOWN

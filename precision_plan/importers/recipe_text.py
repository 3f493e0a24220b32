"""A launch as a recipe: what it sets, in the plan's order, each value with the line it comes from.

What a recipe cannot hold stands in it as a comment: fields that are set to something not known,
secrets, and what was left over. A value that holds a reference (``$BASE/model``) is written as it
is spelt; ``${`` becomes ``\\${``, so that it is no interpolation of the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from precision_plan.compose.choices import Choice
from precision_plan.compose.suggest import printable
from precision_plan.compose.written import written
from precision_plan.importers.jobs import ImportedJob, Leftover
from precision_plan.importers.recipe_data import gaps_of, mask_of, place_of, recipe_data
from precision_plan.plan import Origin, PrecisionPlan
from precision_plan.plan.imported import Gap
from precision_plan.plan.unknown import is_reference

_WIDEST = 120
_ESCAPED = re.compile(r"(\\*)\$\{")
_BLOCKS = frozenset({"launch.extra_args"})
"""Mappings of which every key has a line of its own, besides those of ``env``."""


def recipe_text(
    job: ImportedJob,
    script: str,
    *,
    leftovers: Sequence[Leftover] = (),
    choices: Iterable[Choice] = (),
    notes: Iterable[str] = (),
) -> str:
    """The recipe as YAML; ``notes`` are sentences for its beginning."""
    return _Writer(job, script, tuple(choices)).text(leftovers, notes)


class _Writer:
    def __init__(self, job: ImportedJob, script: str, choices: tuple[Choice, ...]) -> None:
        self.plan: PrecisionPlan = job.plan
        self.job = job
        self.script = script
        self.choices = choices
        self.chosen = frozenset(field for choice in choices for field in choice.fields)
        self.data = recipe_data(job, script)
        self.gaps = gaps_of(job)
        self.mask = mask_of(job)

    def text(self, leftovers: Sequence[Leftover], notes: Iterable[str]) -> str:
        lines = ["# @package _global_", "#", *self._about(notes)]
        if self.choices:
            lines += ["defaults:", *map(self._entry, self.choices), "  - _self_"]
        lines += ["", "recipe:"]
        lines += [f"  {key}: {_inline(each)}" for key, each in self.data["recipe"].items()]
        for name in PrecisionPlan.model_fields:
            if name not in ("recipe", "origins"):
                lines += self._section(name)
        lines += self._left(leftovers)
        return "\n".join(lines) + "\n"

    def _about(self, notes: Iterable[str]) -> Iterator[str]:
        where = place_of(self.job.command.origin, self.script)
        yield f"# The launch at {printable(where)}; nothing of it was run."
        for branch in self.job.branches:
            yield f"# Where {self._comment(str(branch))}"
        for note in notes:
            yield f"# {printable(self.mask.text(note))}"

    def _entry(self, choice: Choice) -> str:
        origins = [self.plan.origin(field) for field in sorted(choice.fields)]
        return f"  - {choice.entry}{self._at(next(iter(origins)))}"

    # Sections -----------------------------------------------------------------------------------
    def _section(self, name: str) -> list[str]:
        values = self.data.get(name, {})
        gaps = [gap for gap in self.gaps if gap.field.partition(".")[0] == name]
        lines: list[str] = []
        for key, value in values.items():
            lines += self._field(f"{name}.{key}", value)
        for gap in gaps:
            lines.append(f"  # {self._gap(gap)}")
        if not lines:
            return []
        only_comments = all(line.lstrip().startswith("#") for line in lines)
        return ["", f"# {name}:" if only_comments else f"{name}:", *lines]

    def _field(self, field: str, value: Any) -> Iterator[str]:
        key = field.rpartition(".")[2]
        in_block = field in _BLOCKS or field.startswith("env.")
        if not (in_block and isinstance(value, Mapping) and value):
            if field not in self.chosen:
                yield f"  {key}: {_inline(value)}{self._at(self.plan.origin(field), value)}"
            return
        inner = {name: each for name, each in value.items() if f"{field}.{name}" not in self.chosen}
        if not inner:
            return
        yield f"  {key}:"
        for name, each in inner.items():
            origin = self.plan.origin(f"{field}.{name}")
            yield f"    {written(str(name))}: {_inline(each)}{self._at(origin, each)}"

    def _at(self, origin: Origin, value: Any = None) -> str:
        """The comment behind a value."""
        place = place_of(origin, self.script)
        if _refers(value):
            place = f"{place}, not known before the launch".lstrip(", ")
        return f"  # {printable(place)}" if place else ""

    def _gap(self, gap: Gap) -> str:
        _, _, name = gap.field.partition(".")
        place = place_of(gap.origin, self.script)
        where = f" ({place})" if place else ""
        text = f" {self._comment(gap.text)}" if gap.text else ""
        return f"{printable(name)}:{text}{printable(where)}: {gap.because}"

    # The rest -----------------------------------------------------------------------------------
    def _left(self, leftovers: Sequence[Leftover]) -> list[str]:
        if not leftovers:
            return []
        lines = ["", "# Left over: not understood, or not known before the launch."]
        for each in leftovers:
            lines.append(f"#   {printable(place_of(each.origin, self.script))}: {each.kind}")
            lines.append(f"#     {self._comment(each.text)}")
            if each.because:
                lines.append(f"#     ({printable(each.because)})")
        return lines

    def _comment(self, text: str) -> str:
        """A text of the script on one line, without secrets."""
        shown = printable(self.mask.text(" ".join(text.split())))
        return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 3]}..."


def _inline(value: Any) -> str:
    escaped = _escaped(value)
    return written(escaped, "'" if isinstance(escaped, str) and "\\" in escaped else "")


def _escaped(value: Any) -> Any:
    """A value in which nothing is an interpolation."""
    if isinstance(value, str):
        return _ESCAPED.sub(lambda found: f"{found[1] * 2}\\${{", value)
    if isinstance(value, Mapping):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(each) for each in value]
    return value


def _refers(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_refers, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_refers, value))
    return is_reference(value)

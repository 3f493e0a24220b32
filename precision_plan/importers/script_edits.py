"""A change of plan fields as edits of the script, and the files it sources, that set them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from precision_plan.compose.unedited import CannotEdit
from precision_plan.importers.job_words import index_of, option_words
from precision_plan.importers.jobs import ImportedJob
from precision_plan.importers.json_editing import JsonEdit
from precision_plan.importers.launch_words import launch_of
from precision_plan.importers.shell.editing import (
    Place,
    assignment_of,
    assignment_removal,
    name_place,
    option_place,
    removal,
    replacement,
    written,
)
from precision_plan.importers.texts import Source, Text
from precision_plan.plan import Origin
from precision_plan.plan.text_edits import TextEdit

Spell = Callable[[str, Any], Sequence[str]]
"""The words that give a plan field a value; none if leaving it out does."""

Edits = list[tuple[str, TextEdit]]
"""Edits with the file that each belongs to."""

_JSON = {"all": ("--runtime-env-json", "env_vars."), "train_actor": ("--train-env-vars", "")}


class JobEditor:
    """Edits of one launch of a script."""

    def __init__(self, job: ImportedJob, sources: Sequence[Source], spell: Spell) -> None:
        self.job = job
        self.sources = sources
        self.spell = spell

    def edits(self, changes: Mapping[str, Any], origin: Origin) -> Edits:
        """What gives fields new values (``None``: takes them away).

        ``changes`` may name an option as it is written, with the spelling that it gets instead;
        it stands at ``origin``, where a variable stands, too, that the plan could not take.

        Raises:
            CannotEdit: if that is not sure to touch nothing else.
        """
        variables = {name: value for name, value in changes.items() if name.startswith("env.")}
        if variables:
            if len(variables) < len(changes):
                raise CannotEdit("it concerns variables and options at once")
            return [_placed(*each) for each in self._variables(variables, origin)]
        return [_placed(*each) for each in self._options(changes, origin)]

    # Options ------------------------------------------------------------------------------------
    def _options(
        self, changes: Mapping[str, Any], origin: Origin
    ) -> Iterator[tuple[Place, TextEdit]]:
        set_now = self.job.plan.origins
        new: list[str] = []
        for field, value in changes.items():
            if value is not None and field not in set_now and not field.startswith("-"):
                new += self.spell(field, value)
        for field, value in changes.items():
            if field.startswith("-"):
                word = self._words(origin, field)[0]
                place = written(word.part(0, len(field)))
                yield place, replacement(place, str(value))
            elif field not in set_now:
                continue
            elif value is None:
                place = option_place(self._words(set_now[field], field))
                yield place, replacement(place, " ".join(new)) if new else removal(place)
                new = []
            else:
                yield self._changed(field, value)
        if new:
            raise CannotEdit("there is no option in the place of which it could stand")

    def _changed(self, field: str, value: Any) -> tuple[Place, TextEdit]:
        """An option with another value; a switch that is to be off goes."""
        words = self._words(self.job.plan.origins[field], field)
        spelt = self.spell(field, value)
        name, equals, _ = words[0].shown.partition("=")
        if not spelt:
            place = option_place(words)
            return place, removal(place)
        if equals and len(spelt) == 2:
            place = written(words[0].part(len(name) + 1))
            return place, replacement(place, spelt[1])
        if len(words) == len(spelt) == 2:
            place = written(words[1])
            return place, replacement(place, spelt[1])
        place = option_place(words)
        return place, replacement(place, " ".join(spelt))

    def _words(self, origin: Origin, field: str) -> Sequence[Text]:
        """An option and its values."""
        at = index_of(self.job, origin)
        if at is None:
            raise CannotEdit(f"no option of the launch sets {field}")
        return option_words(self.job, at)

    # Variables ----------------------------------------------------------------------------------
    def _variables(
        self, changes: Mapping[str, Any], origin: Origin
    ) -> Iterator[tuple[Place, TextEdit]]:
        gone = [field for field, value in changes.items() if value is None]
        given = {field: value for field, value in changes.items() if value is not None}
        if not gone:
            for field, value in given.items():
                yield self._value(field, value)
        elif not given:
            for field in gone:
                yield self._gone(field)
        else:
            yield self._renamed(gone, given)

    def _value(self, field: str, value: Any) -> tuple[Place, TextEdit]:
        _, scope, name = field.split(".", 2)
        found = self._json(scope, name)
        if found is not None:
            edit, path = found
            return edit.changed(path, str(value))
        _, node = assignment_of(name, self.sources)
        text = next((env[name] for env in self._shells() if name in env), None)
        if text is None or node is None:
            raise CannotEdit(f"no launch of the script sees {name}")
        place = written(text)
        return place, replacement(place, str(value))

    def _gone(self, field: str) -> tuple[Place, TextEdit]:
        _, scope, name = field.split(".", 2)
        found = self._json(scope, name)
        if found is not None:
            edit, path = found
            return edit.removed(path)
        source, node = assignment_of(name, self.sources)
        return name_place(source, node), assignment_removal(source, node)

    def _renamed(self, gone: Sequence[str], given: Mapping[str, Any]) -> tuple[Place, TextEdit]:
        """One variable gets another name."""
        (old, *more), (new, *others) = gone, given
        _, scope, name = old.split(".", 2)
        _, new_scope, new_name = new.split(".", 2)
        variables = getattr(self.job.plan.env, scope) or {}
        if more or others or scope != new_scope or variables.get(name) != given[new]:
            raise CannotEdit("more than the name of a variable would change")
        if new_name in variables:
            raise CannotEdit(f"{new_name} is set already")
        found = self._json(scope, name)
        if found is not None:
            edit, path = found
            return edit.renamed(path, new_name)
        source, node = assignment_of(name, self.sources)
        place = name_place(source, node)
        return place, replacement(place, new_name)

    def _json(self, scope: str, name: str) -> tuple[JsonEdit, str] | None:
        """The JSON text of the launch that sets a variable, if one does."""
        option, prefix = _JSON.get(scope, ("", ""))
        text = self._option_text(option) if option else None
        if text is None:
            return None
        edit = JsonEdit(text)
        path = prefix + name
        return (edit, path) if edit.has(path) else None

    def _option_text(self, option: str) -> Text | None:
        launch = launch_of(self.job.command)
        if launch is None:
            return None
        if launch.submit is not None and option in launch.submit.options:
            return launch.submit.options[option]
        words = self.job.command.words
        for index in range(launch.first, len(words)):
            name, equals, _ = words[index].shown.partition("=")
            if name == option and equals:
                return words[index].part(len(name) + 1)
            if name == option and index + 1 < len(words):
                return words[index + 1]
        return None

    def _shells(self) -> Iterator[Mapping[str, Text]]:
        yield self.job.command.env
        if self.job.command.ray_env is not None:
            yield self.job.command.ray_env


def _placed(place: Place, edit: TextEdit) -> tuple[str, TextEdit]:
    return place.source.file, edit

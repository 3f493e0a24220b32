"""A launch as the plain data of a recipe: what can be written down, and what cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from precision_plan.compose.choices import leaves
from precision_plan.compose.suggest import printable
from precision_plan.importers.jobs import ImportedJob
from precision_plan.plan import UNKNOWN, Origin
from precision_plan.plan.imported import Gap
from precision_plan.plan.secrets import is_secret
from precision_plan.plan.unknown import is_reference, settled

_TITLE = "Imported from {}"


def recipe_data(job: ImportedJob, script: str) -> dict[str, Any]:
    """The recipe as plain data: its title, and the sections with what is known."""
    data: dict[str, Any] = {
        "recipe": {
            "title": _TITLE.format(name_of(script)),
            "source": [place_of(job.command.origin, script)],
            "maturity": "experimental",
        }
    }
    settings = settled(job.plan).settings()
    for section, values in settings.items():
        kept = {key: _without_secrets(value) for key, value in values.items()}
        data[section] = {key: value for key, value in kept.items() if value != {}}
    return {section: values for section, values in data.items() if values}


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: each for key, each in value.items() if not _is_hidden(str(key), each)}


def _is_hidden(name: str, value: Any) -> bool:
    """A secret that is written out; a reference to one tells nothing."""
    return is_secret(name) and isinstance(value, str) and bool(value) and not is_reference(value)


def gaps_of(job: ImportedJob) -> tuple[Gap, ...]:
    """What is set and cannot be written down."""
    found = []
    for field in job.unknown:
        origin = job.plan.origins.get(field, UNKNOWN)
        found.append(Gap(field, _spelling(job, origin), origin, "not known before the launch"))
    if len(job.candidates) > 1:
        may_be = " or ".join(job.candidates)
        found.append(Gap("software.framework", may_be, UNKNOWN, "--target framework=NAME says it"))
    for section, values in settled(job.plan).settings().items():
        for field, value in leaves(section, values):
            if _is_hidden(field.rpartition(".")[2], value):
                origin = job.plan.origin(field)
                found.append(Gap(field, "", origin, "a secret is not written down"))
    return tuple(found)


def _spelling(job: ImportedJob, origin: Origin) -> str:
    """The value of the option at ``origin``, as the script spells it."""
    words = job.command.words
    for index, word in enumerate(words):
        if word.origin == origin:
            _, equals, value = word.shown.partition("=")
            if equals:
                return value
            if index + 1 < len(words) and not words[index + 1].shown.startswith("--"):
                return words[index + 1].shown
    return ""


def name_of(script: str) -> str:
    return printable(os.path.basename(script))  # noqa: PTH119 - a text, not a file


def place_of(origin: Origin, script: str) -> str:
    """``file:line``, seen from the folder of the script; empty for what no file says."""
    if origin == UNKNOWN:
        return ""
    if not origin.line:
        return origin.file
    if origin.file == script:
        return f"{name_of(script)}:{origin.line}"
    folder = os.path.dirname(script) or "."  # noqa: PTH120
    return f"{os.path.relpath(origin.file, folder)}:{origin.line}"

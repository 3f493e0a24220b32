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
from precision_plan.plan.mask import Mask, secret_values
from precision_plan.plan.secrets import is_secret
from precision_plan.plan.unknown import is_reference, settled

_TITLE = "Imported from {}"


def recipe_data(job: ImportedJob, script: str) -> dict[str, Any]:
    """The recipe as plain data: its title, and the sections with what is known."""
    about: dict[str, Any] = {"title": _TITLE.format(name_of(script))}
    if place := place_of(job.command.origin, script):
        about["source"] = [place]
    data: dict[str, Any] = {"recipe": {**about, "maturity": "experimental"}}
    settings, mask = settled(job.plan).settings(), mask_of(job)
    for section, values in settings.items():
        kept = {key: _without_secrets(key, value, mask) for key, value in values.items()}
        data[section] = {key: value for key, value in kept.items() if value not in ({}, None)}
    return {section: values for section, values in data.items() if values}


def mask_of(job: ImportedJob) -> Mask:
    """Hides the secrets of a launch: those of its plan, and those among words of no option."""
    plan = settled(job.plan)
    values = [
        *secret_values(plan.env.model_dump(exclude_none=True)),
        *secret_values(plan.launch.extra_args or {}),
    ]
    words = [word.shown for word in job.command.words]
    for word, following in zip(words, (*words[1:], ""), strict=True):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and is_secret(flag):
            values.append(value if equals else following)
    return Mask(value for value in values if not is_reference(value) and value[:2] != "--")


def _without_secrets(name: str, value: Any, mask: Mask) -> Any:
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if not _is_hidden(key, each, mask)}
    return None if _is_hidden(name, value, mask) else value


def _is_hidden(name: str, value: Any, mask: Mask) -> bool:
    """A secret that is written out; a reference to one tells nothing."""
    if not value or is_reference(value):
        return False
    if isinstance(value, (bool, int, float)):
        return is_secret(name) and value is not True
    return bool(mask.named(name, value) != value)


def gaps_of(job: ImportedJob) -> tuple[Gap, ...]:
    """What is set and cannot be written down."""
    found, mask = [], mask_of(job)
    for field in job.unknown:
        if field == "software.framework":
            continue
        origin = job.plan.origins.get(field, UNKNOWN)
        text = mask.text(_spelling(job, origin))
        found.append(Gap(field, text, origin, "not known before the launch"))
    if len(job.candidates) > 1:
        may_be = " or ".join(job.candidates)
        found.append(Gap("software.framework", may_be, UNKNOWN, "--target framework=NAME says it"))
    for section, values in settled(job.plan).settings().items():
        for field, value in leaves(section, values):
            if _is_hidden(field.rpartition(".")[2], value, mask):
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

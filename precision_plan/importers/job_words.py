"""The words of a launch behind a plan field: as they were written, and those that came before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from precision_plan.importers.jobs import ImportedJob
from precision_plan.importers.texts import Text
from precision_plan.plan import Origin
from precision_plan.plan.history import Word
from precision_plan.plan.names import spellings, spelt

_OPTION = re.compile(r"--|-[A-Za-z]")


def index_of(job: ImportedJob, origin: Origin) -> int | None:
    """The option of the command that stands at a position."""
    for index, word in enumerate(job.command.words):
        if word.shown.startswith("-") and word.origin == origin:
            return index
    return None


def option_words(job: ImportedJob, at: int) -> Sequence[Text]:
    """The option at an index of the command, and its values."""
    words, uses = job.command.words, job.uses
    if "=" in words[at].shown:
        return words[at : at + 1]
    end = at + 1
    while end < len(words) and uses[end] == uses[at] and not _OPTION.match(words[end].shown):
        end += 1
    return words[at:end]


def _written(job: ImportedJob, at: int) -> str:
    """The value of an option as it is written; ``true`` for a switch."""
    flag, *values = option_words(job, at)
    _, equals, value = flag.shown.partition("=")
    return value if equals else " ".join(each.shown for each in values) or "true"


def unknown_texts(job: ImportedJob) -> dict[str, str]:
    """How the values of fields that are set, but not known, are written: ``$RECIPE``."""
    found = {}
    for field in job.unknown:
        origin = job.plan.origins.get(field)
        at = None if origin is None else index_of(job, origin)
        if at is not None:
            found[field] = _written(job, at)
    return found


def history_of(job: ImportedJob) -> dict[str, tuple[Word, ...]]:
    """What was said of a field before what counts: options that stand twice, exports under JSON."""
    found: dict[str, tuple[Word, ...]] = {}
    for field, origin in job.plan.origins.items():
        if field.startswith("env."):
            earlier = tuple(_exported(job, field, origin))
        else:
            earlier = tuple(_earlier(job, field, origin))
        if earlier:
            found[field] = earlier
    return found


def _earlier(job: ImportedJob, field: str, origin: Origin) -> Iterator[Word]:
    last = index_of(job, origin)
    if last is None:
        return
    name = spelt(_flag(job.command.words[last]))
    names = {name, *spellings(field)}
    for index, word in enumerate(job.command.words[:last]):
        if job.uses[index] != "read" or not word.shown.startswith("-"):
            continue
        written = spelt(_flag(word))
        engine = written.removeprefix("vllm_")
        if written in names or (field.startswith("rollout.") and engine in names):
            yield Word(_written(job, index), word.origin)


def _flag(word: Text) -> str:
    return word.shown.partition("=")[0]


def _exported(job: ImportedJob, field: str, origin: Origin) -> Iterator[Word]:
    """The export at ``ray start`` that the job's own environment replaces."""
    _, scope, name = field.split(".", 2)
    before: Mapping[str, Text] = job.command.ray_env or {}
    text = before.get(name) if scope == "all" else None
    if text is not None and text.origin != origin:
        yield Word(text.shown, text.origin)


def written_elsewhere(job: ImportedJob) -> dict[str, str]:
    """Where a value stands that the script keeps apart from its option, in a variable."""
    found = {}
    for field, origin in job.plan.origins.items():
        at = None if field.startswith("env.") else index_of(job, origin)
        if at is None:
            continue
        flag, *values = option_words(job, at)
        name, equals, _ = flag.shown.partition("=")
        value = flag.part(len(name) + 1) if equals else values[0] if values else None
        if value is None or not value.known or not value.pieces:
            continue
        here, there = origin, value.origin
        if (here.file, here.line) != (there.file, there.line) and there.line:
            found[field] = f"in {there}"
    return found

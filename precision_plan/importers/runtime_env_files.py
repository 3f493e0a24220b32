"""The file that ``ray job submit --runtime-env FILE`` names, where it is there to be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from precision_plan.compose.document import parse_document
from precision_plan.compose.reading import Unreadable, display_path, read_text
from precision_plan.importers.json_words import Fault, JsonText
from precision_plan.importers.texts import Text
from precision_plan.plan import Origin


def read_runtime_env_file(name: Text) -> tuple[JsonText, str] | None:
    """What the file says, and its name; ``None`` if there is none to be seen.

    Ray looks for it from where the script is run. That is not known here: it is looked for beside
    the script, then in the current folder.
    """
    if not name.value or "\0" in name.value:
        return None
    for folder in (Path(name.origin.file).parent, Path()):
        path = folder / name.value
        try:
            there = path.is_file()
        except OSError:  # a name that no file can have
            there = False
        if there:
            return _read(path, display_path(path))
    return None


def _read(path: Path, shown: str) -> tuple[JsonText, str]:
    try:
        document = parse_document(read_text(path, shown), path, shown)
    except Unreadable as error:
        fault = Fault(error.diagnostic.message, error.diagnostic.origin)
        return JsonText(None, fault=fault), shown
    if document.problems:
        first = document.problems[0]
        return JsonText(None, fault=Fault(first.message, first.origin)), shown
    origins = {key: _origin(document.origin(key)) for key in document.marks}
    return JsonText(document.data, origins), shown


def _origin(origin: Origin) -> Origin:
    return replace(origin, layer="env")

"""Arguments of a model that a launcher names: what ``models/NAME.py`` puts together.

The file defines ``model_args``, a function that returns them as one text.
"""

from __future__ import annotations

from pathlib import Path

from precision_plan.compose.reading import display_path
from precision_plan.importers.python.program import program_of
from precision_plan.importers.python.reading import Reading
from precision_plan.importers.python.shell_words import split
from precision_plan.importers.python.values import Value, World
from precision_plan.importers.shell.files import Unreadable, read_script_file
from precision_plan.importers.texts import Source, Text

_FUNCTION = "model_args"
_PARENTS = 5


def model_words(reading: Reading, model: Value) -> tuple[Text, ...] | None:
    """The words that the model's file stands for; ``None`` if it is not there."""
    from precision_plan.importers.python.calls import call_function

    name = model.constant
    if not isinstance(name, str) or "/" in name or "\0" in name or reading.stack == (_FUNCTION,):
        return None
    source = _file(Path(reading.program.source.file), name)
    program = None if source is None else program_of(source)
    if source is None or program is None or _FUNCTION not in program.functions:
        return None
    inner = Reading(program)
    results = call_function(inner, program.functions[_FUNCTION], None, World(), settled=True)
    reading.more[source.file] = inner
    return split(results[0][1].text) if results else None


def _file(script: Path, name: str) -> Source | None:
    above = list(script.absolute().parents)[:_PARENTS]
    for folder in (each / inner for inner in ("models", "scripts/models") for each in above):
        path = folder / f"{name}.py"
        if path.is_file():
            try:
                return Source(display_path(path), read_script_file(path))
            except Unreadable:
                return None
    return None

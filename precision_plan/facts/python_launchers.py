"""Functions by which a launcher in Python starts a command."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table


class LauncherFunction(NamedTuple):
    """A function that starts something.

    A ``job`` takes the arguments of a training script as one text and submits it to Ray: the names
    are those of its parameters, ``variables`` are what it adds to the job's environment (``None``:
    what only a run can tell), but for those of ``unless`` whose text is among the arguments. A
    ``shell`` takes a text for a shell, a ``process`` a list of words (or such a text), ``exec`` a
    program and then its list. What ``logging`` returns are arguments of logging alone.
    """

    function: str
    kind: Literal["job", "shell", "process", "exec", "logging"]
    source: str
    arguments: str = ""
    environment: str = ""
    script: str = ""
    script_default: str = ""
    gpus: str = ""
    model: str = ""
    variables: Mapping[str, str | None] = MappingProxyType({})
    unless: Mapping[str, str] = MappingProxyType({})


@lru_cache(maxsize=1)
def _functions() -> Mapping[str, LauncherFunction]:
    rows = (record(LauncherFunction, row) for row in table("python_launchers"))
    return MappingProxyType({row.function: row for row in rows})


@lru_cache(maxsize=512)
def launcher_function(name: str) -> LauncherFunction | None:
    """The row of a dotted name: whole, or its last part for functions of no module."""
    functions = _functions()
    last = name.rpartition(".")[2]
    return functions.get(name) or functions.get(last)

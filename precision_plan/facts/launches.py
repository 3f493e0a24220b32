"""Which commands start a training run or an engine, and what stands before them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table


class Program(NamedTuple):
    """A program that runs another one, or that is the launch itself.

    A ``prefix`` runs the rest of its words: it may take assignments (``env A=1 ...``), and the
    process that it starts sees the environment unless it ``clears`` it (always, or with an option
    of ``clears_with``; never with one of ``keeps_with``). ``sets_with`` are options that set a
    variable there. ``switches`` are options without a value; every other option has one, as
    ``options`` lists where a program refuses the rest.
    """

    program: str
    kind: Literal["prefix", "python", "torchrun", "ray", "vllm"]
    source: str
    assigns: bool = False
    clears: bool = False
    clears_with: tuple[str, ...] = ()
    keeps_with: tuple[str, ...] = ()
    sets_with: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A file or module that a Python interpreter starts, and whose command line it may be.

    ``telling``: the name alone says so; otherwise the arguments must. ``complete``: its parser is
    Megatron's own, without arguments of the file. No frameworks: no training.
    """

    entry: str
    frameworks: tuple[str, ...]
    source: str
    telling: bool = False
    complete: bool = False


class Evidence(NamedTuple):
    """The beginning of an argument that shows what kind of program reads it."""

    prefix: str
    says: Literal["trains", "rl", "vllm", "sglang"]
    source: str


@lru_cache(maxsize=1)
def launch_programs() -> Mapping[str, Program]:
    """Programs by name; the versioned names of Python are not listed."""
    rows = (record(Program, row) for row in table("launch_programs"))
    return MappingProxyType({row.program: row for row in rows})


@lru_cache(maxsize=1)
def _entries() -> tuple[Entry, ...]:
    return tuple(record(Entry, row) for row in table("launch_entries"))


@lru_cache(maxsize=256)
def launch_entry(name: str) -> Entry | None:
    """The row of a file's name or of a module; ``None`` for a module that nothing is known of."""
    return next((row for row in _entries() if fnmatchcase(name, row.entry)), None)


@lru_cache(maxsize=1)
def launch_evidence() -> tuple[Evidence, ...]:
    """What arguments show."""
    return tuple(record(Evidence, row) for row in table("launch_evidence"))


@lru_cache(maxsize=1)
def runtime_env_keys() -> tuple[str, ...]:
    """Fields of Ray's runtime environment; plugins may add others."""
    return tuple(row["key"] for row in table("ray_runtime_env"))

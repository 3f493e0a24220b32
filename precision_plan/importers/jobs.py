"""What a script, a command line or a job description starts, before it is a plan.

The readers (``shell``, ``python_launcher``, ``job_files``, ...) find the commands; what these mean
for a :class:`PrecisionPlan` is decided in one place, ``job_plan``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from precision_plan.importers.texts import Source, Text
from precision_plan.plan import UNKNOWN, Diagnostic, Origin, PrecisionPlan
from precision_plan.plan.leftover import Leftover, LeftoverKind

__all__ = [
    "NOTHING",
    "Branch",
    "Command",
    "ImportedJob",
    "Leftover",
    "LeftoverKind",
    "ScriptReading",
    "Use",
]

NOTHING: Mapping[str, Text] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Branch:
    """One decision that leads to a command: ``if [ "$GPU" = b200 ]`` was taken, or was not."""

    text: str
    taken: bool
    origin: Origin = UNKNOWN

    def __str__(self) -> str:
        return self.text if self.taken else f"not: {self.text}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program that a script starts: the words after all expansions.

    ``words[0]`` is the program's name. ``env`` are the exported variables of the shell at that
    moment, with assignments before the command (``X=1 python ...``) on top. ``exported_before``
    are the exports at the moment of ``ray start``, if the same script ran it before: the only way
    by which a shell variable reaches a Ray job. ``lost`` says that a file was not read that may set
    what the words leave open.
    """

    words: tuple[Text, ...]
    env: Mapping[str, Text] = field(default_factory=lambda: NOTHING)
    ray_env: Mapping[str, Text] | None = None
    branches: tuple[Branch, ...] = ()
    origin: Origin = UNKNOWN
    lost: bool = False


Use = Literal["launch", "read", "passed", "left"]
"""What became of a word of a launch: it says what is run and how (``launch``), an option took it
(``read``), it stands in ``launch.extra_args`` unread (``passed``), or it is a leftover."""


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A launch as a plan.

    A field of ``plan`` may be not known (:mod:`precision_plan.plan.unknown`). ``candidates`` are
    the frameworks whose command line it may be; with more than one, the plan's framework is not
    known. An environment without a launch has none, unless one is declared. ``unknown`` are the
    fields that are set to something not known; where a word may hold any arguments, the plan does
    not know either what is not set. ``uses`` says of each word of the command what became of it.
    """

    plan: PrecisionPlan
    candidates: tuple[str, ...]
    unknown: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    leftovers: tuple[Leftover, ...]
    command: Command
    uses: tuple[Use, ...]

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The decisions that lead to the launch."""
        return self.command.branches

    def alternatives(self) -> tuple[PrecisionPlan, ...]:
        """One plan for each framework that it may be; what all of them say, is so."""
        if len(self.candidates) <= 1:
            return (self.plan,)
        software = self.plan.software
        return tuple(
            self.plan.model_copy(
                update={"software": software.model_copy(update={"framework": framework})}
            )
            for framework in self.candidates
        )


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """Everything that one script says: what it starts, in which branches, and what is left over.

    ``diagnostics`` are findings about the script itself (a file that is not there, a lost
    backslash); ``sources`` are the script and the files that it sources, in order of reading.
    ``tokens`` maps every span ``(file, start, end)`` that was read, in bytes, to what became of
    it.
    """

    commands: tuple[Command, ...]
    leftovers: tuple[Leftover, ...]
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    tokens: Mapping[tuple[str, int, int], Literal["read", "left"]] = field(
        default_factory=lambda: MappingProxyType({})
    )

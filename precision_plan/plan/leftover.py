"""What was read and not understood, or cannot be known: never dropped in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from precision_plan.plan.origin import Origin

LeftoverKind = Literal[
    "command",  # a command that is no launch and changes no setting
    "substitution",  # its output is not known before it runs
    "unset",  # a variable that nothing in the script sets
    "syntax",  # what the shell's grammar does not allow
    "source",  # a file that is not there, or whose name is not known
    "unreached",  # a function that nobody calls, or text after exit
    "word",  # a word of a launch that belongs to no option
    "arguments",  # words that only whoever calls the script knows: "$@"
    "limit",  # more branches, rounds or files than are followed
]


@dataclass(frozen=True, slots=True)
class Leftover:
    """One such thing: its text, where it stands, and why it is left over."""

    kind: LeftoverKind
    text: str
    origin: Origin
    because: str = ""

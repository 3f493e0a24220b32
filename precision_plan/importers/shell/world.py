"""The state of the shell on one way through the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from precision_plan.importers.jobs import Branch
from precision_plan.importers.texts import Source, Text

if TYPE_CHECKING:
    from tree_sitter import Node

Flow = Literal["break", "continue", "return", "exit"]


class Variable(NamedTuple):
    """A variable: one text, or an array. ``at`` is the assignment ``(file, start, end)``."""

    value: Text | tuple[Text, ...]
    at: tuple[str, int, int] | None = None


def _same_value(one: Variable, other: Variable | None) -> bool:
    """True if two variables hold the same, wherever it was written."""
    if one is other or other is None:
        return one is other
    left, right = one.value, other.value
    if isinstance(left, Text) and isinstance(right, Text):
        return _meaning(left) == _meaning(right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return [*map(_meaning, left)] == [*map(_meaning, right)]
    return False


def _meaning(text: Text) -> list[tuple[str, bool, bool, bool]]:
    return [(piece.text, piece.known, piece.assumed, piece.split) for piece in text.pieces]


class Function(NamedTuple):
    """A function's body, and the file that it stands in."""

    body: Node
    source: Source


@dataclass(slots=True)
class World:
    """One way through the script, up to where it is now.

    ``positional`` are ``$1``, ``$2`` ... of a function or of ``set --``; ``None`` at the top, where
    only the caller knows them. ``flow`` is set when the rest of a loop, function or script is
    skipped. ``files`` are texts that the script wrote to files, ``locals`` the names that
    the function at work declared for itself. ``lost`` says that a file which it sources was not
    read: what is not set may have been set there.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    functions: dict[str, Function] = field(default_factory=dict)
    positional: tuple[Text, ...] | None = None
    branches: tuple[Branch, ...] = ()
    flow: Flow | None = None
    errexit: bool = False
    folder: Text | None = None
    files: dict[str, Text] = field(default_factory=dict)
    ray_env: Mapping[str, Text] | None = None
    locals: frozenset[str] = frozenset()
    lost: bool = False

    def copy(self) -> World:
        """A world that goes its own way from here."""
        return World(
            dict(self.variables),
            self.exported,
            dict(self.functions),
            self.positional,
            self.branches,
            self.flow,
            self.errexit,
            self.folder,
            dict(self.files),
            self.ray_env,
            self.locals,
            self.lost,
        )

    def under(self, branch: Branch) -> World:
        """A copy that took a decision."""
        world = self.copy()
        world.branches = (*self.branches, branch)
        return world

    def set(
        self, name: str, value: Text | tuple[Text, ...], at: tuple[str, int, int] | None
    ) -> None:
        """Assign a variable."""
        self.variables[name] = Variable(value, at)

    def same_state(self, other: World) -> bool:
        """True if nothing but the way here differs."""
        return (
            self.variables.keys() == other.variables.keys()
            and all(
                map(_same_value, self.variables.values(), map(other.variables.get, self.variables))
            )
            and self.exported == other.exported
            and self.flow == other.flow
            and self.positional == other.positional
            and self.errexit == other.errexit
            and self.folder == other.folder
            and self.functions == other.functions
            and self.files == other.files
            and self.ray_env == other.ray_env
            and self.lost == other.lost
        )

    def environment(self) -> dict[str, Text]:
        """The exported variables that the script sets, as texts; arrays cannot be exported."""
        found = {}
        for name in sorted(self.exported):
            variable = self.variables.get(name)
            if variable is not None and isinstance(variable.value, Text):
                found[name] = variable.value
        return found


MOST_WORLDS = 12
"""Ways through a script that are followed at once."""


def merged(before: World, arms: list[list[World]]) -> list[World]:
    """The worlds after a decision whose arms ended in ``arms``.

    Worlds that differ in nothing become one, which forgets the decision. If one arm alone goes on
    (the other exits), the decision is forgotten as well: there was none.
    """
    going = [world for arm in arms for world in arm if world.flow != "exit"]
    if sum(any(world.flow != "exit" for world in arm) for arm in arms) == 1:
        depth = len(before.branches)
        for world in going:
            world.branches = world.branches[:depth] + world.branches[depth + 1 :]
        return going
    return distinct(going)


def distinct(worlds: list[World]) -> list[World]:
    """Worlds of different state; those of the same state keep what their ways have in common."""
    found: list[World] = []
    for world in worlds:
        for other in found:
            if other.same_state(world):
                other.branches = _common(other.branches, world.branches)
                break
        else:
            found.append(world)
    return found


def _common(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> tuple[Branch, ...]:
    shared = []
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared.append(left)
    return tuple(shared)


def fewest(worlds: list[World], most: int = MOST_WORLDS) -> list[World]:
    """At most ``most`` worlds, so that every single decision is still taken both ways by some."""
    if len(worlds) <= most:
        return worlds
    kept: list[World] = []
    rest = list(worlds)
    covered: set[Branch] = set()
    while rest and len(kept) < most:
        best = max(rest, key=lambda world: len(set(world.branches) - covered))
        rest.remove(best)
        kept.append(best)
        covered.update(best.branches)
    return kept

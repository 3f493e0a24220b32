"""What the reading of one launcher collects, over all ways through it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from precision_plan.importers.jobs import Branch, Command, Leftover, LeftoverKind
from precision_plan.importers.python.values import Program, World
from precision_plan.importers.texts import Piece, Text
from precision_plan.plan import Origin

MOST_WORLDS = 16
"""Ways that are followed at the same time; those nearest to the defaults are kept."""
MOST_STEPS = 10_000
MOST_COMMANDS = 32
"""Forms of one command that are kept."""
MOST_CALLS = 12
"""Functions that may be inside of one another."""


@dataclass(slots=True)
class Reading:
    """The reading's memory: commands met, leftovers, statements that some way reached."""

    program: Program
    commands: dict[tuple[object, ...], tuple[int, Command]] = field(default_factory=dict)
    leftovers: dict[tuple[str, int], Leftover] = field(default_factory=dict)
    visited: set[tuple[int, int]] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    stack: tuple[str, ...] = ()
    own: str = ""
    steps: int = 0
    literals: dict[tuple[int, int], tuple[Piece | ast.expr, ...]] = field(default_factory=dict)
    more: dict[str, Reading] = field(default_factory=dict)
    """Readings of other files, by name."""

    def name(self, node: ast.expr) -> str:
        """A name or dotted name; what a class calls ``self`` has the name of the object."""
        shown = ast.unparse(node)
        is_own = self.own and (shown == "self" or shown.startswith("self."))
        return f"{self.own}{shown[len('self') :]}" if is_own else shown

    def origin(self, node: ast.AST) -> Origin:
        """Line and column of a node."""
        return self.program.source.origin(self.program.offset(node))

    def leave(self, kind: LeftoverKind, node: ast.AST, because: str = "", text: str = "") -> None:
        """Note what is not understood, once for a place."""
        key = (kind, 0 if kind == "limit" else self.program.offset(node))
        if key not in self.leftovers:
            shown = text or _one_line(node)
            shown = shown if len(shown) <= 72 else f"{shown[:71]}…"
            self.leftovers[key] = Leftover(kind, shown, self.origin(node), because)

    def limited(self, worlds: Iterable[World], node: ast.AST) -> list[World]:
        """Of many ways, those that are nearest to the defaults; equal ones are one."""
        found: list[World] = []
        for world in worlds:
            same = next((each for each in found if _same(each, world)), None)
            if same is None:
                found.append(world)
            else:
                _merge(same, world)
        if len(found) > MOST_WORLDS:
            self.leave("limit", node, f"more than {MOST_WORLDS} ways lead here")
            nearest = sorted(range(len(found)), key=lambda index: (found[index].apart, index))
            found = [found[index] for index in sorted(nearest[:MOST_WORLDS])]
        return found

    def start(
        self, words: tuple[Text, ...], node: ast.AST, world: World, env: dict[str, Text] | None
    ) -> None:
        """Note a command that is started; the same one on another way adds its branches."""
        variables = world.env if env is None else env
        key = (
            self.program.offset(node),
            tuple(word.pieces for word in words),
            tuple((name, text.pieces) for name, text in variables.items()),
        )
        known = self.commands.get(key)
        if known is None and self._is_full(node, len(world.changed)):
            self.leave("limit", node, f"more than {MOST_COMMANDS} forms of one command")
            return
        branches, apart = world.branches, len(world.changed)
        if known is not None:
            apart = min(apart, known[0])
            branches = _shared(known[1].branches, branches)
        command = Command(words, dict(variables), None, branches, self.origin(node))
        self.commands[key] = apart, command

    def _is_full(self, node: ast.AST, apart: int) -> bool:
        """True if there are enough forms of the command already; the default has its place."""
        place = self.program.offset(node)
        count = sum(1 for key in self.commands if key[0] == place)
        return count >= MOST_COMMANDS + (not apart)

    def ordered(self) -> tuple[Command, ...]:
        """Every command; of one place, the one that the defaults give comes first."""
        places: dict[Origin, int] = {}
        for _, command in self.commands.values():
            places.setdefault(command.origin, len(places))
        found = sorted(self.commands.values(), key=lambda each: (places[each[1].origin], each[0]))
        return tuple(command for _, command in found)


def _one_line(node: ast.AST) -> str:
    try:
        return " ".join(ast.unparse(node).split())
    except RecursionError:
        return type(node).__name__.lower()


def _same(one: World, other: World) -> bool:
    return (
        one.variables == other.variables
        and one.env == other.env
        and one.returned == other.returned
        and one.ended == other.ended
        and one.inside == other.inside
    )


def _merge(one: World, other: World) -> None:
    """What two ways have in common: a decision that changed nothing is none."""
    one.branches = _shared(one.branches, other.branches)
    one.apart = min(one.apart, other.apart)
    one.changed &= other.changed
    pairs = ((one.assumed, other.assumed), (one.decided, other.decided), (one.limits, other.limits))
    for mine, others in pairs:
        for key in [key for key in mine if key not in others or mine[key] != others[key]]:
            del mine[key]


def _shared(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> tuple[Branch, ...]:
    return tuple(branch for branch in one if branch in other)

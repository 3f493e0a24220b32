"""What one reading of a script collects, over all ways through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from precision_plan.importers.jobs import Branch, Command, Leftover, LeftoverKind
from precision_plan.importers.shell.tree import one_line, start_of
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Source, Text
from precision_plan.plan import Diagnostic, Origin

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_STEPS = 20_000
"""Statements that one reading may run; a script that needs more is left over from there."""

At = tuple[str, int, int]


@dataclass(slots=True)
class Shell:
    """The reading's memory: the current file, commands met, leftovers, findings.

    ``visited`` are the statements that some way reached, ``used`` the assignments whose variable
    was read, both as ``(file, start, end)``. ``instead`` are texts of files that are taken in the
    place of what is on disk. ``suspects`` are names of arrays that nothing sets, with the place
    and the array of nearly the same name.
    """

    source: Source
    top: Source
    commands: dict[tuple[object, ...], Command] = field(default_factory=dict)
    leftovers: dict[tuple[str, str, int], Leftover] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    visited: set[At] = field(default_factory=set)
    used: set[At] = field(default_factory=set)
    suspects: dict[tuple[str, Origin], tuple[str, At]] = field(default_factory=dict)
    sourcing: tuple[str, ...] = ()
    instead: Mapping[str, bytes] = field(default_factory=dict)
    calls: int = 0
    steps: int = 0

    def at(self, node: Node) -> At:
        """Where a node stands."""
        return (self.source.file, node.start_byte, node.end_byte)

    def origin(self, node: Node) -> Origin:
        """Line and column of a node."""
        return self.source.origin(start_of(node, self.source))

    def leave(self, kind: LeftoverKind, node: Node, because: str = "", text: str = "") -> None:
        """Note what is not understood; a node counts once, and a limit once in a file."""
        key = (kind, self.source.file, 0 if kind == "limit" else node.start_byte)
        if key not in self.leftovers:
            shown = text or one_line(node, self.source)
            self.leftovers[key] = Leftover(kind, shown, self.origin(node), because)

    def find(self, diagnostic: Diagnostic) -> None:
        """Note a finding about the script itself, once."""
        if diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)

    def start(self, words: list[Text], env: Mapping[str, Text], node: Node, world: World) -> None:
        """Note a command that is started; the same one on another way adds its branches."""
        key = (
            self.at(node),
            tuple(word.pieces for word in words),
            tuple((name, text.pieces) for name, text in env.items()),
            None if world.ray_env is None else tuple(world.ray_env),
        )
        known = self.commands.get(key)
        branches = world.branches
        if known is not None:
            branches = _shared(known.branches, branches)
        self.commands[key] = Command(
            tuple(words), env, world.ray_env, branches, self.origin(node), world.lost
        )


def _shared(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """The decisions that both ways took: the others make no difference to the command."""
    return tuple(branch for branch in one if branch in other)

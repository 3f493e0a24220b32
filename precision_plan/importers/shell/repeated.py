"""A sourced file that only sets variables does so alike in every world that it cannot tell apart.

Model files are sourced by every script of a tree, on every way through it. What such a file did
once is done again without running it, if everything that it can read is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from precision_plan.importers.shell.state import At, Shell
from precision_plan.importers.shell.tree import parsed, text_of
from precision_plan.importers.shell.world import Variable, World
from precision_plan.importers.texts import Source

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(rb"[A-Za-z_]\w*")
_READS_MORE = re.compile(rb"\$\{?[0-9@*#!?$-]|\beval\b|\bBASH_|\bPWD\b|\bRANDOM\b|<<|[<>]\(|`")
"""What depends on more than on variables by their names."""
_PLAIN = frozenset({"printf", ":", "true"})
_NOT_PLAIN = frozenset({"function_definition", "file_redirect", "subshell", "pipeline", "ERROR"})
_MOST = 16
"""Effects that are remembered of one file."""


class Effect(NamedTuple):
    """What running a file did."""

    variables: Mapping[str, Variable]
    exported: frozenset[str]
    visited: frozenset[At]
    used: frozenset[At]
    steps: int


def again(
    shell: Shell, source: Source, world: World, run: Callable[[], list[World]]
) -> list[World]:
    """The worlds after a sourced file: those of ``run``, or what that gave before."""
    names = _names(source)
    if not names or world.locals or world.flow or not names.isdisjoint(world.functions):
        return run()
    key = _key(names, world)
    effect = source.effects.get(key)
    if effect is None:
        return _first(shell, source, world, run, key)
    world.variables.update(effect.variables)
    world.exported = world.exported | effect.exported
    shell.visited |= effect.visited
    shell.used |= effect.used
    shell.steps += effect.steps
    shell.sources.setdefault(source.file, source)
    return [world]


def _names(source: Source) -> frozenset[str]:
    """The words of a file that may be names of variables; none if it does more than set some."""
    found: frozenset[str] | None = source.effects.get(None)
    if found is None:
        plain = not _READS_MORE.search(source.data) and all(
            node.type not in _NOT_PLAIN
            and (node.type != "command_name" or text_of(node, source) in _PLAIN | {"echo"})
            for node in _nodes(parsed(source))
        )
        words = (each.decode() for each in _NAME.findall(source.data)) if plain else ()
        found = source.effects[None] = frozenset(words)
    return found


def _nodes(root: Node) -> Iterator[Node]:
    nodes = [root]
    while nodes:
        node = nodes.pop()
        yield node
        nodes.extend(node.children)


def _key(names: frozenset[str], world: World) -> Any:
    """Everything that the file can read."""
    seen = tuple(
        (name, world.variables[name].value, name in world.exported)
        for name in sorted(names.intersection(world.variables))
    )
    exported = names.intersection(world.exported)
    return (seen, exported, world.errexit, world.lost)


def _first(
    shell: Shell, source: Source, world: World, run: Callable[[], list[World]], key: Any
) -> list[World]:
    """Run the file and remember what it did, if that was no more than to set variables."""
    before = world.copy()
    kept = shell.visited, shell.used, shell.leftovers, shell.diagnostics
    steps, commands = shell.steps, len(shell.commands)
    shell.visited, shell.used, shell.leftovers, shell.diagnostics = set(), set(), {}, []
    try:
        worlds = run()
    finally:
        visited, used, leftovers, diagnostics = (
            shell.visited, shell.used, shell.leftovers, shell.diagnostics,
        )  # fmt: skip
        shell.visited, shell.used, shell.leftovers, shell.diagnostics = kept
        shell.visited |= visited
        shell.used |= used
        for place, leftover in leftovers.items():
            shell.leftovers.setdefault(place, leftover)
        for diagnostic in diagnostics:
            shell.find(diagnostic)
    started = len(shell.commands) != commands or any(
        place[0][0] == source.file for place in shell.commands if isinstance(place[0], tuple)
    )
    quiet = not (leftovers or diagnostics or started)
    if quiet and len(worlds) == 1 and _only_variables(before, worlds[0]):
        after = worlds[0]
        if len(source.effects) <= _MOST:
            source.effects[key] = Effect(
                {
                    name: variable
                    for name, variable in after.variables.items()
                    if before.variables.get(name) is not variable
                },
                after.exported - before.exported,
                frozenset(visited),
                frozenset(each for each in used if each[0] == source.file),
                shell.steps - steps,
            )
    return worlds


def _only_variables(before: World, after: World) -> bool:
    """True if two worlds differ in variables alone, none of which is gone."""
    return (
        before.variables.keys() <= after.variables.keys()
        and before.exported <= after.exported
        and after.flow is None
        and before.branches == after.branches
        and before.functions == after.functions
        and before.positional == after.positional
        and before.errexit == after.errexit
        and before.folder == after.folder
        and before.files == after.files
        and before.ray_env == after.ray_env
        and before.locals == after.locals
        and before.lost == after.lost
    )

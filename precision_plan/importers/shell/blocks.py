"""Runs statements over the worlds that reach them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from precision_plan.importers.shell.state import MOST_STEPS, Shell
from precision_plan.importers.shell.world import MOST_WORLDS, World, distinct, fewest

if TYPE_CHECKING:
    from tree_sitter import Node

Worlds = list[World]
Outcome = tuple[World, bool]
"""A world after a statement, and whether the statement succeeded."""

_SKIPPED = frozenset({"comment", ";", "&", "\n", ";;", "heredoc_body", "heredoc_end"})


def run_block(shell: Shell, nodes: list[Node], worlds: Worlds) -> Worlds:
    """Run statements one after the other in every world that still goes on."""
    for node in nodes:
        if node.type in _SKIPPED or (not node.is_named and node.type not in _handlers()):
            continue
        going: Worlds = []
        for world in worlds:
            going.extend(run(shell, node, world) if world.flow is None else (world,))
        worlds = _limited(shell, node, going) if len(going) > 1 else going
    return worlds


def _limited(shell: Shell, node: Node, worlds: Worlds) -> Worlds:
    worlds = distinct(worlds)
    if len(worlds) > MOST_WORLDS:
        because = (
            f"more than {MOST_WORLDS} combinations of branches; every branch is still followed"
        )
        shell.leave("limit", node, because)
        worlds = fewest(worlds)
    return worlds


def run(shell: Shell, node: Node, world: World) -> Worlds:
    """Run one statement."""
    return [after for after, _ in run_with_status(shell, node, world)]


def run_with_status(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """Run one statement; a program that is not followed counts as successful."""
    shell.steps += 1
    if shell.steps > MOST_STEPS:
        shell.leave("limit", node, "the script takes more steps than are followed")
        return [(world, True)]
    handler = _handlers().get(node.type)
    if handler is None:
        shell.visited.add(shell.at(node))
        shell.leave("syntax" if node.type == "ERROR" else "command", node)
        return [(world, True)]
    return handler(shell, node, world)


Handler = Callable[[Shell, "Node", World], list[Outcome]]


@lru_cache(maxsize=1)
def _handlers() -> Mapping[str, Handler]:
    """By node type; the statements know this module, and therefore it asks for them late."""
    from precision_plan.importers.shell.statements import HANDLERS

    return HANDLERS

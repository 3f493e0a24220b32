"""Loops: rounds over known words are run one by one, others once and not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_plan.importers.jobs import Branch
from precision_plan.importers.shell.arithmetic import arithmetic, change
from precision_plan.importers.shell.assignments import assign
from precision_plan.importers.shell.blocks import Outcome, Worlds, run_block
from precision_plan.importers.shell.decisions import split
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import one_line, text_of
from precision_plan.importers.shell.words import words
from precision_plan.importers.shell.world import World, distinct

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ROUNDS = 64
"""Rounds of one loop that are followed."""


def for_loop(shell: Shell, node: Node, world: World) -> list[Outcome]:
    named = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    name = "" if named is None else text_of(named, shell.source)
    nodes = [
        child
        for index, child in enumerate(node.children)
        if node.field_name_for_child(index) == "value"
    ]
    values = words(shell, nodes, world)
    children = [] if body is None else body.children
    at = shell.at(named) if named is not None else None
    if len(values) > MOST_ROUNDS:
        shell.leave("limit", node, f"more than {MOST_ROUNDS} rounds")
    worlds = [world]
    for value in values[:MOST_ROUNDS]:
        for each in worlds:
            if each.flow is None:
                each.set(name, value, at)
        worlds = _again(run_block(shell, children, worlds))
    return [(_past_loop(after), True) for after in worlds]


def _again(worlds: Worlds) -> Worlds:
    for world in worlds:
        if world.flow == "continue":
            world.flow = None
    return worlds


def _past_loop(world: World) -> World:
    if world.flow in {"break", "continue"}:
        world.flow = None
    return world


def while_loop(shell: Shell, node: Node, world: World) -> list[Outcome]:
    body = node.child_by_field_name("body")
    until = any(child.type == "until" for child in node.children)
    conditions = [
        child
        for index, child in enumerate(node.children)
        if node.field_name_for_child(index) == "condition" and child.is_named
    ]
    children = [] if body is None else body.children
    done: Worlds = []
    worlds = [world]
    for _ in range(MOST_ROUNDS):
        inside: Worlds = []
        open_ended = False
        for each in worlds:
            yes, no = split(shell, conditions[-1], each) if conditions else ([each], [])
            yes, no = (no, yes) if until else (yes, no)
            open_ended = open_ended or bool(yes and no)
            inside += yes
            done += no
        after = _again(run_block(shell, children, inside))
        done += [each for each in after if each.flow is not None]
        worlds = [each for each in after if each.flow is None]
        if open_ended or not worlds:
            break
    return [(_past_loop(after), True) for after in distinct(done + worlds)]


def counted_loop(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """``for ((i = 0; i < N; i++))``: counted if its numbers are known."""
    body = node.child_by_field_name("body")
    start = node.child_by_field_name("initializer")
    condition = node.child_by_field_name("condition")
    step = node.child_by_field_name("update")
    children = [] if body is None else body.children
    if start is not None and start.type == "variable_assignment":
        shell.visited.add(shell.at(start))
        assign(shell, start, world)
    elif start is not None:
        change(shell, start, world)
    if condition is None or arithmetic(shell, condition, world) is None:
        return _once(shell, node, children, world)
    done: Worlds = []
    worlds = [world]
    for _ in range(MOST_ROUNDS * 4):
        inside = [each for each in worlds if arithmetic(shell, condition, each)]
        done += [each for each in worlds if each not in inside]
        after = _again(run_block(shell, children, inside))
        done += [each for each in after if each.flow is not None]
        worlds = [each for each in after if each.flow is None]
        for each in worlds:
            if step is not None:
                change(shell, step, each)
        if not worlds:
            break
    else:
        shell.leave("limit", node, f"more than {MOST_ROUNDS * 4} rounds")
    return [(_past_loop(after), True) for after in distinct(done + worlds)]


def _once(shell: Shell, node: Node, children: list[Node], world: World) -> list[Outcome]:
    """A loop whose rounds are not counted: its body runs once, or not at all."""
    branch = Branch(one_line(node, shell.source), True, shell.origin(node))
    inside = run_block(shell, children, [world.under(branch)])
    return [(_past_loop(after), True) for after in distinct([world, *inside])]

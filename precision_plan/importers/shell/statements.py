"""The statements of the shell by their type in the syntax tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from precision_plan.importers.shell.arithmetic import changed
from precision_plan.importers.shell.assignments import assign_all
from precision_plan.importers.shell.blocks import Handler, Outcome, run, run_block, run_with_status
from precision_plan.importers.shell.commands import command, declare, run_input
from precision_plan.importers.shell.decisions import (
    case_statement,
    if_statement,
    is_arithmetic,
    list_of_commands,
    test_statement,
)
from precision_plan.importers.shell.loops import counted_loop, for_loop, while_loop
from precision_plan.importers.shell.outputs import heredoc, reader_of
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import text_of
from precision_plan.importers.shell.words import text
from precision_plan.importers.shell.world import Function, World

if TYPE_CHECKING:
    from tree_sitter import Node


def _simple(work: Callable[[Shell, Node, World], None]) -> Callable[..., list[Outcome]]:
    def run_simple(shell: Shell, node: Node, world: World) -> list[Outcome]:
        shell.visited.add(shell.at(node))
        work(shell, node, world)
        return [(world, True)]

    return run_simple


def _redirected(shell: Shell, node: Node, world: World) -> list[Outcome]:
    body = node.child_by_field_name("body")
    if body is None:
        return [(world, True)]
    document = heredoc(shell, node, world)
    reader = reader_of(shell, node)
    if document is not None and reader is not None:
        run_input(shell, reader, world, document)
    outcomes = run_with_status(shell, body, world)
    target = next((child for child in node.children if child.type == "file_redirect"), None)
    if document is not None and target is not None:
        destination = target.child_by_field_name("destination")
        file = None if destination is None else text(shell, destination, world).value
        if file is not None and text_of(body, shell.source).strip() == "cat":
            for after, _ in outcomes:
                after.files[file] = document
    return outcomes


def _pipeline(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """Every part runs in a shell of its own: what it sets is lost."""
    for child in node.children:
        if child.is_named:
            run(shell, child, world.copy())
    return [(world, True)]


def _subshell(shell: Shell, node: Node, world: World) -> list[Outcome]:
    run_block(shell, node.children, [world.copy()])
    return [(world, True)]


def _compound(shell: Shell, node: Node, world: World) -> list[Outcome]:
    if is_arithmetic(shell, node):
        shell.visited.add(shell.at(node))
        changed(shell, node, world)
        return [(world, True)]
    return [(after, True) for after in run_block(shell, node.children, [world])]


def _function(shell: Shell, node: Node, world: World) -> list[Outcome]:
    named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if named is not None and body is not None:
        world.functions[text_of(named, shell.source)] = Function(body, shell.source)
    return [(world, True)]


def _unset(shell: Shell, node: Node, world: World) -> None:
    for child in node.children:
        name = text_of(child, shell.source)
        world.variables.pop(name, None)
        world.exported -= {name}


HANDLERS: Mapping[str, Handler] = {
    "variable_assignment": _simple(assign_all),
    "variable_assignments": _simple(assign_all),
    "declaration_command": _simple(declare),
    "unset_command": _simple(_unset),
    "command": command,
    "redirected_statement": _redirected,
    "pipeline": _pipeline,
    "list": list_of_commands,
    "subshell": _subshell,
    "compound_statement": _compound,
    "do_group": _compound,
    "if_statement": if_statement,
    "case_statement": case_statement,
    "for_statement": for_loop,
    "c_style_for_statement": counted_loop,
    "while_statement": while_loop,
    "function_definition": _function,
    "test_command": test_statement,
    "negated_command": test_statement,
}

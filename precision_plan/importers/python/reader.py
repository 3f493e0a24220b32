"""Reads one launcher: everything that it starts, in every branch, and what is left over."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import MappingProxyType
from typing import Literal

from precision_plan.importers.jobs import ScriptReading
from precision_plan.importers.python.calls import call_function
from precision_plan.importers.python.program import parsed, program
from precision_plan.importers.python.reading import Reading
from precision_plan.importers.python.statements import run
from precision_plan.importers.python.values import World
from precision_plan.importers.texts import Source
from precision_plan.plan import Because, Origin
from precision_plan.plan.codes import compose_diagnostic


def read_launcher(source: Source) -> ScriptReading:
    """Follow a program in Python by its syntax tree; nothing is imported or run.

    Never raises for what the file says.
    """
    tree = parsed(source)
    if isinstance(tree, SyntaxError):
        line = tree.lineno or 0
        diagnostic = compose_diagnostic(
            "PP960",
            f"the file cannot be parsed: {tree.msg}",
            Origin(source.file, line, (tree.offset or 0) if line else 0, source.layer),
            because=(Because("nothing of it can be read"),),
            stage="parse",
        )
        return ScriptReading((), (), (diagnostic,), (source,))
    reading = Reading(program(source, tree))
    try:
        _follow(reading, tree)
    except RecursionError:
        reading.leave("limit", tree.body[0], "expressions or calls are nested too deeply")
    tokens = _tokens(reading, tree)
    inner = tuple(reading.more.values())
    leftovers = (
        *reading.leftovers.values(),
        *(each for one in inner for each in one.leftovers.values()),
    )
    return ScriptReading(
        reading.ordered(),
        leftovers,
        (),
        (source, *(one.program.source for one in inner)),
        MappingProxyType(tokens),
    )


def _follow(reading: Reading, tree: ast.Module) -> None:
    """Run the file, then each function that nothing in it calls."""
    run(reading, tree.body, [World()])
    for name, function in reading.program.functions.items():
        if name not in reading.called:
            call_function(reading, function, None, World())


def _tokens(
    reading: Reading, tree: ast.Module
) -> dict[tuple[str, int, int], Literal["read", "left"]]:
    """What became of every statement; one that no way reached is left over."""
    found: dict[tuple[str, int, int], Literal["read", "left"]] = {}
    for node in _simple(tree):
        at = (reading.program.offset(node), reading.program.end(node))
        file = reading.program.source.file
        if at in reading.visited or isinstance(node, (ast.Raise, ast.Pass)):  # these set nothing
            found[(file, *at)] = "read"
            continue
        found[(file, *at)] = "left"
        reading.leave("unreached", node, "no way through the file leads here")
    return found


def _simple(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements without statements of their own; of classes only the methods have some."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.ClassDef) and not isinstance(child, ast.FunctionDef):
                continue  # fields: what is asked for is taken
            if isinstance(child, (ast.match_case, ast.excepthandler, ast.Match)):
                nodes.append(child)
            elif isinstance(child, ast.stmt):
                if hasattr(child, "body"):
                    nodes.append(child)
                else:
                    yield child

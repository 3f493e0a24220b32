"""Reads one script: everything that it starts, sets and leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from precision_plan.importers.jobs import ScriptReading
from precision_plan.importers.shell.blocks import run_block
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import parsed, simple_statements
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Source
from precision_plan.plan import Because, Fix
from precision_plan.plan.codes import compose_diagnostic

if TYPE_CHECKING:
    from tree_sitter import Node


def read_script(source: Source) -> ScriptReading:
    """Follow a bash script; nothing is run.

    Files that it sources are read from disk. Never raises for what the script says.
    """
    root = parsed(source)
    shell = Shell(source, source, sourcing=(source.file,))
    shell.sources[source.file] = source
    run_block(shell, root.children, [World()])
    tokens: dict[tuple[str, int, int], Literal["read", "left"]] = {}
    for each in list(shell.sources.values()):
        shell.source = each
        tree = root if each is source else parsed(each)
        _account(shell, tree, tokens)
        _broken(shell, tree)
    return ScriptReading(
        tuple(shell.commands.values()),
        tuple(shell.leftovers.values()),
        tuple(shell.diagnostics),
        tuple(shell.sources.values()),
        MappingProxyType(tokens),
    )


def _account(
    shell: Shell, root: Node, tokens: dict[tuple[str, int, int], Literal["read", "left"]]
) -> None:
    """What became of every statement: read on some way, or left over."""
    for node in simple_statements(root):
        at = shell.at(node)
        if at in shell.visited:
            tokens[at] = "read"
            continue
        tokens[at] = "left"
        if node.type == "ERROR":
            shell.leave("syntax", node)
        else:
            shell.leave("unreached", node, "no way through the script leads here")


def _broken(shell: Shell, root: Node) -> None:
    """Quotes and brackets that are never closed: bash reads the rest of the file as text."""
    if not root.has_error:
        return
    for node in _missing(root):
        mark = node.type
        shell.find(
            compose_diagnostic(
                "PP942",
                f"{mark} is missing: something that was opened before is never closed",
                shell.origin(node),
                because=(Because("bash stops with a syntax error, or reads on to the next mark"),),
                fix=(Fix(f"close it with {mark}"),),
                stage="parse",
            )
        )


def _missing(node: Node) -> Iterator[Node]:
    if node.is_missing:
        yield node
        return
    if node.has_error:
        for child in node.children:
            yield from _missing(child)

"""Reads one script: everything that it starts, sets and leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from precision_plan.importers.jobs import ScriptReading
from precision_plan.importers.shell.blocks import run_block
from precision_plan.importers.shell.open_marks import still_open
from precision_plan.importers.shell.slips import never_set
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import parsed, simple_statements
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Source
from precision_plan.plan import Because, Fix
from precision_plan.plan.codes import compose_diagnostic

if TYPE_CHECKING:
    from tree_sitter import Node


NOTHING_INSTEAD: Mapping[str, bytes] = MappingProxyType({})


def read_script(source: Source, instead: Mapping[str, bytes] = NOTHING_INSTEAD) -> ScriptReading:
    """Follow a bash script; nothing is run.

    Files that it sources are read from disk, but for those of which ``instead`` has the text, by
    the path as it is shown. Never raises for what the script says.
    """
    root = parsed(source)
    shell = Shell(source, source, sourcing=(source.file,), instead=instead)
    shell.sources[source.file] = source
    run_block(shell, root.children, [World()])
    never_set(shell)
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
    if root.type == "ERROR":  # nothing that the grammar could put into statements
        tokens[shell.at(root)] = "left"
        shell.leave("syntax", root)
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
    """Quotes and brackets that are never closed: bash reads the rest of the file as text.

    The grammar does not know every spelling that bash takes: what it stumbles over is left over,
    and a finding only if something really stays open to the end of the file.
    """
    if not root.has_error:
        return
    for node in _troubles(root):
        shell.leave("syntax", node.parent if node.is_missing and node.parent else node)
    source = shell.source
    opened = still_open(source.data.decode("utf-8", "replace"))
    if opened is None:
        return
    offset = len(source.data.decode("utf-8", "replace")[: opened.start].encode())
    shell.find(
        compose_diagnostic(
            "PP942",
            f"{opened.mark} is never closed",
            source.origin(offset),
            because=(Because("the end of the file comes first"),),
            fix=(Fix("close it"),),
            stage="parse",
        )
    )


def _troubles(node: Node) -> Iterator[Node]:
    """The outermost nodes that the grammar could not make sense of."""
    if node.is_missing or node.type == "ERROR":
        yield node
        return
    if node.has_error:
        for child in node.children:
            yield from _troubles(child)

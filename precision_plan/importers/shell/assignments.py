"""Assignments: texts, arrays, elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import WORDS, text_of
from precision_plan.importers.shell.words import text, words
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node


def assign(shell: Shell, node: Node, world: World) -> str:
    """Run one assignment; returns the name."""
    named = node.child_by_field_name("name")
    value = node.child_by_field_name("value")
    if named is None:
        return ""
    if named.type == "subscript":
        return _assign_element(shell, node, named, value, world)
    name = text_of(named, shell.source)
    appended = any(child.type == "+=" for child in node.children)
    new: Text | tuple[Text, ...]
    if value is not None and value.type == "array":
        nodes = [child for child in value.children if child.type in WORDS]
        new = tuple(words(shell, nodes, world))
        for child in value.children:
            if child.type == "ERROR":
                shell.leave("syntax", child)
    else:
        new = text(shell, value, world) if value is not None else Text()
        if _TO_BE_FILLED.search(new.shown) and new.known:
            new = _to_be_filled(shell, node, name)
    before = world.variables.get(name)
    if appended and before is not None:
        if before.at is not None:
            shell.used.add(before.at)
        new = _sum(before.value, new)
    world.set(name, new, shell.at(node))
    return name


_TO_BE_FILLED = re.compile(r"<\w[^<>\n]* [^<>\n]*>")
"""A note to the reader, ``<path to the data>``; ``<eos>`` and the like are texts."""


def _to_be_filled(shell: Shell, node: Node, name: str) -> Text:
    """One word that whoever runs the script writes in: not known, and not the words of the note."""
    shell.leave("unset", node, f"what {name} is to be, is still to be written in")
    piece = Piece(f"${{{name}}}", shell.source, node.start_byte, False, False, name=name)
    return Text((piece,))


def _sum(before: Text | tuple[Text, ...], new: Text | tuple[Text, ...]) -> Text | tuple[Text, ...]:
    if isinstance(before, Text):
        if isinstance(new, Text):
            return Text((*before.pieces, *new.pieces))
        return (before, *new)
    if isinstance(new, Text):
        first = Text((*before[0].pieces, *new.pieces)) if before else new
        return (first, *before[1:])
    return (*before, *new)


def _assign_element(shell: Shell, node: Node, named: Node, value: Node | None, world: World) -> str:
    """``ARGS[2]=x``: elements of an array whose length is known."""
    name_node, index = named.child_by_field_name("name"), named.child_by_field_name("index")
    name = "" if name_node is None else text_of(name_node, shell.source)
    place = "" if index is None else text_of(index, shell.source)
    new = text(shell, value, world) if value is not None and value.type != "array" else Text()
    before = world.variables.get(name)
    elements = list(before.value) if before and isinstance(before.value, tuple) else []
    if place.isdecimal() and int(place) <= len(elements):
        elements[int(place) : int(place) + 1] = [new]
        world.set(name, tuple(elements), shell.at(node))
    else:
        shell.leave("command", node, "an element of an array whose length is not followed")
    return name


def assign_all(shell: Shell, node: Node, world: World) -> None:
    children = [node] if node.type == "variable_assignment" else node.children
    for child in children:
        if child.type == "variable_assignment":
            assign(shell, child, world)

"""The syntax tree of a script, by tree-sitter's grammar of bash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from precision_plan.importers.texts import Source

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parsed(source: Source) -> Node:
    """The root of a script's tree. Never fails: what the grammar does not allow is in the tree."""
    if source.tree is None:
        source.tree = _parsed(source)
    root: Node = source.tree
    return root


def _parsed(source: Source) -> Node:
    data = source.data
    root = _parser().parse(data).root_node
    for _ in range(_PASSES):
        if not _ASSIGNMENTS.search(data):
            break
        ends = [each for each in _swallowed(root, data) if data[each : each + 1] in _BLANKS]
        if not ends:
            break
        changed = bytearray(data)
        for end in ends:
            changed[end] = ord(";")  # as long as what it replaces, so that positions stay
        data = bytes(changed)
        root = _parser().parse(data).root_node
    return root


_ASSIGNMENTS = re.compile(rb"^[ \t]*\w+=\S*[ \t]+\w+=", re.MULTILINE)
_PASSES = 8
"""Each shows what the one before had hidden in a command that is none."""
_BLANKS = (b"\n", b"\r", b" ", b"\t")


def _swallowed(root: Node, data: bytes) -> Iterator[int]:
    """Ends of ``A=1 B=2`` on a line of its own: the grammar takes the next line to be its command.

    One assignment ends with its line.
    """
    nodes = [root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.type != "command" or node.children[0].type != "variable_assignment":
            continue
        before = [child for child in node.children if child.type == "variable_assignment"]
        named = node.child_by_field_name("name")
        if len(before) > 1 and named is not None:
            end = before[-1].end_byte
            if b"\n" in data[end : named.start_byte].replace(b"\\\n", b""):
                yield end


EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
)


def start_of(node: Node, source: Source) -> int:
    """Where a node begins: in quotes, the grammar counts white space before ``$`` to it."""
    start = node.start_byte
    if node.type in EXPANSIONS:
        while start < node.end_byte and source.data[start] in b" \t\r\n":
            start += 1
    return start


def text_of(node: Node, source: Source) -> str:
    """The source text of a node."""
    return source.data[start_of(node, source) : node.end_byte].decode("utf-8", "replace")


def one_line(node: Node, source: Source, limit: int = 72) -> str:
    """The source text of a node on one line, shortened."""
    text = " ".join(text_of(node, source).replace("\\\n", " ").split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


SIMPLE = frozenset(
    {
        "command",
        "declaration_command",
        "unset_command",
        "variable_assignment",
        "variable_assignments",
        "test_command",
        "negated_command",
        "ERROR",
    }
)
"""Statements without statements of their own (those in substitutions aside)."""

WORDS = frozenset(
    {
        "word",
        "number",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "concatenation",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "arithmetic_expansion",
        "process_substitution",
        "brace_expression",
        "extglob_pattern",
        "regex",
        "variable_name",
        "special_variable_name",
        "test_operator",
        "subscript",
    }
)
"""Nodes that stand for a word."""


def simple_statements(node: Node) -> Iterator[Node]:
    """Every simple statement below ``node``, in order; none of those inside another."""
    for child in node.children:
        if child.type in SIMPLE:
            yield child
        elif child.is_named and child.child_count and child.type not in WORDS:
            yield from simple_statements(child)

"""The syntax tree of a script, by tree-sitter's grammar of bash."""

from __future__ import annotations

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
    return _parser().parse(source.data).root_node


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

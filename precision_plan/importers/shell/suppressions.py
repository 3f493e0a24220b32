"""Suppression comments in scripts; a text in quotes that looks like one is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from precision_plan.compose.comments import suppressions_in
from precision_plan.importers.shell.tree import parsed
from precision_plan.importers.texts import Source
from precision_plan.plan.suppression import Suppression

if TYPE_CHECKING:
    from tree_sitter import Node

_TEXTS = frozenset({"string", "raw_string", "ansi_c_string", "heredoc_body"})
_MARKER = b"precision-plan:"


def suppressions_of(sources: Iterable[Source]) -> tuple[Suppression, ...]:
    """The ``# precision-plan: ignore[ID] reason`` comments of some scripts."""
    found: list[Suppression] = []
    for source in sources:
        if _MARKER in source.data:
            text = source.data.decode("utf-8", "replace")
            found += suppressions_in(text, source.file, partial(_spans, source))
    return tuple(found)


def _spans(source: Source) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    nodes: list[Node] = [parsed(source)]
    while nodes:
        node = nodes.pop()
        if node.type in _TEXTS:
            yield _place(source, node.start_byte), _place(source, node.end_byte)
        else:
            nodes.extend(node.children)


def _place(source: Source, offset: int) -> tuple[int, int]:
    origin = source.origin(offset)
    return origin.line - 1, origin.column - 1

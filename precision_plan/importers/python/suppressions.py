"""Suppression comments in launchers; a text in quotes that looks like one is none."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import partial

from precision_plan.compose.comments import suppressions_in
from precision_plan.importers.texts import Source
from precision_plan.plan.suppression import Suppression

_LITERALS = frozenset({"STRING", "FSTRING_MIDDLE"})
_MARKER = b"precision-plan:"


def suppressions_of(sources: Iterable[Source]) -> tuple[Suppression, ...]:
    """The ``# precision-plan: ignore[ID] reason`` comments of some launchers."""
    found: list[Suppression] = []
    for source in sources:
        if _MARKER in source.data:
            text = source.data.decode("utf-8", "replace")
            found += suppressions_in(text, source.file, partial(_spans, source))
    return tuple(found)


def _spans(source: Source) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where the literals are; literals that follow one another may have comments between."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.data.decode()).readline):
            if tokenize.tok_name[token.type] in _LITERALS:
                yield (token.start[0] - 1, token.start[1]), (token.end[0] - 1, token.end[1])
    except (SyntaxError, ValueError, tokenize.TokenError):
        return

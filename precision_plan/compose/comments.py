"""Finds suppression comments in the text of a recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from precision_plan.plan.origin import Origin
from precision_plan.plan.suppression import Suppression

Span = tuple[tuple[int, int], tuple[int, int]]

_MARKER = "precision-plan:"
_COMMENT = re.compile(
    r"(?:^|(?<=\s))#\s*precision-plan:\s*ignore(?P<whole>-file)?\s*\[(?P<ids>[^\]]*)\](?P<reason>.*)"
)


def suppressions_in(
    text: str, shown: str, spans: Callable[[], Iterable[Span]]
) -> tuple[Suppression, ...]:
    """The ``# precision-plan: ignore[ID, ...] reason`` comments of a file.

    ``spans`` yields where scalars stand: a text that merely looks like a comment is none.
    """
    if _MARKER not in text:
        return ()
    lines = text.splitlines()
    values = tuple(spans())
    found = []
    for number, line in enumerate(lines):
        match = _COMMENT.search(line)
        if match is None or any(start <= (number, match.start()) < end for start, end in values):
            continue
        covered = 0 if match["whole"] else _covered(lines, number, match.start())
        ids = tuple(part.strip() for part in match["ids"].split(",") if part.strip())
        origin = Origin(shown, number + 1, match.start() + 1)
        found.append(Suppression(ids, match["reason"].strip(" \t:-"), covered, origin))
    return tuple(found)


def _covered(lines: Sequence[str], number: int, column: int) -> int:
    """Line (from 1) that a comment is about: its own, or the next with content if it is alone."""
    if lines[number][:column].strip():
        return number + 1
    for later in range(number + 1, len(lines)):
        content = lines[later].strip()
        if content and not content.startswith("#"):
            return later + 1
    return number + 1

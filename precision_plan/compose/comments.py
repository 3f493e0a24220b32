"""Finds suppression comments in the text of a recipe."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from precision_plan.plan.origin import Origin
from precision_plan.plan.suppression import Suppression

Span = tuple[tuple[int, int], tuple[int, int]]

_MARKER = "precision-plan:"
_COMMENT = re.compile(
    r"(?:^|(?<=\s))#[ \t]{0,8}precision-plan:[ \t]{0,8}ignore(?P<whole>-file)?[ \t]{0,8}"
    r"\[(?P<ids>[^\]#]{0,200})\](?P<reason>.*)"
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
    matches = [(number, match) for number, line in enumerate(lines)
               if _MARKER in line and (match := _COMMENT.search(line))]  # fmt: skip
    if not matches:
        return ()
    starts_and_ends = sorted(spans())
    starts = [start for start, _ in starts_and_ends]
    found = []
    for number, match in matches:
        before = bisect_right(starts, (number, match.start()))
        if before and (number, match.start()) < starts_and_ends[before - 1][1]:
            continue  # it is part of a text
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

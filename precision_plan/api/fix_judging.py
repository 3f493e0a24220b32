"""Whether a file is the better for a fix: what fixing recipes and scripts have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from precision_plan.plan import Diagnostic

_UNUSED = "PP021"
"""A suppression of what is gone has nothing to silence any more; the next round removes it."""

Key = tuple[object, ...]


def key(diagnostic: Diagnostic) -> Key:
    """What makes a finding the same one in an edited file, where its line may be another."""
    return (diagnostic.id, diagnostic.field, diagnostic.message)


def doubt(diagnostic: Diagnostic, errors: Iterable[Diagnostic]) -> str | None:
    """Why a setting may have an effect after all: an error is about what it rests on.

    Amax options have none without an FP8 format; but if the recipe asks for FP8 and the format is
    what is missing, they will have one as soon as a person has written it. An error about what
    goes away is none then.
    """
    if diagnostic.stage == "compose":
        return None
    edits = diagnostic.safe_fix.edits if diagnostic.safe_fix else {}
    mine = _concerned(diagnostic) - {field for field, value in edits.items() if value is None}
    for error in errors:
        common = mine & _concerned(error)
        if common and error is not diagnostic:
            return f"{error.id} is an error about {min(common)}, to be resolved first"
    return None


def _concerned(diagnostic: Diagnostic) -> set[str]:
    """Fields that a finding is about, rests on, or that a person would change to end it."""
    fields = {diagnostic.field, *(premise.field for premise in diagnostic.because)}
    return {*filter(None, fields), *(field for fix in diagnostic.fix for field in fix.edits)}


def worse(
    before: Iterable[Diagnostic],
    after: Iterable[Diagnostic],
    fixed: Iterable[Diagnostic],
    read_now: Collection[str] | None = None,
) -> str | None:
    """Why a file would be no better; ``None`` if it would be.

    ``read_now`` are fields that were refused before and are read after the fix, so that there may
    be something to say about them, and about the whole plan.
    """
    before, after = tuple(before), tuple(after)
    number, now = Counter(map(key, before)), Counter(map(key, after))
    for each, times in Counter(map(key, fixed)).items():
        if now[each] > number[each] - times:
            return "the finding would stay"
    known = Counter((found.id, found.field) for found in before)
    for found in after:
        known[found.id, found.field] -= 1
        hidden = read_now is not None and (found.stage != "compose" or found.field in read_now)
        if known[found.id, found.field] < 0 and found.id != _UNUSED and not hidden:
            return f"it would bring {found.id}: {found.message}"
    return None

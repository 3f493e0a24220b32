"""Did you mean: the closest known name, and short lists of names for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LONGEST, _MOST = 80, 1000
"""Beyond these, a word or a list is no slip of the finger, and comparing would take long."""


def closest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name most like ``word``, or ``None`` if none is close; case and ``-``/``_`` are equal."""
    from difflib import get_close_matches

    plain = {_plain(name): name for name in names}
    if len(word) > _LONGEST or len(plain) > _MOST:
        return None
    if (same := plain.get(_plain(word))) is not None:
        return same
    found = get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def alike(word: str, name: str) -> bool:
    """True if they differ in case, in ``-`` for ``_`` or in leading dashes only."""
    return _plain(word.lstrip("-")) == _plain(name)


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def printable(text: str) -> str:
    """``text`` on one line and without control characters, for messages."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def listed(names: Sequence[str], limit: int = 12) -> str:
    """``a, b, c``; of more than ``limit`` names, the first and the number left out."""
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"

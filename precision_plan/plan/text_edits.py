"""Changes of a text by position: what a fix does to a file that must keep every other byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TextEdit(NamedTuple):
    """Put ``text`` in the place of what stands from ``start`` up to ``end``, counted from 0."""

    start: int
    end: int
    text: str = ""


def edited(text: str, edits: Iterable[TextEdit]) -> str:
    """``text`` with all edits made; their positions are characters of the text as it was.

    Raises:
        ValueError: if two edits overlap, or one lies outside the text.
    """
    parts: list[str] = []
    at = 0
    for edit in _in_order(edits, len(text)):
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join((*parts, text[at:]))


def edited_bytes(data: bytes, edits: Iterable[TextEdit]) -> bytes:
    """The same for data whose encoding is UTF-8 or unknown; positions are bytes.

    Raises:
        ValueError: if two edits overlap, or one lies outside the data.
    """
    parts: list[bytes] = []
    at = 0
    for edit in _in_order(edits, len(data)):
        parts += (data[at : edit.start], edit.text.encode("utf-8", "surrogateescape"))
        at = edit.end
    return b"".join((*parts, data[at:]))


def _in_order(edits: Iterable[TextEdit], size: int) -> list[TextEdit]:
    """Sorted by position; edits that are written twice count once."""
    ordered = sorted(set(edits))
    at = 0
    for edit in ordered:
        if not at <= edit.start <= edit.end <= size:
            raise ValueError(f"{edit} overlaps another edit, or lies outside the text")
        at = edit.end
    return ordered

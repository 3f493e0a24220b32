"""Laying text out: safe characters, wrapping, aligned columns, colour."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# What could move a cursor, recolour a terminal or reorder what a person reads: C0 and C1
# controls, line and paragraph separators, zero-width and bidirectional marks, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_ESCAPE = re.compile("\x1b\\[[0-9;]*m")

_COLORS = {
    "error": "1;31",
    "warning": "1;33",
    "advice": "1;36",
    "title": "1",
    "dim": "2",
    "good": "1;32",
}


def printable(text: str) -> str:
    """``text`` with every character that a terminal would act upon written as an escape."""
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Style:
    """Paints words if colour is on; the text itself is the same either way."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, kind: str, text: str) -> str:
        """``text`` in the colour of ``kind`` (a severity, ``title``, ``dim`` or ``good``)."""
        return f"\x1b[{_COLORS[kind]}m{text}\x1b[0m" if self.color and text else text


def columns_of(text: str) -> int:
    """Terminal columns that ``text`` takes; colour takes none, East Asian wide characters two."""
    if text.isascii():
        return len(_ESCAPE.sub("", text)) if "\x1b" in text else len(text)
    from unicodedata import combining, east_asian_width

    plain = _ESCAPE.sub("", text)
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in plain
    )


def wrap(text: str, width: int) -> list[str]:
    """Break ``text`` into lines of at most ``width`` columns, at spaces where there are any.

    A word longer than a line is cut; runs of spaces inside a line are kept.
    """
    width = max(width, 8)
    if columns_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in re.findall(r"\S+\s*", text):
        if line and columns_of(line + word.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        while columns_of(word.rstrip()) > width:
            head = _head(word, width)
            lines.append(head)
            word = word[len(head) :]
        line += word
    if line.strip():
        lines.append(line.rstrip())
    return lines or [""]


def _head(word: str, width: int) -> str:
    """The longest beginning of ``word`` that fits, cut after a separator if one is near its end."""
    end = 0
    while end < len(word) and columns_of(word[: end + 1]) <= width:
        end += 1
    end = max(end, 1)
    for separators in ("/,;=", ":_-"):
        for at in range(end, end // 2, -1):
            if word[at - 1] in separators:
                return word[:at]
    return word[:end]


def hanging(label: str, text: str, width: int, *, indent: int, painted: str = "") -> list[str]:
    """``label`` in a column ``indent`` wide, then ``text`` wrapped beside it.

    ``painted`` is the label in colour.
    """
    lines = wrap(text, width - indent)
    first = (painted or label) + " " * max(indent - columns_of(label), 1)
    return [first + lines[0], *(" " * indent + line for line in lines[1:])]


def table(
    rows: Iterable[Sequence[str]], limits: Sequence[int], width: int, indent: int
) -> list[str]:
    """Rows in aligned columns, two spaces apart.

    A column is as wide as its widest cell but at most its entry in ``limits``; the last one
    takes what is left of ``width``. Cells wrap.
    """
    body = [tuple(row) for row in rows]
    if not body:
        return []
    widths = [
        min(limit, max(columns_of(row[at]) for row in body)) for at, limit in enumerate(limits)
    ]
    widths.append(max(width - indent - sum(widths) - 2 * len(widths), 16))
    lines: list[str] = []
    for row in body:
        cells = [wrap(cell, widths[at]) for at, cell in enumerate(row)]
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            padded = [part + " " * (widths[at] - columns_of(part)) for at, part in enumerate(parts)]
            lines.append((" " * indent + "  ".join(padded)).rstrip())
    return lines

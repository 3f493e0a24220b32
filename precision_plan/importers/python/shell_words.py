"""A text as the words that a shell makes of it, each with its positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from precision_plan.importers.texts import Piece, Text

_ENDS = frozenset(";&|\n")


class Line(NamedTuple):
    """One simple command of a shell text: variables before it, and its words."""

    words: tuple[Text, ...]


def lines(text: Text) -> Iterator[Line]:
    """The commands of a text: what ``;``, ``&&``, ``|`` and line ends keep apart."""
    words: list[Text] = []
    for word in _words(text):
        if word is not None:
            words.append(word)
        elif words:
            yield Line(tuple(words))
            words = []
    if words:
        yield Line(tuple(words))


def split(text: Text) -> tuple[Text, ...]:
    """The words of a text that is one command, or a part of one; line ends are white space."""
    return tuple(word for word in _words(text, ends=frozenset()) if word is not None)


class _Builder:
    """A word while it is read."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.begun = False

    def add(self, piece: Piece) -> None:
        self.begun = True
        last = self.pieces[-1] if self.pieces else None
        if (
            last is not None and last.known and piece.known and last.exact and piece.exact
            and last.source is piece.source and last.assumed == piece.assumed
            and last.offset + len(last.text.encode()) == piece.offset
        ):  # fmt: skip
            self.pieces[-1] = last._replace(text=last.text + piece.text)
        else:
            self.pieces.append(piece)

    def done(self) -> Iterator[Text]:
        if self.begun:
            yield Text(tuple(self.pieces))
        self.__init__()  # type: ignore[misc]


_RUN = {
    "": re.compile(r"[^\s\"'\\;&|]+"),
    '"': re.compile(r"[^\"\\]+"),
    "'": re.compile(r"[^']+"),
}
"""Characters that stand for themselves: outside of quotes, and inside of each kind."""


def _words(text: Text, ends: frozenset[str] = _ENDS) -> Iterator[Text | None]:
    """Words, and ``None`` where a command ends."""
    word, quote, escaped = _Builder(), "", False
    for piece in text.pieces:
        if not piece.known:
            word.add(piece._replace(split=not quote))
            continue
        at, size = 0, len(piece.text)
        while at < size:
            run = None if escaped else _RUN[quote].match(piece.text, at)
            if run is not None:
                word.add(_cut(piece, at, run.end()))
                at = run.end()
                continue
            char = piece.text[at]
            at += 1
            if escaped:
                escaped = False
                if char == "\n":
                    continue
                if quote == '"' and char not in '"\\$`':
                    word.add(_cut(piece, max(at - 2, 0), max(at - 2, 0) + 1, "\\"))
                word.add(_cut(piece, at - 1, at))
            elif char == "\\":
                escaped = True
            elif quote:
                quote = ""
            elif char in "\"'":
                quote, word.begun = char, True
            elif char in ends:
                yield from word.done()
                yield None
            elif char.isspace():
                yield from word.done()
            else:
                word.add(_cut(piece, at - 1, at))
    yield from word.done()


def _cut(piece: Piece, start: int, end: int, text: str = "") -> Piece:
    step = len(piece.text[:start].encode()) if piece.exact else 0
    return piece._replace(text=text or piece.text[start:end], offset=piece.offset + step)

"""A text as the words that a shell makes of it, each with its positions."""

from __future__ import annotations

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


def _words(text: Text, ends: frozenset[str] = _ENDS) -> Iterator[Text | None]:
    """Words, and ``None`` where a command ends."""
    word, quote, escaped = _Builder(), "", False
    for piece in text.pieces:
        if not piece.known:
            word.add(piece._replace(split=not quote))
            continue
        for index, char in enumerate(piece.text):
            if escaped:
                escaped = False
                if char == "\n":
                    continue
                if quote == '"' and char not in '"\\$`':
                    word.add(_cut(piece, index - 1 if index else index, "\\"))
                word.add(_cut(piece, index, char))
            elif char == "\\" and quote != "'":
                escaped = True
            elif quote:
                if char == quote:
                    quote = ""
                else:
                    word.add(_cut(piece, index, char))
            elif char in "\"'":
                quote = char
                word.begun = True
            elif char in ends:
                yield from word.done()
                yield None
            elif char in " \t\n":
                yield from word.done()
            else:
                word.add(_cut(piece, index, char))
    yield from word.done()


def _cut(piece: Piece, index: int, char: str) -> Piece:
    step = len(piece.text[:index].encode()) if piece.exact else 0
    return piece._replace(text=char, offset=piece.offset + step)

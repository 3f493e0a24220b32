"""Text with a memory: every piece of a word knows where it was written and whether it is known.

A script's words are put together from literal text, variables, defaults and command
substitutions, over several files. A :class:`Text` keeps the pieces apart, so that a finding can
point at the character that a person would change, and so that what cannot be known before the
script runs stays unknown instead of being guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from precision_plan.plan import UNKNOWN, Origin


@dataclass(slots=True, eq=False)
class Source:
    """A file, or a text that stands in for one; ``data`` is what was read, in bytes.

    ``layer`` goes into every :class:`Origin`: ``script``, ``argv``, ``env``. The others keep what
    was worked out of ``data`` once: where lines start, positions, the syntax tree, the words of
    spans in which nothing is expanded, and what the file does where it is sourced.
    """

    file: str
    data: bytes
    layer: str = "script"
    _starts: list[int] = field(default_factory=list)
    _origins: dict[int, Origin] = field(default_factory=dict)
    tree: Any = None
    literals: dict[tuple[int, int], tuple[Text, ...]] = field(default_factory=dict)
    effects: dict[Any, Any] = field(default_factory=dict)

    def origin(self, offset: int) -> Origin:
        """Line and column (in characters, from 1) of a byte offset."""
        found = self._origins.get(offset)
        if found is None or found.layer != self.layer:
            found = self._origins[offset] = self._place(offset)
        return found

    def _place(self, offset: int) -> Origin:
        if not self._starts:
            self._starts.append(0)
            at = self.data.find(b"\n")
            while at >= 0:
                self._starts.append(at + 1)
                at = self.data.find(b"\n", at + 1)
        line = bisect_right(self._starts, offset)
        before = self.data[self._starts[line - 1] : offset]
        return Origin(self.file, line, len(before.decode("utf-8", "replace")) + 1, self.layer)


class Piece(NamedTuple):
    """A run of characters with one origin.

    ``text`` is what the shell makes of it; of an unknown piece it is the source text, such as
    ``${HOME}`` or ``$(date)``. ``name`` is the variable that an unknown or assumed piece stands
    for. ``assumed``: the text is a default (``${GPU:-h100}``) that the environment may replace.
    ``split``: unknown and unquoted, so that it may become no word, one, or several.
    ``offset`` is where the text was written; ``exact`` says that it stands there letter by
    letter, so that the n-th character has the n-th byte after it.
    """

    text: str
    source: Source | None = None
    offset: int = 0
    known: bool = True
    exact: bool = True
    assumed: bool = False
    split: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A word or value as a sequence of pieces."""

    pieces: tuple[Piece, ...] = ()

    @property
    def shown(self) -> str:
        """The text, with the source text of whatever is unknown."""
        pieces = self.pieces
        return pieces[0].text if len(pieces) == 1 else "".join(piece.text for piece in pieces)

    @property
    def known(self) -> bool:
        """True if every piece is known."""
        if len(self.pieces) == 1:
            return self.pieces[0].known
        return all(piece.known for piece in self.pieces)

    @property
    def value(self) -> str | None:
        """The text; ``None`` unless every piece is known."""
        if len(self.pieces) == 1:
            piece = self.pieces[0]
            return piece.text if piece.known else None
        return self.shown if self.known else None

    @property
    def assumed(self) -> bool:
        """True if a piece is a default that the environment may replace."""
        return any(piece.assumed for piece in self.pieces)

    @property
    def splits(self) -> bool:
        """True if the word may turn out to be no word, or several."""
        return any(piece.split for piece in self.pieces)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Source texts of the unknown pieces."""
        return tuple(piece.text for piece in self.pieces if not piece.known)

    @property
    def origin(self) -> Origin:
        """Where its first character was written."""
        first = self.pieces[0] if self.pieces else None
        if first is not None and first.text and first.source is not None:
            return first.source.origin(first.offset)
        return self.origin_at(0)

    def origin_at(self, index: int) -> Origin:
        """Where the character at ``index`` of :attr:`shown` was written."""
        last: Piece | None = None
        for piece in self.pieces:
            if piece.source is not None:
                last = piece
            if index < len(piece.text):
                break
            index -= len(piece.text)
        if last is None or last.source is None:
            return UNKNOWN
        step = len(last.text[:index].encode()) if last.exact and last.known else 0
        return last.source.origin(last.offset + step)

    def part(self, start: int, end: int | None = None) -> Text:
        """The characters ``start`` to ``end`` of :attr:`shown`; an unknown piece is never cut."""
        stop = len(self.shown) if end is None else end
        found: list[Piece] = []
        at = 0
        for piece in self.pieces:
            size = len(piece.text)
            low, high = max(start - at, 0), min(stop - at, size)
            if low < high:
                whole = (low, high) == (0, size)
                found.append(piece if whole or not piece.known else _cut(piece, low, high))
            at += size
        return Text(tuple(found))


def _cut(piece: Piece, low: int, high: int) -> Piece:
    step = len(piece.text[:low].encode()) if piece.exact else 0
    return piece._replace(text=piece.text[low:high], offset=piece.offset + step)


EMPTY = Text()


def literal(text: str, source: Source | None = None, offset: int = 0) -> Text:
    """A known text that stands at ``offset`` letter by letter."""
    return Text((Piece(text, source, offset),))


def joined(texts: Iterable[Text]) -> Text:
    """One text after the other."""
    return Text(tuple(piece for text in texts for piece in text.pieces))

"""Which characters go when a key is removed from a YAML text."""

from __future__ import annotations

import re

from precision_plan.compose.layout import Pair, Place
from precision_plan.compose.unedited import CannotEdit
from precision_plan.plan.text_edits import TextEdit

_TRAILING = re.compile(r"[ \t]+(#[^\r\n]*)")
_REST = re.compile(r"[ \t]*(#[^\n]*)?(\r?\n|\Z|\r\Z)")
_COMMA = re.compile(r"\s*,")
_COMMENT_LINE = re.compile(r"[ \t]*(#|\r?\n|\r?\Z)")
_SUPPRESSION = re.compile(r"[ \t]*#[ \t]*precision-plan:[ \t]*ignore\[")


def removal(text: str, place: Place) -> list[TextEdit]:
    """Edits that remove a key with its value and the comment behind it.

    If it is the only one of its mapping, that one's key goes too; comments between the two stay.

    Raises:
        CannotEdit: if it does not stand apart from other keys, or is the only key of the file.
    """
    chain = [place]
    while len(chain[-1].mapping.pairs) == 1:
        parent = chain[-1].parent
        if parent is None:
            raise CannotEdit("nothing would be left in the file")
        chain.append(parent)
    while len(chain) > 1 and chain[0].mapping.flow:
        del chain[0]  # {a: {b: 1}} goes with what holds it
    if chain[0].mapping.flow:
        return [_from_flow(text, chain[0])]
    return _from_block(text, chain)


def trailing_comment(text: str, pair: Pair) -> str:
    """The comment on the line on which a pair ends, with its ``#``; empty if there is none."""
    match = _TRAILING.match(text, pair.end)
    return match[1].rstrip() if match else ""


def _from_block(text: str, chain: list[Place]) -> list[TextEdit]:
    """The lines of a key and of the mappings that hold nothing else, innermost first."""
    edits = [_lines(text, chain[0].pair)]
    kept = False
    for outer, inner in zip(chain[1:], chain, strict=False):
        begin = _start(text, outer.pair)
        heading = line_end(text, outer.pair.colon or outer.pair.key.end)
        between = text[heading : _start(text, inner.pair)]
        if not all(_COMMENT_LINE.match(line) for line in between.splitlines(True)):
            raise CannotEdit("it shares its lines with other keys")
        kept = kept or "#" in between
        edits.append(TextEdit(begin, heading if kept else heading + len(between)))
    return _merged(text, edits)


def _lines(text: str, pair: Pair) -> TextEdit:
    """The lines of a pair of a block mapping, and a suppression comment that is about it."""
    begin = _start(text, pair)
    rest = _REST.match(text, pair.end)
    if rest is None:
        raise CannotEdit("it shares its lines with other keys")
    while begin:
        above = text.rfind("\n", 0, begin - 1) + 1
        if not _SUPPRESSION.match(text, above):
            break
        begin = above
    return TextEdit(begin, rest.end())


def _start(text: str, pair: Pair) -> int:
    """Start of the line that a pair begins."""
    begin = line_start(text, pair.start)
    if text[begin : pair.start].strip():
        raise CannotEdit("it shares its first line with something else")
    return begin


def _merged(text: str, edits: list[TextEdit]) -> list[TextEdit]:
    """Adjacent edits as one; of the blank lines around what goes, one is enough."""
    merged: list[TextEdit] = []
    for edit in sorted(edits):
        if merged and edit.start <= merged[-1].end:
            edit = TextEdit(merged[-1].start, max(merged.pop().end, edit.end))
        merged.append(edit)
    first, last = merged[0], merged[-1]
    above = text.rfind("\n", 0, first.start - 1) + 1 if first.start else 0
    blank_above = first.start > 0 and not text[above : first.start].strip()
    below = text[last.end : line_end(text, last.end)]
    if len(merged) == 1 and blank_above and not below.strip():
        merged[0] = TextEdit(above, last.end)
    return merged


def _from_flow(text: str, place: Place) -> TextEdit:
    """A pair between braces: with its comma, and with its line if it has one of its own."""
    pair, pairs = place.pair, place.mapping.pairs
    index = pairs.index(pair)
    comma = _COMMA.match(text, pair.end)
    end = comma.end() if comma else pair.end
    begin = line_start(text, pair.start)
    if not text[begin : pair.start].strip():
        rest = _REST.match(text, end)
        if rest is not None:
            return TextEdit(begin, rest.end())
        return TextEdit(pair.start, _past_blanks(text, end))
    if index:
        return TextEdit(pairs[index - 1].end, pair.end)
    rest = _REST.match(text, end)
    if rest is not None and rest[1]:  # its own comment, then the next line
        return TextEdit(pair.start, rest.end(1))
    return TextEdit(pair.start, _past_blanks(text, end))


def _past_blanks(text: str, index: int) -> int:
    while index < len(text) and text[index] in " \t":
        index += 1
    return index


def line_start(text: str, index: int) -> int:
    """Index of the first character of the line that holds ``index``."""
    return text.rfind("\n", 0, index) + 1


def line_end(text: str, index: int) -> int:
    """Index behind the line feed that ends the line of ``index``, or the end of the text."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1

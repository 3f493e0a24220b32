"""Edits of scripts: words go or change, and every other byte stays as it is.

Positions are bytes of :attr:`Source.data`. What is edited must stand in the script letter by
letter; what it does to the launches of the script is for the caller to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from precision_plan.compose.unedited import CannotEdit
from precision_plan.importers.shell.tree import WORDS, parsed, text_of
from precision_plan.importers.texts import Piece, Source, Text
from precision_plan.plan.text_edits import TextEdit

if TYPE_CHECKING:
    from tree_sitter import Node

_LISTS = frozenset({"array", "command"})
_RAW_WORD = re.compile(rb"(?:[ \t]|\\\n|\n)+((?:\$\{[^}\s]*\}|[^\s\"'\\`()<>|&;])+)")
_PLAIN = re.compile(r"[\w.,:/+@%=-]+")


class Place(NamedTuple):
    """A run of bytes in a script."""

    source: Source
    start: int
    end: int


def written(word: Text) -> Place:
    """Where a word or value stands letter by letter.

    Raises:
        CannotEdit: if it does not, or if the environment may replace it.
    """
    pieces = [piece for piece in word.pieces if piece.text]
    if not pieces or any(piece.assumed or not piece.known for piece in pieces):
        raise CannotEdit("its value is not known before the script runs")
    first = pieces[0]
    at = first.offset
    for piece in pieces:
        if piece.source is None or not piece.exact or piece.offset != at or not _same(piece, first):
            raise CannotEdit("it is put together from several texts of the script")
        at += len(piece.text.encode())
    assert first.source is not None
    return Place(first.source, first.offset, at)


def _same(piece: Piece, other: Piece) -> bool:
    one, two = piece.source, other.source
    return one is two or (one is not None and two is not None and one.file == two.file)


def option_place(words: Sequence[Text]) -> Place:
    """Where an option stands with its values: the first of ``words`` is the option.

    Raises:
        CannotEdit: if that is no single run of words of the script.
    """
    place = written(words[0])
    node = _word_at(place)
    parent = node.parent
    if parent is not None and parent.type in _LISTS and _is_all_of(node, words[0], place.source):
        return _with_siblings(place.source, node, parent, len(words) - 1)
    end = place.end
    for _ in words[1:]:
        found = _RAW_WORD.match(place.source.data, end)
        if found is None:
            raise CannotEdit("its value stands elsewhere in the script")
        end = found.end()
    return Place(place.source, place.start, end)


def _word_at(place: Place) -> Node:
    """The word of the script that holds a place."""
    root = parsed(place.source)
    node = root.descendant_for_byte_range(place.start, max(place.end - 1, place.start))
    if node is None or node.type == "ERROR":
        raise CannotEdit("the script cannot be parsed there")
    while node.parent is not None and node.parent.type in WORDS:
        node = node.parent
    return node


def _is_all_of(node: Node, word: Text, source: Source) -> bool:
    return text_of(node, source).strip("\"'") == word.shown


def _with_siblings(source: Source, node: Node, parent: Node, count: int) -> Place:
    children = parent.children
    at = next(index for index, child in enumerate(children) if child.id == node.id)
    last = node
    for child in children[at + 1 : at + 1 + count]:
        if child.type not in WORDS:
            raise CannotEdit("something else stands between the option and its value")
        last = child
    following = children[at + 1 + count : at + 2 + count]
    short = len(children) < at + 1 + count
    if short or any(child.start_byte == last.end_byte for child in following if child.is_named):
        raise CannotEdit("its value stands elsewhere in the script")
    return Place(source, node.start_byte, last.end_byte)


def removal(place: Place) -> TextEdit:
    """Take words away: with their line if nothing else is on it, else with the blank before.

    A backslash before the end of the line goes with the line; the one of the line before goes if
    the words were the last of a command.
    """
    data, start, end = place.source.data, place.start, place.end
    first = data.rfind(b"\n", 0, start) + 1
    last = data.find(b"\n", end)
    last = len(data) if last < 0 else last
    before, after = data[first:start], data[end:last].strip()
    if not before.strip():
        if after == b"\\":
            return TextEdit(first, last + 1)
        if not after or (after.startswith(b"#") and data[end : end + 1] in b" \t"):
            above = data[: max(first - 1, 0)]
            if after or not above.endswith(b"\\"):
                return TextEdit(first, min(last + 1, len(data)))
            return TextEdit(len(above[:-1].rstrip(b" \t")), last)
        return TextEdit(start, end + _blanks(data[end:last]))
    blanks = len(before) - len(before.rstrip(b" \t"))
    return TextEdit(start - blanks, end if blanks else end + _blanks(data[end:last]))


def _blanks(data: bytes) -> int:
    return len(data) - len(data.lstrip(b" \t"))


def replacement(place: Place, text: str) -> TextEdit:
    """Put another word, or words, in a place.

    Raises:
        CannotEdit: if the shell would read the text as something else.
    """
    if not all(_PLAIN.fullmatch(word) for word in text.split(" ")):
        raise CannotEdit(f"{text!r} needs quotes")
    return TextEdit(place.start, place.end, text)


# Assignments ----------------------------------------------------------------------------------
_BODIES = frozenset(
    {
        "program",
        "if_statement",
        "else_clause",
        "elif_clause",
        "do_group",
        "compound_statement",
        "case_item",
    }
)
_OPENERS = frozenset({"then", "do", "{", "else", ")"})
_CLOSERS = frozenset({"fi", "done", "}", ";;", "else_clause", "elif_clause", "esac"})


def assignment_of(name: str, sources: Sequence[Source]) -> tuple[Source, Node]:
    """The one assignment of a variable.

    Raises:
        CannotEdit: if there is none, or another one.
    """
    found = [(source, node) for source in sources for node in _assignments(source, name)]
    if not found:
        raise CannotEdit(f"no assignment of {name} is written in the script")
    if len(found) > 1:
        raise CannotEdit(f"{name} is set in several places")
    return found[0]


def _assignments(source: Source, name: str) -> Iterator[Node]:
    nodes = [parsed(source)] if name.encode() in source.data else []
    while nodes:
        node = nodes.pop()
        if node.type == "variable_assignment":
            named = node.child_by_field_name("name")
            if named is not None and text_of(named, source) == name:
                yield node
        nodes.extend(node.children)


def name_place(source: Source, assignment: Node) -> Place:
    """The name of an assignment."""
    named = assignment.child_by_field_name("name")
    if named is None:
        raise CannotEdit("the script cannot be parsed there")
    return Place(source, named.start_byte, named.end_byte)


def assignment_removal(source: Source, assignment: Node) -> TextEdit:
    """Take away an assignment before a command, or with the ``export`` that it belongs to.

    Raises:
        CannotEdit: if something else would go, or nothing be left of a branch.
    """
    parent = assignment.parent
    if parent is None:
        raise CannotEdit("the script cannot be parsed there")
    place = Place(source, assignment.start_byte, assignment.end_byte)
    if parent.type == "command":
        return removal(place)
    if parent.type != "declaration_command":
        raise CannotEdit("it is exported in another place than it is set in")
    if sum(child.is_named for child in parent.children) > 1:
        return removal(place)
    body = parent.parent
    if body is None or body.type not in _BODIES:
        raise CannotEdit("it is a part of a longer statement")
    if _is_alone(parent):
        raise CannotEdit("nothing would be left of the branch that it stands in")
    place = Place(source, parent.start_byte, parent.end_byte)
    edit = removal(place)
    statement = source.data[place.start : place.end]
    more = source.data[edit.start : edit.end].strip().removeprefix(statement).strip()
    if (not more or more.startswith(b"#")) and source.data[: edit.start][-1:] in (b"", b"\n"):
        return edit
    if source.data[place.end : place.end + 2] == b"; ":
        return TextEdit(place.start, place.end + 2)
    before = source.data[: place.start].rstrip(b" \t")
    if before.endswith(b";") and not before.endswith(b";;"):
        return TextEdit(len(before) - 1, place.end)
    raise CannotEdit("something else stands on its line")


def _is_alone(node: Node) -> bool:
    """True if no other statement stands in the same branch."""
    before, after = node.prev_sibling, node.next_sibling
    while before is not None and before.type in {"comment", ";", "\n"}:
        before = before.prev_sibling
    while after is not None and after.type in {"comment", ";", "\n"}:
        after = after.next_sibling
    opens = before is not None and before.type in _OPENERS
    return opens and (after is None or after.type in _CLOSERS)


def comment_removal(source: Source, line: int, column: int) -> TextEdit:
    """Take away the comment that begins at a position.

    Raises:
        CannotEdit: if none does.
    """
    lines = source.data.split(b"\n")
    if not 0 < line <= len(lines):
        raise CannotEdit("no comment begins there")
    text = lines[line - 1]
    first = sum(len(each) + 1 for each in lines[: line - 1])
    at = len(text.decode("utf-8", "replace")[: column - 1].encode())
    if text[at : at + 1] != b"#":
        raise CannotEdit("no comment begins there")
    return removal(Place(source, first + at, first + len(text)))

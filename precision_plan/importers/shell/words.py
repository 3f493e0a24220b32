"""Expands a word as the shell does: quotes, variables, arrays, substitutions, word splitting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import EXPANSIONS, one_line, start_of, text_of
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node


class Part(NamedTuple):
    """A part of a word. ``array``: every text is a word of its own; ``quoted``: never split."""

    texts: tuple[Text, ...]
    quoted: bool = True
    array: bool = False


_ESCAPED_IN_QUOTES = '$`"\\\n'
_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "0": "\0", "e": "\x1b"}
MOST_WORDS = 4096


def text(shell: Shell, node: Node, world: World, *, quoted: bool = False) -> Text:
    """A word as one text, not split: the value of an assignment, a pattern, a file name."""
    if _is_literal(shell.source.data, node.start_byte, node.end_byte):
        key = (node.start_byte, -1 if quoted else -2)
        found = shell.source.literals.get(key)
        if found is None:
            found = shell.source.literals[key] = (_text(shell, node, world, quoted),)
        return found[0]
    return _text(shell, node, world, quoted)


def _text(shell: Shell, node: Node, world: World, quoted: bool) -> Text:
    pieces: list[Piece] = []
    for part in parts(shell, node, world, quoted):
        for before, each in enumerate(part.texts):
            if before:
                pieces.append(Piece(" "))
            pieces.extend(each.pieces)
    return Text(tuple(pieces))


def words(shell: Shell, nodes: list[Node], world: World) -> list[Text]:
    """All words that the nodes expand to; one that vanishes is not there."""
    if not nodes:
        return []
    start, end = nodes[0].start_byte, nodes[-1].end_byte
    if not _is_literal(shell.source.data, start, end):
        return _words(shell, nodes, world)
    known = shell.source.literals.get((start, end))
    if known is None:
        known = shell.source.literals[start, end] = tuple(_words(shell, nodes, world))
    return list(known)


def _is_literal(data: bytes, start: int, end: int) -> bool:
    """True if nothing is expanded in a span: what it says is the same in every world."""
    return all(data.find(mark, start, end) < 0 for mark in _EXPANDED)


_EXPANDED = (b"$", b"`", b"<(", b">(")


def _words(shell: Shell, nodes: list[Node], world: World) -> list[Text]:
    found: list[Text] = []
    for group in _touching(nodes):
        if len(group) > 1:
            found.extend(_split(_torn(shell, group, world)))
            continue
        node = group[0]
        if node.type != "word" or not _is_literal(
            shell.source.data, node.start_byte, node.end_byte
        ):
            found.extend(_of_node(shell, node, world))
            continue
        place = (node.start_byte, node.end_byte)
        known = shell.source.literals.get(place)
        if known is None:
            known = shell.source.literals[place] = _bare(shell, node, world)
        found.extend(known)
    return found


def _bare(shell: Shell, node: Node, world: World) -> tuple[Text, ...]:
    """A word without expansions: nearly always what stands there."""
    raw = shell.source.data[node.start_byte : node.end_byte]
    if b"\\" in raw or node.child_count:
        return tuple(_of_node(shell, node, world))
    return (Text((Piece(raw.decode("utf-8", "replace"), shell.source, node.start_byte),)),)


def _of_node(shell: Shell, node: Node, world: World) -> Iterable[Text]:
    of_node = [*parts(shell, node, world, False)]
    if len(of_node) != 1 or not _stays_whole(of_node[0]):
        return _split(iter(of_node))
    part = of_node[0]
    return part.texts if part.array or not part.quoted else part.texts[:1]


def _stays_whole(part: Part) -> bool:
    """True if the texts of a word's only part are the words: nothing is split or vanishes."""
    if part.quoted:
        return True
    for word in part.texts:
        if not word.pieces:
            return False
        for piece in word.pieces:
            if not piece.known or piece.text.split(None, 1) != [piece.text]:
                return False
    return True


def _touching(nodes: list[Node]) -> Iterator[list[Node]]:
    """Nodes without white space between them are one word, though the grammar tears it."""
    group: list[Node] = []
    for node in nodes:
        if group and group[-1].end_byte != node.start_byte:
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _torn(shell: Shell, group: list[Node], world: World) -> Iterator[Part]:
    """A word that the grammar tears between ``$`` and the name: ``[0]*$DENSE+[1]*$MOE``."""
    leaves: list[Node] = []
    for node in group:
        leaves.extend(node.children if node.type == "concatenation" else (node,))
    bare: Node | None = None
    for leaf in leaves:
        if leaf.type == "$":
            bare = leaf
            continue
        name = _NAME.match(text_of(leaf, shell.source)) if bare is not None else None
        if bare is None or name is None:
            yield from parts(shell, leaf, world, False)
        else:
            from precision_plan.importers.shell.parameters import named

            yield named(shell, bare, name[0], world)
            yield _literal(shell, leaf.start_byte + name.end(), leaf.end_byte, bare=True)
        bare = None


_NAME = re.compile(r"[A-Za-z_]\w*")


def _split(parts: Iterator[Part]) -> Iterator[Text]:
    current: list[Piece] | None = None
    for part in parts:
        if part.quoted and not part.array:
            current = [*(current or ()), *part.texts[0].pieces]
            continue
        for index, each in enumerate(part.texts):
            if index and current is not None:
                yield Text(tuple(current))
                current = None
            if part.quoted:
                current = [*(current or ()), *each.pieces]
                continue
            runs = list(_runs(each))
            for before, run in enumerate(runs):
                if before and current is not None:
                    yield Text(tuple(current))
                    current = None
                if run:
                    current = [*(current or ()), *run]
    if current is not None:
        yield Text(tuple(current))


def _runs(text: Text) -> Iterator[list[Piece]]:
    """The pieces of an unquoted text between white space; an end with white space has none."""
    run: list[Piece] = []
    for piece in text.pieces:
        if not piece.known:
            run.append(piece._replace(split=True))
            continue
        breaks = [-1, *(i for i, char in enumerate(piece.text) if char in " \t\n"), len(piece.text)]
        for number, (low, high) in enumerate(pairwise(breaks)):
            if number:
                yield run
                run = []
            if high > low + 1:
                run.extend(Text((piece,)).part(low + 1, high).pieces)
    yield run


def parts(shell: Shell, node: Node, world: World, quoted: bool) -> Iterator[Part]:
    """The parts of one word node."""
    kind = node.type
    source = shell.source
    if kind in {"word", "number", "extglob_pattern", "regex", "test_operator", "variable_name"}:
        yield from _children_or(shell, node, world)
    elif kind == "raw_string":
        yield _literal(shell, node.start_byte + 1, node.end_byte - 1)
    elif kind in {"string", "translated_string"}:
        start = node.start_byte + (1 if kind == "string" else 2)
        yield from between(shell, node, start, node.end_byte - 1, world)
    elif kind in {"concatenation", "command_name"}:
        for child in node.children:
            yield from parts(shell, child, world, quoted)
    elif kind == "ansi_c_string":
        raw = text_of(node, source)[2:-1]
        yield Part(
            (Text((Piece(_ansi(raw), source, node.start_byte + 2, exact="\\" not in raw),)),)
        )
    elif kind in {"simple_expansion", "expansion"}:
        from precision_plan.importers.shell.parameters import expansion

        yield expansion(shell, node, world, quoted)
    elif kind == "command_substitution":
        from precision_plan.importers.shell.outputs import output

        found = output(shell, node, world)
        yield Part((found if found is not None else unknown(shell, node, quoted),), quoted)
    elif kind == "arithmetic_expansion":
        from precision_plan.importers.shell.arithmetic import arithmetic

        number = arithmetic(shell, node, world)
        if number is None:
            yield Part((unknown(shell, node, quoted),), quoted)
        else:
            yield Part((Text((Piece(str(number), source, node.start_byte, exact=False),)),))
    elif kind == "brace_expression":
        yield Part(tuple(_braces(shell, node)), True, True)
    elif kind in {"process_substitution", "subscript"}:
        yield Part((unknown(shell, node, True),))
    else:
        yield _literal(shell, node.start_byte, node.end_byte, bare=True)


def unknown(shell: Shell, node: Node, quoted: bool, name: str = "") -> Text:
    """A piece that only a run could tell; it is left over."""
    if not name:
        shell.leave("substitution", node)
    shown = text_of(node, shell.source)
    shown = shown if len(shown) <= 200 and "\n" not in shown else one_line(node, shell.source)
    return Text(
        (
            Piece(
                shown,
                shell.source,
                start_of(node, shell.source),
                False,
                False,
                False,
                not quoted,
                name,
            ),
        )
    )


def between(
    shell: Shell, node: Node, start: int, end: int, world: World, escaped: str = _ESCAPED_IN_QUOTES
) -> Iterator[Part]:
    """The quoted text ``start`` to ``end`` of a node, with the expansions among its children."""
    at = start
    begun = False
    for child in node.children:
        if child.type in EXPANSIONS and child.start_byte >= start:
            begin = start_of(child, shell.source)
            if begin > at:
                yield _literal(shell, at, begin, escaped)
            yield from parts(shell, child, world, True)
            at = child.end_byte
            begun = True
    if at < end or not begun:
        yield _literal(shell, at, end, escaped)


def _children_or(shell: Shell, node: Node, world: World) -> Iterator[Part]:
    """A word; the grammar nests what a bare word holds only where it expands."""
    if any(child.type in {"simple_expansion", "expansion"} for child in node.children):
        yield from between(shell, node, node.start_byte, node.end_byte, world)
    else:
        yield _literal(shell, node.start_byte, node.end_byte, bare=True)


def _literal(shell: Shell, start: int, end: int, escaped: str = "", bare: bool = False) -> Part:
    """Text that stands in the script; every escape begins a piece of its own.

    ``escaped`` are the characters before which a backslash vanishes; before any if ``bare``.
    """
    raw = shell.source.data[start:end].decode("utf-8", "replace")
    if "\\" not in raw or not (escaped or bare):
        return Part((Text((Piece(raw, shell.source, start),) if raw else ()),))
    pieces: list[Piece] = []
    at, begin, offset = 0, 0, start
    while (at := raw.find("\\", at)) >= 0:
        following = raw[at + 1 : at + 2]
        if not following or not (bare or following in escaped):
            at += 2
            continue
        if at > begin:
            pieces.append(Piece(raw[begin:at], shell.source, offset))
        offset += len(raw[begin : at + 1].encode())
        begin = at + 1
        if following == "\n":
            begin, offset = begin + 1, offset + 1
        at += 2
    if begin < len(raw):
        pieces.append(Piece(raw[begin:], shell.source, offset))
    return Part((Text(tuple(pieces)),))


def literal_body(shell: Shell, node: Node) -> Text:
    """The text of a node letter by letter: a here-document whose mark is quoted."""
    return _literal(shell, node.start_byte, node.end_byte).texts[0]


def _ansi(raw: str) -> str:
    found, at = [], 0
    while at < len(raw):
        if raw[at] == "\\" and at + 1 < len(raw):
            found.append(_ANSI.get(raw[at + 1], raw[at : at + 2]))
            at += 2
        else:
            found.append(raw[at])
            at += 1
    return "".join(found)


def _braces(shell: Shell, node: Node) -> Iterator[Text]:
    """``{1..8}``."""
    ends = [int(text_of(each, shell.source)) for each in node.children if each.type == "number"]
    if len(ends) != 2 or abs(ends[1] - ends[0]) > MOST_WORDS:
        yield unknown(shell, node, True)
        return
    step = 1 if ends[1] >= ends[0] else -1
    for number in range(ends[0], ends[1] + step, step):
        yield Text((Piece(str(number), shell.source, node.start_byte, exact=False),))

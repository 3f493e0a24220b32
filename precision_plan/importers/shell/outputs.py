"""What ``$(...)`` prints, where it follows from the script alone.

Some commands only rewrite text (``dirname``, ``seq``, ``echo``) or print what the script just
wrote (``cat <<EOF``); they are rewritten here. Nothing is run: every other output is unknown.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from precision_plan.importers.shell.arithmetic import integer
from precision_plan.importers.shell.assignments import assign
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import WORDS, text_of
from precision_plan.importers.shell.words import MOST_WORDS, between, literal_body, words
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Piece, Text, joined

if TYPE_CHECKING:
    from tree_sitter import Node


def output(shell: Shell, node: Node, world: World) -> Text | None:
    """The output of a command substitution without its last line ends; ``None`` if unknown."""
    inner = [child for child in node.children if child.is_named and child.type != "comment"]
    if not inner:
        return None
    if inner[0].type in {"file_redirect", "herestring_redirect"}:  # $(<file)
        return None
    inside = world.copy()
    found: list[Text] = []
    for child in inner:
        printed = _printed(shell, child, inside)
        if printed is None:
            return None
        found.append(printed)
    return _stripped(joined(found))


def _stripped(text: Text) -> Text:
    size = len(text.shown.rstrip("\n")) if text.known else len(text.shown)
    return text.part(0, size)


def _printed(shell: Shell, node: Node, world: World) -> Text | None:
    kind = node.type
    if kind == "list":
        left, right = node.children[0], node.children[-1]
        if text_of(node.children[1], shell.source) != "&&":
            return None
        first = _printed(shell, left, world)
        second = None if first is None else _printed(shell, right, world)
        return None if first is None or second is None else joined((first, second))
    if kind == "redirected_statement":
        body = node.child_by_field_name("body")
        document = heredoc(shell, node, world)
        if body is None:
            return document
        if document is not None and reader_of(shell, node) != body:
            return None  # what a filter makes of it
        if document is not None and text_of(body, shell.source).strip() == "cat":
            return document
        if document is not None:
            return None
        printed = _printed(shell, body, world)
        return Text() if printed is not None and _goes_to_file(shell, node) else printed
    if kind == "command":
        return _command(shell, node, world)
    if kind == "variable_assignment":
        assign(shell, node, world)
        return Text()
    return None


def _goes_to_file(shell: Shell, node: Node) -> bool:
    """True if the standard output of a statement is redirected."""
    return any(
        child.type == "file_redirect" and text_of(child, shell.source).startswith((">", "1>", "&>"))
        for child in node.children
    )


def heredoc(shell: Shell, node: Node, world: World) -> Text | None:
    """The here-document or here-string of a statement; ``None`` if it has none."""
    for redirect in node.children:
        if redirect.type == "herestring_redirect":
            nodes = [child for child in redirect.children if child.type in WORDS]
            found = words(shell, nodes, world)
            return joined((*found, Text((Piece("\n"),))))
        if redirect.type == "heredoc_redirect":
            return _document(shell, redirect, world)
    return None


def reader_of(shell: Shell, node: Node) -> Node | None:
    """The command that gets the here-document of a statement: ``bash`` in ``cat <<EOF | bash``."""
    body = node.child_by_field_name("body")
    for redirect in node.children:
        if redirect.type != "heredoc_redirect":
            continue
        pipes = [child for child in redirect.children if child.type == "pipeline"]
        if pipes:
            plain = body is not None and text_of(body, shell.source).strip() == "cat"
            commands = [child for child in pipes[0].children if child.is_named]
            return commands[0] if plain and len(commands) == 1 else None
    return body if body is not None and body.type == "command" else None


def _document(shell: Shell, redirect: Node, world: World) -> Text | None:
    start = next((each for each in redirect.children if each.type == "heredoc_start"), None)
    body = next((each for each in redirect.children if each.type == "heredoc_body"), None)
    if start is None or body is None:
        return None
    if any(mark in text_of(start, shell.source) for mark in "\"'\\"):
        return literal_body(shell, body)
    pieces: list[Piece] = []
    for part in between(shell, body, body.start_byte, body.end_byte, world, "$`\\\n"):
        for each in part.texts:
            pieces.extend(each.pieces)
    return Text(tuple(pieces))


def _command(shell: Shell, node: Node, world: World) -> Text | None:
    nodes = [
        child for child in node.children if child.type in WORDS or child.type == "command_name"
    ]
    found = words(shell, nodes, world)
    if not found or found[0].value is None:
        return None
    name, arguments = found[0].value, found[1:]
    document = heredoc(shell, node, world)
    if name == "cat":
        if document is not None and not arguments:
            return document
        file = arguments[0].value if len(arguments) == 1 else None
        return world.files.get(file) if file is not None else None
    rewrite = _REWRITES.get(name)
    if rewrite is None or any(word.splits for word in arguments):
        return None
    return rewrite(shell, arguments, world)


def _echo(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    if arguments and arguments[0].value in {"-n", "-e", "-ne", "-en"}:
        arguments = arguments[1:]
    pieces: list[Piece] = []
    for index, word in enumerate(arguments):
        if index:
            pieces.append(Piece(" "))
        pieces.extend(word.pieces)
    return Text((*pieces, Piece("\n")))


def _printf(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    if len(arguments) == 2 and arguments[0].value in {"%s", "%s\\n", "%s\n"}:
        return arguments[1]
    if len(arguments) == 1 and arguments[0].known and "%" not in arguments[0].shown:
        return arguments[0]
    return None


def _paths(arguments: list[Text]) -> list[Text]:
    return [word for word in arguments if not word.shown.startswith("-")]


def _dirname(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    """All but the last part of a path, whose last part must be known."""
    paths = _paths(arguments)
    if len(paths) != 1:
        return None
    shown = paths[0].shown.rstrip("/")
    cut = shown.rfind("/")
    if not paths[0].known and cut <= _end_of_unknown(paths[0]):
        return None
    if cut < 0:
        return Text((paths[0].pieces[0]._replace(text=".", exact=False),))
    return paths[0].part(0, cut or 1)


def _basename(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    if not 1 <= len(arguments) <= 2 or arguments[0].value is None:
        return None
    shown = arguments[0].shown.rstrip("/")
    suffix = arguments[1].value if len(arguments) == 2 else ""
    end = len(shown) - len(suffix) if suffix and shown.endswith(suffix) else len(shown)
    return arguments[0].part(shown.rfind("/") + 1, end)


def _end_of_unknown(text: Text) -> int:
    """Index of the last character that belongs to an unknown piece; -1 if there is none."""
    at, last = 0, -1
    for piece in text.pieces:
        at += len(piece.text)
        if not piece.known:
            last = at - 1
    return last


def _realpath(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    paths = _paths(arguments)
    return normal(paths[0]) if len(paths) == 1 else None


def normal(path: Text) -> Text:
    """A path without ``.`` and ``..``, if it is known."""
    value = path.value
    if not value:
        return path
    first = path.pieces[0]
    return Text((first._replace(text=posixpath.normpath(value), exact=False),))


def _cd(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    paths = _paths(arguments)
    if len(paths) != 1:
        return None
    world.folder = normal(paths[0])
    return Text()


def _pwd(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    return world.folder


def _seq(shell: Shell, arguments: list[Text], world: World) -> Text | None:
    numbers = [integer(word) for word in arguments]
    if not 1 <= len(numbers) <= 3 or any(number is None for number in numbers):
        return None
    whole = [number for number in numbers if number is not None]
    first, step, last = {1: (1, 1, whole[-1]), 2: (whole[0], 1, whole[-1])}.get(
        len(whole), (whole[0], whole[1 % len(whole)], whole[-1])
    )
    if step == 0 or abs(last - first) // abs(step) > MOST_WORDS:
        return None
    listed = range(first, last + (1 if step > 0 else -1), step)
    start = arguments[0].pieces[0]
    return Text((start._replace(text="\n".join(map(str, listed)), exact=False),))


_Rewrite = Callable[[Shell, list[Text], World], "Text | None"]
_REWRITES: Mapping[str, _Rewrite] = {
    "echo": _echo,
    "printf": _printf,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "cd": _cd,
    "pushd": _cd,
    "pwd": _pwd,
    "seq": _seq,
}

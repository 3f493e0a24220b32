"""``$X``, ``${X:-default}``, ``${ARGS[@]}`` and the other parameter expansions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

from precision_plan.importers.shell.arithmetic import arithmetic, integer
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import text_of
from precision_plan.importers.shell.words import Part, text, unknown, words
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import EMPTY, Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node

Value = Text | tuple[Text, ...] | None

_NAMES = frozenset({"variable_name", "special_variable_name", "subscript"})
_MANY = frozenset({"@", "*"})
_STATE = frozenset("?$!-_")  # set by the shell, never by a script


def expansion(shell: Shell, node: Node, world: World, quoted: bool) -> Part:
    """What a ``simple_expansion`` or ``expansion`` stands for."""
    children = node.children
    at = next((i for i, child in enumerate(children) if child.type in _NAMES), None)
    if at is None:
        return Part((unknown(shell, node, quoted),), quoted)
    before = [text_of(child, shell.source) for child in children[1:at]]
    value, name, many = _parameter(shell, children[at], world)
    if before == ["#"]:
        return _count(shell, node, value, many, quoted)
    if before == ["!"]:
        value, name = _indirect(shell, value, world)
        many = isinstance(value, tuple)
    elif before:
        return Part((unknown(shell, node, quoted),), quoted)
    rest = [child for child in children[at + 1 :] if child.type != "}"]
    if rest:
        return _operated(shell, node, world, (value, name, many, quoted), rest)
    return _plain(shell, node, world, value, name, many, quoted)


def _parameter(shell: Shell, node: Node, world: World) -> tuple[Value, str, bool]:
    """Value, name, and whether all elements are asked for (``[@]``, ``$@``)."""
    if node.type != "subscript":
        name = text_of(node, shell.source)
        if name in _SCRIPT:
            return _script_name(shell, name, node), name, False
        return parameter(shell, name, world), name, name in _MANY
    named = node.child_by_field_name("name")
    index = node.child_by_field_name("index")
    name = "" if named is None else text_of(named, shell.source)
    if name == "BASH_SOURCE":
        value: Value = _script_name(shell, name, node)
    else:
        value = parameter(shell, name, world)
    shown = "" if index is None else text_of(index, shell.source)
    if shown in _MANY:
        if isinstance(value, Text):
            value = (value,)
        return value, name, True
    if index is None or value is None:
        return None, name, False
    number = integer(text(shell, index, world)) if shown.isdecimal() else None
    if number is None:
        number = arithmetic(shell, index, world)
    elements = value if isinstance(value, tuple) else (value,)
    if number is None or not -len(elements) <= number < len(elements):
        return None, name, False
    return elements[number], name, False


_SCRIPT = frozenset({"0", "BASH_SOURCE"})


def _script_name(shell: Shell, name: str, node: Node | None = None) -> Text:
    file = shell.source.file if name == "BASH_SOURCE" else shell.top.file
    start = 0 if node is None else node.start_byte
    return Text((Piece(file, shell.source, start, exact=False, name="BASH_SOURCE"),))


def parameter(shell: Shell, name: str, world: World) -> Value:
    """The value of a variable or of a positional parameter; ``None`` if the script sets none."""
    if name in _SCRIPT:
        return _script_name(shell, name)
    if name == "PWD":
        return world.folder
    if name in _MANY:
        return world.positional
    if name.isdecimal():
        if world.positional is None:
            return None
        place = int(name) - 1
        return world.positional[place] if place < len(world.positional) else EMPTY
    if name == "#":
        if world.positional is None:
            return None
        return Text((Piece(str(len(world.positional))),))
    variable = world.variables.get(name)
    if variable is None:
        return None
    if variable.at is not None:
        shell.used.add(variable.at)
    return variable.value


def named(shell: Shell, node: Node, name: str, world: World) -> Part:
    """A variable by its name, where the tree has no expansion; ``node`` is its ``$``."""
    value = parameter(shell, name, world)
    if isinstance(value, tuple):
        value = value[0] if value else EMPTY
    if value is None:
        shell.leave("unset", node, f"nothing in the script sets {name}", text=name)
        piece = Piece(f"${name}", shell.source, node.start_byte, False, False, name=name)
        return Part((Text((piece._replace(split=True),)),), False)
    return Part((value,), False)


def _plain(
    shell: Shell, node: Node, world: World, value: Value, name: str, many: bool, quoted: bool
) -> Part:
    if value is None:
        if name in _MANY:
            shell.leave("arguments", node, "only the caller of the script knows them")
            return Part((), quoted, True)
        if name not in _STATE and not name.isdecimal():
            shell.leave("unset", node, f"nothing in the script sets {name}", text=name)
            if many and not world.lost:
                _suspect(shell, node, world, name)
        return Part((unknown(shell, node, quoted, name),), quoted)
    if isinstance(value, Text):
        return Part((value,), quoted)
    if many and quoted and name != "@" and _joins(shell, node):
        return Part((_joined(value, _separator(world)),), True)
    if many:
        return Part(value, quoted, True)
    return Part((value[0] if value else EMPTY,), quoted)


def _suspect(shell: Shell, node: Node, world: World, name: str) -> None:
    """Note an array that nothing sets, if one of nearly the same name is there."""
    arrays = [
        key
        for key, each in world.variables.items()
        if isinstance(each.value, tuple) and each.value and each.at is not None
    ]
    for close in get_close_matches(name, arrays, n=1, cutoff=0.8):
        at = world.variables[close].at
        if at is not None:
            shell.suspects[name, shell.origin(node)] = (close, at)


def _joins(shell: Shell, node: Node) -> bool:
    """True for ``$*`` and ``${ARGS[*]}``, which are one word in quotes."""
    shown = text_of(node, shell.source)
    return shown.startswith(("$*", "${*")) or "[*]" in shown


def _separator(world: World) -> str:
    """The first character of ``IFS``."""
    variable = world.variables.get("IFS")
    if variable is None or not isinstance(variable.value, Text):
        return " "
    return variable.value.shown[:1]


def _joined(texts: tuple[Text, ...], separator: str) -> Text:
    """Elements as one text."""
    pieces: list[Piece] = []
    for index, each in enumerate(texts):
        if index and separator:
            pieces.append(Piece(separator))
        pieces.extend(each.pieces)
    return Text(tuple(pieces))


def _count(shell: Shell, node: Node, value: Value, many: bool, quoted: bool) -> Part:
    """``${#X}`` and ``${#ARGS[@]}``."""
    number: int | None = None
    if many and isinstance(value, tuple):
        number = len(value)
    elif isinstance(value, Text) and value.known:
        number = len(value.shown)
    if number is None:
        return Part((unknown(shell, node, quoted),), quoted)
    return Part((Text((Piece(str(number), shell.source, node.start_byte, exact=False),)),))


def _indirect(shell: Shell, value: Value, world: World) -> tuple[Value, str]:
    """``${!X}``: the variable whose name ``X`` holds."""
    if not isinstance(value, Text) or value.value is None:
        return None, "!"
    name, bracket, index = value.value.partition("[")
    found = parameter(shell, name, world)
    if bracket and isinstance(found, Text):
        found = (found,)
    if bracket and isinstance(found, tuple) and index not in {"@]", "*]"}:
        return None, name
    return found, name


def _operated(
    shell: Shell,
    node: Node,
    world: World,
    parameter: tuple[Value, str, bool, bool],
    rest: list[Node],
) -> Part:
    """An expansion with an operator: ``rest`` is the operator and what follows it."""
    value, name, many, quoted = parameter
    sign = text_of(rest[0], shell.source)
    if sign in {":-", "-", ":=", "=", ":+", "+", ":?", "?"}:
        return _defaulted(shell, node, world, parameter, (sign, rest[1:]))
    if value is None or many or not isinstance(value, Text):
        if isinstance(value, tuple) and many:
            return Part((unknown(shell, node, quoted),), quoted)
        return _plain(shell, node, world, value, name, many, quoted)
    changed = _changed(shell, world, value, sign, rest[1:])
    if changed is None:
        return Part((unknown(shell, node, quoted),), quoted)
    return Part((changed,), quoted)


def _defaulted(
    shell: Shell,
    node: Node,
    world: World,
    parameter: tuple[Value, str, bool, bool],
    operation: tuple[str, list[Node]],
) -> Part:
    value, name, many, quoted = parameter
    sign, nodes = operation
    empty = value is None or (sign[0] == ":" and _is_empty(value))
    if sign.endswith("+"):
        if empty:
            return Part((_assumed(EMPTY, name, shell, node),), quoted, many)
        return _default(shell, world, nodes, quoted)
    if not empty:
        return _plain(shell, node, world, value, name, many, quoted)
    if sign.endswith("?"):
        return _plain(shell, node, world, None, name, many, quoted)
    part = _default(shell, world, nodes, quoted)
    if value is None:
        texts = tuple(_assumed(each, name, shell, node) for each in part.texts or (EMPTY,))
        part = Part(texts, part.quoted, part.array)
    if sign.endswith("=") and len(part.texts) == 1:
        world.set(name, part.texts[0], shell.at(node))
    return part


def _is_empty(value: Value) -> bool:
    if isinstance(value, tuple):
        return not value
    return value is not None and value.value == ""


def _default(shell: Shell, world: World, nodes: list[Node], quoted: bool) -> Part:
    """The words after ``:-``; several nodes are one text, unless it is an array in quotes."""
    if len(nodes) == 1 and nodes[0].type in {"string", "expansion"}:
        found = words(shell, nodes, world)
        if len(found) != 1 or nodes[0].type == "string":
            return Part(tuple(found), True, len(found) != 1)
    if not nodes:
        return Part((EMPTY,), quoted)
    pieces: list[Piece] = []
    at = nodes[0].start_byte
    for node in nodes:
        if node.start_byte > at:
            gap = shell.source.data[at : node.start_byte].decode("utf-8", "replace")
            pieces.append(Piece(gap, shell.source, at))
        pieces.extend(text(shell, node, world).pieces)
        at = node.end_byte
    return Part((Text(tuple(pieces)),), quoted)


def _assumed(value: Text, name: str, shell: Shell, node: Node) -> Text:
    pieces = value.pieces or (Piece("", shell.source, node.start_byte, exact=False),)
    return Text(
        tuple(
            piece._replace(assumed=True, name=piece.name or name) if piece.known else piece
            for piece in pieces
        )
    )


def _changed(shell: Shell, world: World, value: Text, sign: str, nodes: list[Node]) -> Text | None:
    """The text after ``#``, ``%``, ``/``, ``^``, ``,`` or a range; ``None`` if it is not known."""
    known = value.value
    if known is None:
        return None
    if sign == ":":
        return _range(shell, world, value, nodes)
    if sign in _CASES:
        return _rewritten(value, _CASES[sign](known))
    if sign in {"#", "##", "%", "%%"}:
        pattern = text(shell, nodes[0], world).value if nodes else ""
        if pattern is None:
            return None
        return _trimmed(value, known, sign, pattern)
    if sign in {"/", "//"}:
        pattern = text(shell, nodes[0], world).value if nodes else ""
        with_ = text(shell, nodes[-1], world).value if len(nodes) > 1 else ""
        if not pattern or with_ is None:
            return None
        count = 0 if sign == "//" else 1
        return _rewritten(value, re.sub(_glob(pattern), lambda _: with_, known, count=count))
    return None


_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda known: known[:1].upper() + known[1:],
    ",": lambda known: known[:1].lower() + known[1:],
}


def _glob(pattern: str) -> str:
    """A shell pattern as a regular expression without its end marks."""
    text = translate(pattern)
    return re.sub(r"\\[zZ]$", "", text)


def _trimmed(value: Text, known: str, sign: str, pattern: str) -> Text:
    expression = re.compile(_glob(pattern) + r"\Z")
    sizes = range(len(known) + 1)
    for size in sizes if len(sign) == 1 else reversed(sizes):
        if sign[0] == "#" and expression.match(known[:size]):
            return value.part(size)
        if sign[0] == "%" and expression.match(known[len(known) - size :]):
            return value.part(0, len(known) - size)
    return value


def _range(shell: Shell, world: World, value: Text, nodes: list[Node]) -> Text | None:
    numbers = [
        arithmetic(shell, node, world) for node in nodes if text_of(node, shell.source) != ":"
    ]
    if not numbers or any(number is None for number in numbers):
        return None
    size = len(value.shown)
    start = numbers[0] or 0
    start = max(size + start, 0) if start < 0 else min(start, size)
    if len(numbers) == 1:
        return value.part(start)
    length = numbers[1] or 0
    return value.part(start, size + length if length < 0 else start + length)


def _rewritten(value: Text, new: str) -> Text:
    """A new text that still points to where the old one was written."""
    first = value.pieces[0] if value.pieces else Piece("")
    return Text((first._replace(text=new, exact=False, assumed=value.assumed),))

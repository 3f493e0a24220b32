"""What an expression of a launcher is: texts with their positions, lists and mappings of them."""

from __future__ import annotations

import ast
import operator
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from precision_plan.importers.python.conditions import decide
from precision_plan.importers.python.literals import parts
from precision_plan.importers.python.reading import Reading
from precision_plan.importers.python.values import Value, World, constant, of_text, unknown
from precision_plan.importers.texts import EMPTY, Piece, Text, joined

Evaluated = list[tuple[World, Value]]

ENVIRONMENT = ("os.environ", "environ")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_PLAIN: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "int": int, "len": len}
_MOST = 1 << 40


def evaluate(reading: Reading, node: ast.expr, world: World) -> Evaluated:
    """The value of an expression, on each way that it opens."""
    match node:
        case ast.Constant(value=str(), kind="in braces"):
            source = reading.program.source
            piece = Piece(str(node.value), source, reading.program.offset(node), exact=False)
            return [(world, of_text(Text((piece,))))]
        case ast.Constant(value=str()) | ast.JoinedStr():
            return _literal(reading, node, world)
        case ast.Constant():
            source = reading.program.source
            return [(world, constant(node.value, source, reading.program.offset(node)))]
        case ast.Name() | ast.Attribute():
            return [(world, _named(reading, node, world))]
        case ast.IfExp():
            return [
                found
                for each, holds in decide(reading, node.test, world)
                for found in evaluate(reading, node.body if holds else node.orelse, each)
            ]
        case ast.BinOp():
            return _both(
                reading, node.left, node.right, world, lambda a, b: _sum(reading, node, a, b)
            )
        case ast.BoolOp():
            return _first(reading, node.values, world, isinstance(node.op, ast.Or))
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            source, offset = reading.program.source, reading.program.offset(node)
            decided = decide(reading, node, world)
            return [(each, constant(holds, source, offset)) for each, holds in decided]
        case ast.List() | ast.Tuple():
            return _list(reading, node.elts, world)
        case ast.Dict():
            return _dict(reading, node, world)
        case ast.Subscript():
            return _both(
                reading, node.value, node.slice, world, lambda a, b: _element(reading, node, a, b)
            )
        case ast.Call():
            from precision_plan.importers.python.calls import call

            return call(reading, node, world)
        case ast.NamedExpr(target=ast.Name(id=name)):
            found = evaluate(reading, node.value, world)
            for each, value in found:
                each.variables[name] = value
            return found
        case _:
            return [(world, opaque(reading, node))]


def opaque(reading: Reading, node: ast.expr, name: str = "") -> Value:
    """What nobody knows before a run, by its source text."""
    program = reading.program
    is_name = isinstance(node, (ast.Name, ast.Attribute))
    shown = reading.name(node) if is_name else ast.unparse(node)
    return unknown(shown, program.source, program.offset(node), name)


def _both(
    reading: Reading,
    left: ast.expr,
    right: ast.expr,
    world: World,
    combine: Callable[[Value, Value], Value],
) -> Evaluated:
    return [
        (after, combine(one, other))
        for each, one in evaluate(reading, left, world)
        for after, other in evaluate(reading, right, each)
    ]


def several(
    reading: Reading, nodes: Iterable[ast.expr], world: World
) -> list[tuple[World, tuple[Value, ...]]]:
    """The values of some expressions, one after the other."""
    found: list[tuple[World, tuple[Value, ...]]] = [(world, ())]
    for node in nodes:
        found = [
            (after, (*values, value))
            for each, values in found
            for after, value in evaluate(reading, node, each)
        ]
    return found


# Texts ----------------------------------------------------------------------------------------
def _literal(reading: Reading, node: ast.expr, world: World) -> Evaluated:
    program = reading.program
    span = program.offset(node), program.end(node)
    read = reading.literals.get(span)
    if read is None:
        read = reading.literals[span] = tuple(_parts(reading, *span))
    found: list[tuple[World, tuple[Piece, ...]]] = [(world, ())]
    for inner in read:
        if isinstance(inner, Piece):
            found = [(each, (*pieces, inner)) for each, pieces in found]
            continue
        found = [
            (after, (*pieces, *value.text.pieces))
            for each, pieces in found
            for after, value in evaluate(reading, inner, each)
        ]
    return [(each, of_text(Text(pieces))) for each, pieces in found]


def _parts(reading: Reading, start: int, end: int) -> Iterable[Piece | ast.expr]:
    """The parts of literals: texts, and expressions that have to be evaluated."""
    program = reading.program
    for part in parts(program.text, program.index(start), program.index(end)):
        place = program.place(part.start)
        if not part.is_expression:
            yield Piece(part.text, program.source, place, exact=part.exact)
            continue
        inner = _inner(part.text, place, reading)
        if inner is not None and part.exact:
            yield inner
            continue
        name = "" if inner is None else part.text
        yield from unknown(part.text, program.source, place, name).text.pieces


def _inner(text: str, place: int, reading: Reading) -> ast.expr | None:
    """The tree of an expression in braces, with positions in the file."""
    try:
        tree = ast.parse(f"({text.strip()})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    starts = reading.program.starts
    line = next((index for index, at in enumerate(starts) if at > place), len(starts)) - 1
    for each in ast.walk(tree):
        if hasattr(each, "lineno"):
            each.lineno, each.end_lineno = line + 1, line + 1  # type: ignore[attr-defined]
            each.col_offset = place - starts[line]  # type: ignore[attr-defined]
            each.end_col_offset = each.col_offset + len(text)  # type: ignore[attr-defined]
    if any(isinstance(each, ast.JoinedStr) for each in ast.walk(tree)):
        return None
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant):
            each.kind = _IN_BRACES
    return tree


_IN_BRACES = "in braces"
"""The kind of a literal whose own position is not known, inside of the braces of another."""


def _named(reading: Reading, node: ast.Name | ast.Attribute, world: World) -> Value:
    program = reading.program
    name = reading.name(node)
    if name in world.assumed:
        value = world.assumed[name]
        piece = Piece(str(value), program.source, program.offset(node), True, False, True)
        return Value(Text((piece,)), value, name=name)
    if name in world.variables:
        return world.variables[name]
    if name in ENVIRONMENT:
        return Value(entries={key: of_text(text) for key, text in world.env.items()})
    if isinstance(node, ast.Attribute):
        held, _, field = name.rpartition(".")
        made = world.variables.get(held, Value()).made
        if made:
            return parameter(reading, name, program.classes[made].get(field), node)
    return opaque(reading, node, name)


def parameter(reading: Reading, name: str, default: ast.expr | None, node: ast.expr) -> Value:
    """A parameter of the program: its default, which whoever starts it may replace."""
    if isinstance(default, ast.Constant):
        if default.value is None:
            return opaque(reading, node, name)
        program = reading.program
        piece = Piece(
            str(default.value),
            program.source,
            program.offset(default),
            True,
            False,
            True,
            name=name,
        )
        text = Text((piece,)) if piece.text else EMPTY
        return Value(text, default.value, default=True, name=name)
    return opaque(reading, node, name)


# Operators ------------------------------------------------------------------------------------
def _sum(reading: Reading, node: ast.BinOp, left: Value, right: Value) -> Value:
    if isinstance(node.op, ast.BitOr) and left.entries is not None and right.entries is not None:
        return Value(entries={**left.entries, **right.entries})
    return added(reading, node, left, right, node.op)


def added(reading: Reading, node: ast.AST, left: Value, right: Value, how: ast.operator) -> Value:
    """``+`` of texts and lists, and arithmetic of what is known."""
    if isinstance(how, ast.Add) and left.items is not None and right.items is not None:
        return Value(items=(*left.items, *right.items))
    numbers = all(isinstance(each.constant, (int, float)) for each in (left, right))
    program = reading.program
    if numbers and type(how) in _ARITHMETIC:
        try:
            result = _ARITHMETIC[type(how)](left.constant, right.constant)
        except (ArithmeticError, ValueError):
            result = None
        if result is not None and abs(result) < _MOST:
            return constant(result, program.source, program.offset(node))
    if isinstance(how, ast.Add) and not numbers:
        if isinstance(left.constant, (int, float)) or isinstance(right.constant, (int, float)):
            return unknown(ast.unparse(node), program.source, program.offset(node))
        return of_text(joined((left.text, right.text)))
    return unknown(ast.unparse(node), program.source, program.offset(node), "expression")


def _first(reading: Reading, nodes: list[ast.expr], world: World, stops: bool) -> Evaluated:
    """``a or b``: the first that is true, else the last; ``a and b``: the first that is not."""
    found: Evaluated = []
    going = [world]
    for node in nodes[:-1]:
        following = []
        for each in going:
            for after, value in evaluate(reading, node, each):
                if stops and _is_unset(value) and value.name not in after.changed:
                    following.append(after)
                    continue
                for decided, holds in decide(reading, node, after):
                    if holds == stops:
                        found += evaluate(reading, node, decided)
                    else:
                        following.append(decided)
        going = following
    return [*found, *(more for each in going for more in evaluate(reading, nodes[-1], each))]


def _is_unset(value: Value) -> bool:
    """True for a parameter without a default: unless it is given, what follows ``or`` counts."""
    return bool(value.name) and not value.known and len(value.text.pieces) == 1


def _element(reading: Reading, node: ast.Subscript, held: Value, key: Value) -> Value:
    name = ast.unparse(node.value)
    if name in ENVIRONMENT and isinstance(key.constant, str):
        return opaque(reading, node, key.constant)
    if held.entries is not None and isinstance(key.constant, str) and key.constant in held.entries:
        return held.entries[key.constant]
    items, index = held.items or (), key.constant
    if isinstance(index, int) and -len(items) <= index < len(items):
        return items[index]
    return opaque(reading, node)


# Lists and mappings ---------------------------------------------------------------------------
def _list(reading: Reading, nodes: list[ast.expr], world: World) -> Evaluated:
    found: list[tuple[World, tuple[Value, ...]]] = [(world, ())]
    for node in nodes:
        inner = node.value if isinstance(node, ast.Starred) else node
        found = [
            (after, (*values, *_spread(value, isinstance(node, ast.Starred))))
            for each, values in found
            for after, value in evaluate(reading, inner, each)
        ]
    return [(each, Value(items=values)) for each, values in found]


def _spread(value: Value, starred: bool) -> tuple[Value, ...]:
    if not starred:
        return (value,)
    return value.items if value.items is not None else (value,)


def _dict(reading: Reading, node: ast.Dict, world: World) -> Evaluated:
    found: list[tuple[World, dict[str, Value]]] = [(world, {})]
    for key, item in zip(node.keys, node.values, strict=True):
        following = []
        for each, entries in found:
            for middle, value in evaluate(reading, item, each):
                if key is None:
                    following.append((middle, {**entries, **(value.entries or {})}))
                    if value.entries is None:
                        reading.leave("arguments", item, "what it adds to the mapping is not known")
                    continue
                for after, name in evaluate(reading, key, middle):
                    if name.text.known:
                        following.append((after, {**entries, name.text.shown: value}))
                    else:
                        reading.leave("arguments", key, "its key is not known")
                        following.append((after, entries))
        found = following
    return [(each, Value(entries=entries)) for each, entries in found]


def json_text(value: Value) -> Text:
    """A value as JSON, every text in it with its position."""
    if value.entries is not None:
        pieces: list[Text] = [_glue("{")]
        for number, (key, each) in enumerate(value.entries.items()):
            pieces.append(_glue((", " if number else "") + '"'))
            pieces += [Text((_json_piece(key, each),)), _glue('": '), json_text(each)]
        return joined((*pieces, _glue("}")))
    if value.items is not None:
        items = [part for each in value.items for part in (_glue(", "), json_text(each))]
        return joined((_glue("["), *items[1:], _glue("]")))
    if value.known and not isinstance(value.constant, str):
        words = {True: "true", False: "false", None: "null"}
        if value.constant is None or isinstance(value.constant, bool):
            return Text((value.text.pieces[0]._replace(text=words[value.constant], exact=False),))
        return value.text
    inner = (_quoted(piece) for piece in value.text.pieces)
    return joined((_glue('"'), Text(tuple(inner)), _glue('"')))


def _glue(text: str) -> Text:
    return Text((Piece(text),))


def _json_piece(key: str, value: Value) -> Piece:
    """A key; it stands next to its value, and is found there."""
    first = next((piece for piece in value.text.pieces if piece.source is not None), None)
    if first is None:
        return Piece(key)
    return Piece(key, first.source, first.offset, exact=False)


def _quoted(piece: Piece) -> Piece:
    if not piece.known or not set(piece.text) & set('"\\\n\t'):
        return piece
    import json

    return piece._replace(text=json.dumps(piece.text)[1:-1], exact=False)


def shell_quoted(text: Text) -> Text:
    """``shlex.quote``: one word, whatever is in it."""
    found = []
    for piece in text.pieces:
        if not piece.known:
            found.append(piece._replace(split=False))
        elif shlex.quote(piece.text) == piece.text:
            found.append(piece)
        else:
            found += [Piece("'"), *_without_quotes(piece), Piece("'")]
    return Text(tuple(found))


def _without_quotes(piece: Piece) -> Iterable[Piece]:
    if "'" not in piece.text:
        return (piece,)
    return (piece._replace(text=piece.text.replace("'", "'\"'\"'"), exact=False),)

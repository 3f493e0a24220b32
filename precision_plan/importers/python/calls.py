"""Calls: the functions of the file, those that start something, and a few that only make texts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from precision_plan.facts.python_launchers import launcher_function
from precision_plan.importers.python.expressions import (
    ENVIRONMENT,
    Evaluated,
    evaluate,
    json_text,
    opaque,
    parameter,
    several,
    shell_quoted,
)
from precision_plan.importers.python.launching import start
from precision_plan.importers.python.reading import MOST_CALLS, Reading
from precision_plan.importers.python.values import OPEN, Value, World, constant, of_text
from precision_plan.importers.texts import EMPTY, Piece, Text, joined

_NUMBERS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "int": int, "len": len}


def call(reading: Reading, node: ast.Call, world: World) -> Evaluated:
    """The result of a call, after everything that it does."""
    name = ast.unparse(node.func)
    row = launcher_function(name)
    if row is not None and row.kind != "logging":
        return start(reading, node, row, world)
    if row is not None:
        return [(world, opaque(reading, node, f"{name}()"))]
    if name in reading.program.functions and name not in reading.stack:
        return call_function(reading, reading.program.functions[name], node, world)
    if name in reading.program.classes:
        return [(world, Value(made=name))]
    if isinstance(node.func, ast.Attribute):
        method = _method(reading, node, node.func, world)
        if method is not None:
            return method
    return _plain(reading, node, name, world)


def call_function(
    reading: Reading,
    function: ast.FunctionDef,
    node: ast.Call | None,
    world: World,
    *,
    settled: bool = False,
) -> Evaluated:
    """Run a function of the file with its arguments; ``node`` is the call, if there is one.

    ``settled`` says that the call is known: what it does not give has its default.
    """
    from precision_plan.importers.python.statements import run

    if len(reading.stack) >= MOST_CALLS:
        reading.leave("limit", function, f"more than {MOST_CALLS} functions inside of one another")
        return [(world, Value())]
    reading.called.add(function.name)
    given = [] if node is None else [*node.args, *(each.value for each in node.keywords)]
    found: Evaluated = []
    for after, values in several(reading, [_unstarred(each) for each in given], world):
        inner = after.copy()
        known = settled or node is not None
        bound = _bound(reading, function, node, values, known)
        inner.variables = {**after.variables, **_attributes(node, bound, after), **bound}
        inner.returned, inner.ended = None, False
        stack, reading.stack = reading.stack, (*reading.stack, function.name)
        prepared = _prepared(reading, bound, inner)
        ended = run(reading, function.body, prepared) if prepared else []
        reading.stack = stack
        for each in ended:
            result = each.returned if each.returned is not None else Value(constant=None)
            back = each.copy()
            back.variables = {
                **after.variables,
                **{name: value for name, value in each.variables.items() if "." in name},
            }
            back.returned, back.ended = None, after.ended
            found.append((back, result))
    return found


def _unstarred(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _bound(
    reading: Reading,
    function: ast.FunctionDef,
    node: ast.Call | None,
    values: tuple[Value, ...],
    known: bool,
) -> dict[str, Value]:
    """The parameters of a function: what is given, its default, or what its annotation says."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    bound: dict[str, Value] = {}
    positional = 0 if node is None else len(node.args)
    keywords = [] if node is None else node.keywords
    for argument, value in zip(arguments, values[:positional], strict=False):
        bound[argument.arg] = value
    for keyword, value in zip(keywords, values[positional:], strict=False):
        if keyword.arg is not None:
            bound[keyword.arg] = value
    defaults: dict[str, ast.expr | None] = {argument.arg: None for argument in arguments}
    last = zip(reversed(arguments), reversed(function.args.defaults), strict=False)
    for argument, default in last:
        defaults[argument.arg] = default
    for argument, each in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        arguments.append(argument)
        defaults[argument.arg] = each
    for argument in arguments:
        if argument.arg in bound and not _is_opaque(bound[argument.arg]):
            continue
        made = "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
        if made in reading.program.classes:
            bound[argument.arg] = Value(made=made)
        elif argument.arg not in bound:
            name = ast.Name(argument.arg, ast.Load())
            ast.copy_location(name, argument)
            given = defaults[argument.arg]
            value = parameter(reading, argument.arg, given, name)
            if known and isinstance(given, ast.Constant):
                ((_, value),) = evaluate(reading, given, World())
            bound[argument.arg] = value
    return bound


def _attributes(
    node: ast.Call | None, bound: Mapping[str, Value], world: World
) -> dict[str, Value]:
    """What is known of the fields of objects, under the names that a function gives them."""
    found: dict[str, Value] = {}
    for argument, name in zip(() if node is None else node.args, bound, strict=False):
        if isinstance(argument, ast.Name) and argument.id != name:
            held = f"{argument.id}."
            found.update(
                (f"{name}.{key[len(held) :]}", value)
                for key, value in world.variables.items()
                if key.startswith(held)
            )
    return found


def _prepared(reading: Reading, bound: Mapping[str, Value], world: World) -> list[World]:
    """Let the classes of new objects do what they do first (``__post_init__``)."""
    from precision_plan.importers.python.statements import run

    worlds = [world]
    for name, value in bound.items():
        function = reading.program.prepared.get(value.made)
        if function is None or any(key.startswith(f"{name}.") for key in world.variables):
            continue
        was, reading.own = reading.own, name
        worlds = run(reading, function.body, worlds)
        reading.own = was
        for each in worlds:
            each.returned, each.ended = None, False
    return worlds


def _is_opaque(value: Value) -> bool:
    return not value.known and not value.made and value.items is None and value.entries is None


# Methods and functions of Python ----------------------------------------------------------------
def _method(
    reading: Reading, node: ast.Call, function: ast.Attribute, world: World
) -> Evaluated | None:
    name, held = function.attr, function.value
    if name in ("append", "extend", "update", "setdefault") and isinstance(held, ast.Name):
        return _changed(reading, node, name, held.id, world)
    if name == "join" and len(node.args) == 1 and ast.unparse(held) != "shlex":
        return [
            (after, _joined(glue, items) if items.items is not None else opaque(reading, node))
            for each, glue in evaluate(reading, held, world)
            for after, items in evaluate(reading, node.args[0], each)
        ]
    if name in ("strip", "rstrip", "lstrip") and not node.args:
        return [
            (each, of_text(_stripped(value.text, name)))
            for each, value in evaluate(reading, held, world)
        ]
    if name == "get" and ast.unparse(held) in ENVIRONMENT and node.args:
        return _variable(reading, node, world)
    return None


def _changed(
    reading: Reading, node: ast.Call, how: str, name: str, world: World
) -> Evaluated | None:
    """A list or mapping that a method changes."""
    if name not in world.variables:
        return None
    found: Evaluated = []
    keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
    for each, values in several(reading, [*node.args, *keywords.values()], world):
        old = each.variables[name]
        new = old
        if how == "append" and old.items is not None and values:
            new = Value(items=(*old.items, values[0]))
        elif how == "extend" and old.items is not None and values:
            more = values[0].items
            new = Value(items=(*old.items, *(more if more is not None else values)))
        elif how == "update" and old.entries is not None:
            given = values[: len(node.args)]
            entries = dict(old.entries)
            for value in given:
                entries.update(value.entries or {})
            entries.update(zip(keywords, values[len(node.args) :], strict=True))
            new = Value(entries=entries)
        after = each.copy()
        after.variables[name] = new
        found.append((after, Value(constant=None)))
    return found


def _joined(glue: Value, items: Value) -> Value:
    texts: list[Text] = []
    for index, item in enumerate(items.items or ()):
        texts += [*([glue.text] if index else []), item.text]
    return of_text(joined(texts))


def _stripped(text: Text, how: str) -> Text:
    shown = text.shown
    start = len(shown) - len(shown.lstrip()) if how != "rstrip" else 0
    end = len(shown.rstrip()) if how != "lstrip" else len(shown)
    return text.part(start, end) if start < end else EMPTY


def _variable(reading: Reading, node: ast.Call, world: World) -> Evaluated:
    """``os.environ.get(NAME, DEFAULT)``."""
    found: Evaluated = []
    for each, values in several(reading, node.args, world):
        name = values[0].constant
        if not isinstance(name, str):
            found.append((each, opaque(reading, node)))
        elif len(values) > 1 and isinstance(values[1].constant, str):
            pieces = (piece._replace(assumed=True, name=name) for piece in values[1].text.pieces)
            text = Text(tuple(pieces))
            found.append((each, Value(text, values[1].constant, default=True, name=name)))
        else:
            found.append((each, opaque(reading, node, name)))
    return found


def _plain(reading: Reading, node: ast.Call, name: str, world: World) -> Evaluated:
    found: Evaluated = []
    keywords = {each.arg: each.value for each in node.keywords}
    if None in keywords or any(isinstance(each, ast.Starred) for each in node.args):
        return [(world, opaque(reading, node))]
    for each, values in several(reading, [*node.args, *keywords.values()], world):
        found.append((each, _result(reading, node, values, tuple(map(str, keywords)), each)))
    if name.endswith((".run", ".main", "run", "main")) and len(node.args) == 1:
        return [more for each, _ in found for more in _started(reading, node, each)]
    return found


def _started(reading: Reading, node: ast.Call, world: World) -> Evaluated:
    """``typer.run(main)``: the function is called with what the command line says."""
    name = ast.unparse(node.args[0])
    function = reading.program.functions.get(name)
    if function is None or name in reading.stack:
        return [(world, opaque(reading, node))]
    return call_function(reading, function, None, world)


def _result(
    reading: Reading,
    node: ast.Call,
    values: tuple[Value, ...],
    names: tuple[str, ...],
    world: World,
) -> Value:
    """What a function of Python's own makes of values that are known."""
    name = ast.unparse(node.func)
    first = values[0] if values else None
    if name == "dict" and len(values) == len(names):
        return Value(entries=dict(zip(names, values, strict=True)))
    if name == "os.environ.copy":
        return Value(entries={key: of_text(text) for key, text in world.env.items()})
    if first is None:
        return opaque(reading, node)
    if name in ("os.getenv", "getenv") and isinstance(first.constant, str):
        return opaque(reading, node, first.constant)
    if name == "json.dumps":
        return of_text(json_text(first))
    if name in ("shlex.quote", "quote"):
        return of_text(shell_quoted(first.text))
    if name == "shlex.join" and first.items is not None:
        return of_text(joined(_spaced([shell_quoted(each.text) for each in first.items])))
    if name in ("str", "Path", "os.fspath", "pathlib.Path"):
        return Value(first.text, first.text.value or OPEN, default=first.default, name=first.name)
    if name in ("list", "tuple", "dict", "copy.deepcopy", "copy.copy"):
        return first
    if name in _NUMBERS and all(each.known for each in values):
        try:
            result = _NUMBERS[name](*(each.constant for each in values))
        except (TypeError, ValueError):
            return opaque(reading, node)
        program = reading.program
        return constant(result, program.source, program.offset(node))
    return opaque(reading, node)


def _spaced(texts: list[Text]) -> list[Text]:
    found: list[Text] = []
    for text in texts:
        found += [Text((Piece(" "),)), text]
    return found[1:]

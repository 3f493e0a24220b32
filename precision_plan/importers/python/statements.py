"""Statements of a launcher, on every way that leads to them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from precision_plan.importers.python.conditions import decide, matched
from precision_plan.importers.python.expressions import added, evaluate, opaque
from precision_plan.importers.python.reading import MOST_STEPS, Reading
from precision_plan.importers.python.values import Value, World

MOST_ROUNDS = 64
"""Rounds of a loop that are followed."""


def run(reading: Reading, body: Iterable[ast.stmt], worlds: list[World]) -> list[World]:
    """Follow a block; ways that returned wait at its end."""
    going, ended = worlds, list[World]()
    for node in body:
        if not going:
            break
        reading.steps += len(going)
        if reading.steps > MOST_STEPS:
            reading.leave("limit", node, f"more than {MOST_STEPS:,} statements")
            return [*going, *ended]
        following: list[World] = []
        for world in going:
            following += _statement(reading, node, world)
        following = reading.limited(following, node)
        going = [world for world in following if not world.ended]
        ended += [world for world in following if world.ended]
    return [*going, *ended]


def _statement(reading: Reading, node: ast.stmt, world: World) -> list[World]:
    reading.visited.add((reading.program.offset(node), reading.program.end(node)))
    match node:
        case ast.If():
            return [
                after
                for each, holds in decide(reading, node.test, world)
                for after in _branch(
                    reading, node.body if holds else node.orelse, each, world, node.test
                )
            ]
        case ast.Match():
            return [
                after
                for each, case in matched(reading, node, world)
                for after in _branch(
                    reading, [] if case is None else case.body, each, world, node.subject
                )
            ]
        case ast.Assert():
            return _asserted(reading, node, world)
        case ast.Assign():
            return [
                _assigned(reading, node.targets, value, each)
                for each, value in evaluate(reading, node.value, world)
            ]
        case ast.AnnAssign():
            if node.value is None:
                return [world]
            return [
                _assigned(reading, [node.target], value, each)
                for each, value in evaluate(reading, node.value, world)
            ]
        case ast.AugAssign():
            return _augmented(reading, node, world)
        case ast.Expr():
            return [each for each, _ in evaluate(reading, node.value, world)]
        case ast.Return():
            return _returned(reading, node, world)
        case ast.For():
            return _loop(reading, node, world)
        case ast.While():
            return run(reading, node.body, [world.copy()])
        case ast.With():
            for item in node.items:
                evaluate(reading, item.context_expr, world)
            return run(reading, node.body, [world])
        case ast.Try():
            return run(reading, [*node.body, *node.orelse, *node.finalbody], [world])
        case ast.Raise():
            return []
        case _:
            return [world]


def _asserted(reading: Reading, node: ast.Assert, world: World) -> list[World]:
    """The ways on which the program goes on; what nobody knows is no decision."""
    held = [each for each, holds in decide(reading, node.test, world) if holds]
    for each in held:
        if each.apart == world.apart:
            each.branches = world.branches
    return held or [world]


def _branch(
    reading: Reading, body: Iterable[ast.stmt], world: World, before: World, test: ast.expr
) -> list[World]:
    """Follow a block that a decision led to."""
    was, shown = before.inside, ast.unparse(test)
    changed = any(name in shown for name in world.changed)
    world.inside = was or changed or world.apart > before.apart
    found = run(reading, body, [world])
    for each in found:
        each.inside = was
    return found


def _assigned(reading: Reading, targets: Iterable[ast.expr], value: Value, world: World) -> World:
    after = world.copy()
    for target in targets:
        _put(reading, target, value, after)
    return after


def _put(reading: Reading, target: ast.expr, value: Value, world: World) -> None:
    match target:
        case ast.Name() | ast.Attribute():
            name = reading.name(target)
            world.variables[name] = value
            world.assumed.pop(name, None)
        case ast.Tuple() | ast.List():
            items = value.items or ()
            for index, each in enumerate(target.elts):
                known = len(items) == len(target.elts)
                _put(reading, each, items[index] if known else opaque(reading, each), world)
        case ast.Subscript():
            _put_element(reading, target, value, world)


def _put_element(reading: Reading, target: ast.Subscript, value: Value, world: World) -> None:
    held = ast.unparse(target.value)
    key = target.slice.value if isinstance(target.slice, ast.Constant) else None
    if not isinstance(key, str):
        reading.leave("arguments", target, "its key is not known")
    elif held in ("os.environ", "environ"):
        world.env[key] = value.text
    elif held in world.variables and world.variables[held].entries is not None:
        entries = world.variables[held].entries or {}
        world.variables[held] = Value(entries={**entries, key: value})


def _augmented(reading: Reading, node: ast.AugAssign, world: World) -> list[World]:
    name = reading.name(node.target)
    old = world.variables.get(name)
    found = []
    for each, value in evaluate(reading, node.value, world):
        if old is None:
            result = opaque(reading, node.value)
        elif isinstance(node.op, ast.BitOr) and old.entries is not None:
            if value.entries is None:
                reading.leave("arguments", node.value, "what it adds to the mapping is not known")
            result = Value(entries={**old.entries, **(value.entries or {})})
        else:
            result = added(reading, node, old, value, node.op)
        found.append(_assigned(reading, [node.target], result, each))
    return found


def _returned(reading: Reading, node: ast.Return, world: World) -> list[World]:
    if node.value is None:
        after = world.copy()
        after.ended = True
        return [after]
    found = []
    for each, value in evaluate(reading, node.value, world):
        after = each.copy()
        after.returned, after.ended = value, True
        found.append(after)
    return found


def _loop(reading: Reading, node: ast.For, world: World) -> list[World]:
    """Every round over a list that is known; of any other, one round."""
    found: list[World] = []
    for each, value in evaluate(reading, node.iter, world):
        items = value.items
        if items is None:
            items = (opaque(reading, node.target, ast.unparse(node.target)),)
        elif len(items) > MOST_ROUNDS:
            reading.leave("limit", node, f"more than {MOST_ROUNDS} rounds")
            items = items[:MOST_ROUNDS]
        going = [each]
        for item in items:
            going = run(
                reading, node.body, [_assigned(reading, [node.target], item, one) for one in going]
            )
        found += going
    return found

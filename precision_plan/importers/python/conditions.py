"""Which way an ``if``, a ``match`` or a conditional value goes: every one that can be taken."""

from __future__ import annotations

import ast
import operator as operators
import re
from collections.abc import Callable, Mapping
from typing import Any

from precision_plan.importers.jobs import Branch
from precision_plan.importers.python.reading import Reading
from precision_plan.importers.python.values import Value, World

Decided = list[tuple[World, bool]]


def decide(reading: Reading, node: ast.expr, world: World) -> Decided:
    """The ways on, each with what the condition is on it.

    A condition that rests on a parameter goes both ways, and on each the parameter stays what it
    was there; the same condition is decided once on a way.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [(each, not holds) for each, holds in decide(reading, node.operand, world)]
    if isinstance(node, ast.BoolOp):
        return _chain(reading, node, world)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if ast.unparse(node.left) == "__name__":
            return [(world, True)]  # the file is what is started
        return _comparison(reading, node, world)
    if isinstance(node, ast.Compare):  # a < b < c
        return _either(reading, node, world, None)
    if isinstance(node, ast.Call) and (chain := _any(node)) is not None:
        return _chain(reading, chain, world)
    found: Decided = []
    from precision_plan.importers.python.expressions import evaluate

    for each, value in evaluate(reading, node, world):
        truth = _truth(value)
        if truth is not None and not value.default:
            found.append((each, truth))
        elif value.name and isinstance(value.constant, bool):
            found += _parameter(reading, node, each, value, [True, False], lambda it: bool(it))
        elif value.name and value.known:
            found += _parameter(reading, node, each, value, [], bool)
        else:
            found += _either(reading, node, each, truth)
    return found


def _truth(value: Value) -> bool | None:
    if value.known:
        return bool(value.constant)
    if value.items is not None or value.entries is not None:
        return bool(value.items or value.entries)
    return True if any(piece.known and piece.text for piece in value.text.pieces) else None


def _any(node: ast.Call) -> ast.BoolOp | None:
    """``any((a, b))`` as ``a or b``."""
    name = ast.unparse(node.func)
    if name not in ("any", "all") or len(node.args) != 1:
        return None
    held = node.args[0]
    if not isinstance(held, (ast.Tuple, ast.List)) or not held.elts:
        return None
    return ast.copy_location(ast.BoolOp(ast.Or() if name == "any" else ast.And(), held.elts), node)


def _chain(reading: Reading, node: ast.BoolOp, world: World) -> Decided:
    stops = isinstance(node.op, ast.Or)
    going, found = [world], list[tuple[World, bool]]()
    for part in node.values:
        following = []
        for each in going:
            for after, holds in decide(reading, part, each):
                if holds == stops:
                    found.append((after, holds))
                else:
                    following.append(after)
        going = following
    return [*found, *((each, not stops) for each in going)]


def _comparison(reading: Reading, node: ast.Compare, world: World) -> Decided:
    from precision_plan.importers.python.expressions import evaluate

    found: Decided = []
    operator = node.ops[0]
    for middle, left in evaluate(reading, node.left, world):
        for each, right in evaluate(reading, node.comparators[0], middle):
            choices = _choices(operator, right)
            if choices is None or (not left.known and not left.name):
                found += _either(reading, node, each, None)
            elif left.known and not left.default and not right.default:
                found.append((each, _holds(operator, left.constant, choices)))
            else:
                holds = _test(operator, choices)
                others = [] if isinstance(operator, tuple(_ORDER)) else list(choices)
                found += _parameter(reading, node, each, left, others, holds)
    return found


def _choices(operator: ast.cmpop, right: Value) -> tuple[Any, ...] | None:
    """The constants that a value is compared with."""
    if isinstance(operator, (ast.In, ast.NotIn)):
        items = right.items or ()
        known = right.items is not None and all(item.known for item in items)
        return tuple(item.constant for item in items) if known else None
    return (right.constant,) if right.known else None


def _holds(operator: ast.cmpop, left: Any, choices: tuple[Any, ...]) -> bool:
    return bool(_test(operator, choices)(left))


def _test(operator: ast.cmpop, choices: tuple[Any, ...]) -> Any:
    first = choices[0] if choices else None
    if isinstance(operator, (ast.NotEq, ast.NotIn, ast.IsNot)):
        return lambda value: value not in choices
    if isinstance(operator, (ast.Eq, ast.In, ast.Is)):
        return lambda value: value in choices
    order: Callable[[Any, Any], bool] = _ORDER[type(operator)]

    def compared(value: Any) -> bool:
        try:
            return bool(order(value, first))
        except TypeError:
            return False

    return compared


_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operators.lt,
    ast.LtE: operators.le,
    ast.Gt: operators.gt,
    ast.GtE: operators.ge,
}


def _parameter(
    reading: Reading, node: ast.expr, world: World, value: Value, others: list[Any], holds: Any
) -> Decided:
    """Both ways of a condition about a parameter: with its default, and with another value."""
    from precision_plan.importers.python.expressions import opaque

    name = value.name
    if name in world.assumed:
        return [(world, bool(holds(world.assumed[name])))]
    if not value.known:
        return _unknown_parameter(reading, node, world, name, others, holds)
    key = shown(reading, node)
    if key in world.decided:
        return [(world, world.decided[key])]
    usual = bool(holds(value.constant))
    kept = world.taking(None)
    kept.decided[key] = usual
    kept.limits[name] = (*world.limits.get(name, ()), (holds, usual))
    found = [(kept, usual)]
    fitting = [other for other in others if bool(holds(other)) != usual]
    possible = _possible(world, name, fitting)
    if (world.apart and not world.inside) or (fitting and not possible):
        return found
    left = world.taking(_branch(reading, node, not usual), apart=True)
    left.changed |= {name}
    left.decided[key] = not usual
    left.limits[name] = (*world.limits.get(name, ()), (holds, not usual))
    if possible:
        left.assumed[name] = possible[0]
    else:
        left.variables[name] = opaque(reading, _name_node(name, node), name)
    return [*found, (left, not usual)]


def _unknown_parameter(
    reading: Reading, node: ast.expr, world: World, name: str, others: list[Any], holds: Any
) -> Decided:
    """Both ways of a condition about a parameter without a default, as far as they can be."""
    found: Decided = []
    for each, taken in _either(reading, node, world, None):
        fitting = [other for other in others if bool(holds(other)) == taken]
        possible = _possible(world, name, fitting)
        if taken and fitting and not possible:
            continue  # it is none of those: earlier tests said so
        each.limits[name] = (*world.limits.get(name, ()), (holds, taken))
        if len(possible) == 1 or (possible and taken):
            each.assumed[name] = possible[0]
        found.append((each, taken))
    return found


def _possible(world: World, name: str, values: list[Any]) -> list[Any]:
    """Values that a parameter may have after the tests that it met."""
    limits = world.limits.get(name, ())
    return [value for value in values if all(bool(test(value)) == was for test, was in limits)]


def _either(reading: Reading, node: ast.expr, world: World, usual: bool | None) -> Decided:
    """Both ways of a condition that nobody knows; once decided, it stays so."""
    key = shown(reading, node)
    if key in world.decided:
        return [(world, world.decided[key])]
    found = []
    for holds in (True, False):
        differs = usual is not None and holds != usual
        if differs and world.apart and not world.inside:
            continue
        branch = _branch(reading, node, holds) if usual is None or differs else None
        each = world.taking(branch, apart=differs)
        each.decided[key] = holds
        found.append((each, holds))
    return found


def _branch(reading: Reading, node: ast.expr, holds: bool) -> Branch:
    return Branch(shown(reading, node), holds, reading.origin(node))


def shown(reading: Reading, node: ast.expr) -> str:
    """A condition as a text; ``self`` has the name of its object."""
    text = " ".join(ast.unparse(node).split())
    return re.sub(r"\bself\b", reading.own, text) if reading.own else text


def _name_node(name: str, node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Load()), node)


Matched = list[tuple[World, "ast.match_case | None"]]


def matched(reading: Reading, node: ast.Match, world: World) -> Matched:
    """The ways through a ``match``: each with the case that is taken, or none."""
    found: Matched = []
    going = [world]
    for case in node.cases:
        following = []
        test = _pattern(node.subject, case.pattern)
        if test is not None and case.guard is not None:
            test = ast.copy_location(ast.BoolOp(ast.And(), [test, case.guard]), case.pattern)
        for each in going:
            if test is None:
                found.append((each, case))
                continue
            for after, holds in decide(reading, ast.fix_missing_locations(test), each):
                if holds:
                    found.append((after, case))
                else:
                    following.append(after)
        going = following
    return [*found, *((each, None) for each in going)]


def _pattern(subject: ast.expr, pattern: ast.pattern) -> ast.expr | None:
    """A pattern as a condition; ``None`` for one that takes everything."""
    test: ast.expr | None
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return None
    if isinstance(pattern, (ast.MatchValue, ast.MatchSingleton)):
        value = pattern.value
        right = value if isinstance(value, ast.expr) else ast.Constant(value)
        test = ast.Compare(subject, [ast.Eq()], [right])
    elif isinstance(pattern, ast.MatchOr):
        values = [each.value for each in pattern.patterns if isinstance(each, ast.MatchValue)]
        if len(values) == len(pattern.patterns):
            test = ast.Compare(subject, [ast.In()], [ast.Tuple(list(values), ast.Load())])
        else:
            tests = [_pattern(subject, each) for each in pattern.patterns]
            if None in tests:
                return None
            test = ast.BoolOp(ast.Or(), [each for each in tests if each is not None])
    elif isinstance(pattern, ast.MatchSequence) and isinstance(subject, ast.Tuple):
        pairs = zip(subject.elts, pattern.patterns, strict=False)
        tests = [_pattern(each, part) for each, part in pairs]
        needed = [each for each in tests if each is not None]
        if not needed:
            return None
        test = needed[0] if len(needed) == 1 else ast.BoolOp(ast.And(), needed)
    else:
        test = ast.Compare(subject, [ast.Eq()], [ast.Name("_", ast.Load())])
    for each in ast.walk(test):
        if isinstance(each, (ast.expr, ast.operator)) and not hasattr(each, "lineno"):
            ast.copy_location(each, pattern)
    return test

"""Arithmetic of the shell, as far as its numbers are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import text_of
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node

_BITS = 64


def _divided(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)  # C rounds toward zero
    return quotient if (left < 0) == (right < 0) else -quotient


def _power(left: int, right: int) -> int:
    if right < 0 or right > _BITS:
        raise ValueError(right)
    return int(left**right)


def _shifted(left: int, right: int) -> int:
    if not 0 <= right < _BITS:
        raise ValueError(right)
    return left << right


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda left, right: left - right * _divided(left, right),
    "**": _power,
    "<<": _shifted,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "&&": lambda left, right: int(bool(left and right)),
    "||": lambda left, right: int(bool(left or right)),
}
_UNARY: Mapping[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "!": lambda value: int(not value),
    "~": operator.invert,
}


def arithmetic(shell: Shell, node: Node, world: World) -> int | None:
    """The value of ``$((...))`` or of an expression in it; ``None`` if it is not known."""
    try:
        found = _value(shell, node, world)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return found if found is None or abs(found) < 1 << _BITS else None


def changed(shell: Shell, node: Node, world: World) -> None:
    """Carry out ``((N++))``, ``((N = M * 2))``, ``((N += 1))``."""
    inner = [child for child in node.children if child.is_named]
    if inner:
        change(shell, inner[0], world)


def change(shell: Shell, node: Node, world: World) -> None:
    """Carry out one expression that changes a variable."""
    if node.type not in _CHANGES:
        return
    named = next((child for child in node.children if child.type in _NAMES), None)
    signs = [text_of(child, shell.source) for child in node.children if child is not named]
    if named is None:
        return
    name = text_of(named, shell.source)
    before = _variable(shell, name, world)
    sign = next((each for each in signs if each in _STEPS or each in _ASSIGNS), "")
    if sign in _STEPS:
        after = None if before is None else before + _STEPS[sign]
    elif sign in _ASSIGNS and node.children[0] == named:
        operand = arithmetic(shell, node.children[-1], world)
        after = _assigned(sign, before, operand)
    else:
        return
    piece = Piece(str(after), shell.source, node.start_byte, exact=False)
    if after is None:
        piece = piece._replace(text=f"${name}", known=False, name=name)
    world.set(name, Text((piece,)), shell.at(node))


_CHANGES = frozenset({"postfix_expression", "unary_expression", "binary_expression"})
_NAMES = frozenset({"variable_name", "word"})
_STEPS: Mapping[str, int] = {"++": 1, "--": -1}
_ASSIGNS = frozenset({"=", "+=", "-=", "*=", "/=", "%="})


def _assigned(sign: str, before: int | None, operand: int | None) -> int | None:
    if operand is None or sign == "=":
        return operand
    if before is None:
        return None
    try:
        return _BINARY[sign[:-1]](before, operand)
    except (ValueError, ZeroDivisionError):
        return None


def integer(text: Text) -> int | None:
    """A known text as a whole number."""
    value = text.value
    if value is None:
        return None
    try:
        return int(value.strip(), 10)
    except ValueError:
        return None


def _value(shell: Shell, node: Node, world: World) -> int | None:
    kind = node.type
    if kind == "number":
        return int(text_of(node, shell.source), 0)
    if kind in {
        "arithmetic_expansion", "parenthesized_expression", "compound_statement", "test_command",
    }:  # fmt: skip
        inner = [child for child in node.children if child.is_named]
        return _value(shell, inner[-1], world) if inner else None
    if kind == "binary_expression":
        return _binary(shell, node, world)
    if kind == "unary_expression":
        sign = _UNARY.get(text_of(node.children[0], shell.source))
        value = _value(shell, node.children[-1], world)
        return None if sign is None or value is None else sign(value)
    if kind == "ternary_expression":
        inner = [child for child in node.children if child.is_named]
        condition = _value(shell, inner[0], world)
        return None if condition is None else _value(shell, inner[1 if condition else 2], world)
    if kind in _NAMES:
        return _variable(shell, text_of(node, shell.source), world)
    from precision_plan.importers.shell.words import text

    if kind in {"simple_expansion", "expansion", "string", "command_substitution"}:
        found = text(shell, node, world)
        return integer(found)
    return None


def _variable(shell: Shell, name: str, world: World) -> int | None:
    variable = world.variables.get(name)
    if variable is None:
        return None
    if variable.at is not None:
        shell.used.add(variable.at)
    return integer(variable.value) if isinstance(variable.value, Text) else None


def _binary(shell: Shell, node: Node, world: World) -> int | None:
    left_node, sign_node, right_node = node.children[0], node.children[1], node.children[-1]
    work = _BINARY.get(text_of(sign_node, shell.source))
    left, right = _value(shell, left_node, world), _value(shell, right_node, world)
    if work is None or left is None or right is None:
        return None
    return work(left, right)

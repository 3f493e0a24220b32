"""Conditions: true, false, or both ways.

A condition over values that the script itself sets is decided. One over a variable of the
environment, a default that the environment may replace, a file or a command's answer goes both
ways; where it compares a variable with a text, the variable has that text from there on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple
from warnings import catch_warnings, simplefilter

from precision_plan.importers.jobs import Branch
from precision_plan.importers.shell.arithmetic import arithmetic, integer
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import one_line, text_of
from precision_plan.importers.shell.words import text
from precision_plan.importers.shell.world import World
from precision_plan.importers.texts import EMPTY, Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node


class Judged(NamedTuple):
    """What is known of a condition, and what follows for variables if it holds, or does not."""

    truth: bool | None
    if_true: Mapping[str, Text | None] = {}
    if_false: Mapping[str, Text | None] = {}


_OPEN = Judged(None)
_NUMERIC: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}


def both_ways(
    shell: Shell, node: Node, world: World, judged: Judged
) -> tuple[list[World], list[World]]:
    """The worlds in which a condition holds, and those in which it does not."""
    if judged.truth is not None:
        return ([world], []) if judged.truth else ([], [world])
    label = one_line(node, shell.source)
    origin = shell.origin(node)
    yes, no = world.under(Branch(label, True, origin)), world.under(Branch(label, False, origin))
    for each, changes in ((yes, judged.if_true), (no, judged.if_false)):
        for name, value in changes.items():
            before = each.variables.get(name)
            if value is None:
                each.variables.pop(name, None)
            else:
                each.set(name, value, None if before is None else before.at)
    return [yes], [no]


def test(shell: Shell, node: Node, world: World) -> Judged:
    """Judge ``[ ... ]``, ``[[ ... ]]`` or ``(( ... ))``."""
    inner = [child for child in node.children if child.is_named]
    if not inner:
        return _OPEN
    if text_of(node.children[0], shell.source) == "((":
        number = arithmetic(shell, inner[0], world)
        return Judged(None if number is None or _assumes(shell, node, world) else number != 0)
    patterns = text_of(node.children[0], shell.source) == "[["
    return _expression(shell, inner[0], world, patterns)


def _assumes(shell: Shell, node: Node, world: World) -> bool:
    """True if a variable below ``node`` holds a default that the environment may replace."""
    if node.type == "variable_name":
        variable = world.variables.get(text_of(node, shell.source))
        return variable is not None and isinstance(variable.value, Text) and variable.value.assumed
    return any(_assumes(shell, child, world) for child in node.children)


def _expression(shell: Shell, node: Node, world: World, patterns: bool) -> Judged:
    kind = node.type
    if kind == "parenthesized_expression":
        inner = [child for child in node.children if child.is_named]
        return _expression(shell, inner[0], world, patterns) if inner else _OPEN
    if kind == "unary_expression":
        return _unary(shell, node, world, patterns)
    if kind == "binary_expression":
        return _binary(shell, node, world, patterns)
    found = text(shell, node, world)
    if not found.known or found.assumed:
        return _OPEN
    return Judged(bool(found.shown))


def _unary(shell: Shell, node: Node, world: World, patterns: bool) -> Judged:
    sign = text_of(node.children[0], shell.source)
    operand = node.children[-1]
    if sign == "!":
        inner = _expression(shell, operand, world, patterns)
        truth = None if inner.truth is None else not inner.truth
        return Judged(truth, inner.if_false, inner.if_true)
    if sign == "-v":
        name = text_of(operand, shell.source)
        return Judged(True) if name in world.variables else _OPEN
    found = text(shell, operand, world)
    if sign not in {"-z", "-n"}:
        return _OPEN
    name = variable_of(shell, operand)
    if found.known and not found.assumed:
        return Judged((sign == "-z") == (found.shown == ""))
    other = _open_text(found) if found.known and not found.shown else None
    empty: Mapping[str, Text | None] = {name: EMPTY} if name else {}
    filled: Mapping[str, Text | None] = {name: other} if name and other else {}
    return Judged(None, empty, filled) if sign == "-z" else Judged(None, filled, empty)


def _binary(shell: Shell, node: Node, world: World, patterns: bool) -> Judged:
    left_node, right_node = node.children[0], node.children[-1]
    operator = node.child_by_field_name("operator") or node.children[1]
    sign = text_of(operator, shell.source)
    if sign in {"&&", "||", "-a", "-o"}:
        left = _expression(shell, left_node, world, patterns)
        right = _expression(shell, right_node, world, patterns)
        return _and(left, right) if sign in {"&&", "-a"} else _or(left, right)
    left_text, right_text = text(shell, left_node, world), text(shell, right_node, world)
    if sign in _NUMERIC:
        return _numeric(shell, sign, left_node, left_text, right_text)
    if sign in {"=", "==", "!="}:
        bare = patterns and right_node.type not in {"string", "raw_string"}
        judged = equal(variable_of(shell, left_node), left_text, right_text, bare)
        if sign == "!=":
            truth = None if judged.truth is None else not judged.truth
            return Judged(truth, judged.if_false, judged.if_true)
        return judged
    if sign == "=~":
        return _matched(left_text, text_of(right_node, shell.source), right_text)
    return _OPEN


def _and(left: Judged, right: Judged) -> Judged:
    if left.truth is False or right.truth is False:
        return Judged(False)
    if left.truth and right.truth:
        return Judged(True)
    return Judged(None, {**left.if_true, **right.if_true})


def _or(left: Judged, right: Judged) -> Judged:
    if left.truth or right.truth:
        return Judged(True)
    if left.truth is False and right.truth is False:
        return Judged(False)
    if left.truth is False:
        return right
    if right.truth is False:
        return left
    return Judged(None, {}, {**left.if_false, **right.if_false})


def _numeric(shell: Shell, sign: str, node: Node, left: Text, right: Text) -> Judged:
    numbers = integer(left), integer(right)
    if numbers[0] is not None and numbers[1] is not None and not (left.assumed or right.assumed):
        return Judged(_NUMERIC[sign](numbers[0], numbers[1]))
    if sign in {"-eq", "-ne"}:
        judged = equal(variable_of(shell, node), left, right, False)
        if sign == "-ne":
            return Judged(None, judged.if_false, judged.if_true)
        return Judged(None, judged.if_true, judged.if_false)
    return _OPEN


def equal(name: str, left: Text, right: Text, patterns: bool) -> Judged:
    """Judge ``left = right``; ``name`` is the variable that ``left`` is, if it is one."""
    wanted = right.value
    if wanted is None or right.assumed:
        return _OPEN
    pattern = patterns and any(char in wanted for char in "*?[")
    if left.known and not left.assumed:
        return Judged(fnmatchcase(left.shown, wanted) if pattern else left.shown == wanted)
    if left.known or not name:
        same = left.known and (fnmatchcase(left.shown, wanted) if pattern else left.shown == wanted)
        if not name:
            return _OPEN
        other: Mapping[str, Text | None] = {name: _open_text(left)}
        if pattern:
            return Judged(None, {} if same else other, other if same else {})
        return Judged(None, {name: right}, other if same else {})
    return Judged(None, {} if pattern else {name: right})


def _open_text(value: Text) -> Text:
    """A value that is not the default, and therefore not known."""
    first = value.pieces[0] if value.pieces else Piece("")
    name = first.name
    return Text((first._replace(text=f"${{{name}}}", known=False, exact=False, assumed=False),))


def _matched(left: Text, pattern: str, right: Text) -> Judged:
    if left.value is None or left.assumed or right.value is None:
        return _OPEN
    with catch_warnings():
        simplefilter("ignore")  # what Python may read otherwise one day
        try:
            return Judged(re.search(pattern, left.value) is not None)
        except (re.error, RecursionError):
            return _OPEN


def variable_of(shell: Shell, node: Node) -> str:
    """The name of the variable that a word is, and nothing else; empty if it is something else."""
    if node.type == "string":
        inner = [child for child in node.children if child.is_named]
        if len(inner) != 1 or inner[0].end_byte - inner[0].start_byte + 2 != (
            node.end_byte - node.start_byte
        ):
            return ""
        return variable_of(shell, inner[0])
    if node.type not in {"simple_expansion", "expansion"}:
        return ""
    named = [child for child in node.children if child.type == "variable_name"]
    return text_of(named[0], shell.source) if len(named) == 1 else ""

"""Decisions: ``if``, ``case``, ``&&`` and ``||``, one way or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_plan.importers.jobs import Branch
from precision_plan.importers.shell.blocks import Outcome, Worlds, run, run_block, run_with_status
from precision_plan.importers.shell.conditions import Judged, both_ways, equal, test, variable_of
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import text_of
from precision_plan.importers.shell.words import text
from precision_plan.importers.shell.world import World, merged
from precision_plan.importers.texts import Text

if TYPE_CHECKING:
    from tree_sitter import Node


def list_of_commands(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """``A && B`` and ``A || B``."""
    named = [child for child in node.children if child.is_named and child.type != "comment"]
    left, right = named[0], named[-1]
    wanted = any(child.type == "&&" for child in node.children)
    outcomes: list[Outcome] = []
    arms: list[Worlds] = [[], []]
    for after, succeeded in _decided(shell, left, world):
        if succeeded == wanted and after.flow is None:
            rest = run_with_status(shell, right, after)
            outcomes.extend(rest)
            arms[0].extend(each for each, _ in rest)
        else:
            outcomes.append((after, succeeded))
            arms[1].append(after)
    if len(outcomes) > 1 and all(arms):
        kept = merged(world, arms)
        outcomes = [each for each in outcomes if any(each[0] is one for one in kept)] + [
            (one, True) for one in kept if not any(each[0] is one for each in outcomes)
        ]
    return outcomes


def _decided(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """The left side of a list: a condition goes both ways, anything else succeeds."""
    if node.type in {"test_command", "negated_command"} or _is_query(shell, node):
        yes, no = split(shell, node, world)
        return [(each, True) for each in yes] + [(each, False) for each in no]
    return run_with_status(shell, node, world)


def _is_query(shell: Shell, node: Node) -> bool:
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        return body is not None and _is_query(shell, body)
    shown = text_of(node, shell.source) if node.type == "command" else ""
    return shown in {"true", "false", ":"} or shown.startswith(("test ", "grep -q"))


def split(shell: Shell, node: Node, world: World) -> tuple[Worlds, Worlds]:
    """The worlds in which a condition holds, and those in which it does not."""
    kind = node.type
    if kind == "test_command" or is_arithmetic(shell, node):
        shell.visited.add(shell.at(node))
        return both_ways(shell, node, world, test(shell, node, world))
    if kind == "negated_command":
        shell.visited.add(shell.at(node))
        yes, no = split(shell, node.children[-1], world)
        return no, yes
    if kind == "list":
        return _split_list(shell, node, world)
    if kind == "command":
        shown = text_of(node, shell.source)
        if shown in {"true", ":", "false"}:
            shell.visited.add(shell.at(node))
            return ([], [world]) if shown == "false" else ([world], [])
    yes, no = [], []
    for after in run(shell, node, world):
        held, failed = both_ways(shell, node, after, Judged(None))
        yes += held
        no += failed
    return yes, no


def is_arithmetic(shell: Shell, node: Node) -> bool:
    return node.type == "compound_statement" and text_of(node, shell.source).startswith("((")


def _split_list(shell: Shell, node: Node, world: World) -> tuple[Worlds, Worlds]:
    named = [child for child in node.children if child.is_named and child.type != "comment"]
    also = any(child.type == "&&" for child in node.children)
    yes, no = split(shell, named[0], world)
    went, rest = (yes, no) if also else (no, yes)
    then_yes: Worlds = []
    then_no: Worlds = []
    for after in went:
        held, failed = split(shell, named[-1], after)
        then_yes += held
        then_no += failed
    return (then_yes, rest + then_no) if also else (rest + then_yes, then_no)


def if_statement(shell: Shell, node: Node, world: World) -> list[Outcome]:
    arms: list[Worlds] = []
    left = _arm(shell, node, [world], arms)
    for clause in node.children:
        if clause.type == "elif_clause":
            left = _arm(shell, clause, left, arms)
        elif clause.type == "else_clause":
            arms.append(run_block(shell, clause.children, left))
            left = []
    arms.append(left)
    return [(after, True) for after in merged(world, arms)]


def _arm(shell: Shell, node: Node, worlds: Worlds, arms: list[Worlds]) -> Worlds:
    """Run ``if`` or ``elif``: adds its arm and returns the worlds that go on to the next."""
    conditions = [
        child
        for index, child in enumerate(node.children)
        if node.field_name_for_child(index) == "condition" and child.is_named
    ]
    if node.type == "elif_clause" and not conditions:
        conditions = _before_then(node)
    then = next((i for i, child in enumerate(node.children) if child.type == "then"), 0)
    body = [
        child
        for child in node.children[then + 1 :]
        if child.type not in {"elif_clause", "else_clause"}
    ]
    taken: Worlds = []
    left: Worlds = []
    for world in worlds:
        if world.flow is not None:
            left.append(world)
            continue
        before = run_block(shell, conditions[:-1], [world])
        for each in before:
            yes, no = split(shell, conditions[-1], each) if conditions else ([each], [])
            taken += yes
            left += no
    arms.append(run_block(shell, body, taken))
    return left


def _before_then(node: Node) -> list[Node]:
    found = []
    for child in node.children:
        if child.type == "then":
            break
        if child.is_named and child.type != "comment":
            found.append(child)
    return found


def case_statement(shell: Shell, node: Node, world: World) -> list[Outcome]:
    subject_node = node.child_by_field_name("value")
    if subject_node is None:
        return [(world, True)]
    subject = text(shell, subject_node, world)
    name = variable_of(shell, subject_node)
    arms: list[Worlds] = []
    left = [world]
    for item in (child for child in node.children if child.type == "case_item"):
        patterns = [
            child
            for index, child in enumerate(item.children)
            if item.field_name_for_child(index) == "value"
        ]
        taken, left = _case_item(shell, patterns, (subject, name), left)
        close = next((i for i, child in enumerate(item.children) if child.type == ")"), 0)
        arms.append(run_block(shell, item.children[close + 1 :], taken))
    arms.append(left)
    return [(after, True) for after in merged(world, arms)]


def _case_item(
    shell: Shell, patterns: list[Node], subject: tuple[Text, str], worlds: Worlds
) -> tuple[Worlds, Worlds]:
    taken: Worlds = []
    left: Worlds = []
    for world in worlds:
        rest = [world]
        for pattern in patterns:
            following: Worlds = []
            for each in rest:
                found = text(shell, pattern, each)
                if found.value == "*":
                    taken.append(each)
                    continue
                judged = equal(subject[1], subject[0], found, True)
                yes, no = both_ways(shell, pattern, each, judged)
                taken += [_in_case(shell, pattern, one, subject) for one in yes]
                following += [_in_case(shell, pattern, one, subject) for one in no]
            rest = following
        left += rest
    return taken, left


def _in_case(shell: Shell, pattern: Node, world: World, subject: tuple[Text, str]) -> World:
    """Names the decision of a case by its subject, too: ``$GPU = b200``."""
    last = world.branches[-1] if world.branches else None
    if last is not None and last.origin == shell.origin(pattern) and " = " not in last.text:
        shown = (subject[1] and f"${subject[1]}") or subject[0].shown
        branch = Branch(f"{shown} = {last.text}", last.taken, last.origin)
        world.branches = (*world.branches[:-1], branch)
    return world


def test_statement(shell: Shell, node: Node, world: World) -> list[Outcome]:
    yes, no = split(shell, node, world)
    if yes and no:
        return [(world, True)]
    return [(world, bool(yes))]

"""Runs a script's statements over the worlds that reach them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from precision_plan.importers.jobs import Branch
from precision_plan.importers.shell.arithmetic import changed
from precision_plan.importers.shell.conditions import both_ways, equal, test
from precision_plan.importers.shell.state import MOST_STEPS, Shell
from precision_plan.importers.shell.tree import WORDS, one_line, text_of
from precision_plan.importers.shell.words import text, words
from precision_plan.importers.shell.world import (
    MOST_WORLDS,
    Function,
    World,
    distinct,
    fewest,
    merged,
)
from precision_plan.importers.texts import Text

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ROUNDS = 64
"""Rounds of one loop that are followed."""

Worlds = list[World]
Outcome = tuple[World, bool]
"""A world after a statement, and whether the statement succeeded."""

_SKIPPED = frozenset({"comment", ";", "&", "\n", ";;", "heredoc_body", "heredoc_end"})


def run_block(shell: Shell, nodes: list[Node], worlds: Worlds) -> Worlds:
    """Run statements one after the other in every world that still goes on."""
    for node in nodes:
        if node.type in _SKIPPED or (not node.is_named and node.type not in _RUN):
            continue
        going: Worlds = []
        for world in worlds:
            going.extend(run(shell, node, world) if world.flow is None else (world,))
        worlds = _limited(shell, node, going) if len(going) > 1 else going
    return worlds


def _limited(shell: Shell, node: Node, worlds: Worlds) -> Worlds:
    worlds = distinct(worlds)
    if len(worlds) > MOST_WORLDS:
        because = (
            f"more than {MOST_WORLDS} combinations of branches; every branch is still followed"
        )
        shell.leave("limit", node, because)
        worlds = fewest(worlds)
    return worlds


def run(shell: Shell, node: Node, world: World) -> Worlds:
    """Run one statement."""
    return [after for after, _ in run_with_status(shell, node, world)]


def run_with_status(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """Run one statement; a program that is not followed counts as successful."""
    shell.steps += 1
    if shell.steps > MOST_STEPS:
        shell.leave("limit", node, "the script takes more steps than are followed")
        return [(world, True)]
    handler = _RUN.get(node.type)
    if handler is None:
        shell.visited.add(shell.at(node))
        shell.leave("syntax" if node.type == "ERROR" else "command", node)
        return [(world, True)]
    return handler(shell, node, world)


def _simple(work: Callable[[Shell, Node, World], None]) -> Callable[..., list[Outcome]]:
    def run_simple(shell: Shell, node: Node, world: World) -> list[Outcome]:
        shell.visited.add(shell.at(node))
        work(shell, node, world)
        return [(world, True)]

    return run_simple


def assign(shell: Shell, node: Node, world: World) -> str:
    """Run one assignment; returns the name."""
    named = node.child_by_field_name("name")
    value = node.child_by_field_name("value")
    if named is None:
        return ""
    if named.type == "subscript":
        return _assign_element(shell, node, named, value, world)
    name = text_of(named, shell.source)
    appended = any(child.type == "+=" for child in node.children)
    new: Text | tuple[Text, ...]
    if value is not None and value.type == "array":
        nodes = [child for child in value.children if child.type in WORDS]
        new = tuple(words(shell, nodes, world))
        for child in value.children:
            if child.type == "ERROR":
                shell.leave("syntax", child)
    else:
        new = text(shell, value, world) if value is not None else Text()
    before = world.variables.get(name)
    if appended and before is not None:
        if before.at is not None:
            shell.used.add(before.at)
        new = _sum(before.value, new)
    world.set(name, new, shell.at(node))
    return name


def _sum(before: Text | tuple[Text, ...], new: Text | tuple[Text, ...]) -> Text | tuple[Text, ...]:
    if isinstance(before, Text):
        if isinstance(new, Text):
            return Text((*before.pieces, *new.pieces))
        return (before, *new)
    if isinstance(new, Text):
        first = Text((*before[0].pieces, *new.pieces)) if before else new
        return (first, *before[1:])
    return (*before, *new)


def _assign_element(shell: Shell, node: Node, named: Node, value: Node | None, world: World) -> str:
    """``ARGS[2]=x``: elements of an array whose length is known."""
    name_node, index = named.child_by_field_name("name"), named.child_by_field_name("index")
    name = "" if name_node is None else text_of(name_node, shell.source)
    place = "" if index is None else text_of(index, shell.source)
    new = text(shell, value, world) if value is not None and value.type != "array" else Text()
    before = world.variables.get(name)
    elements = list(before.value) if before and isinstance(before.value, tuple) else []
    if place.isdecimal() and int(place) <= len(elements):
        elements[int(place) : int(place) + 1] = [new]
        world.set(name, tuple(elements), shell.at(node))
    else:
        shell.leave("command", node, "an element of an array whose length is not followed")
    return name


def _assign_all(shell: Shell, node: Node, world: World) -> None:
    children = [node] if node.type == "variable_assignment" else node.children
    for child in children:
        if child.type == "variable_assignment":
            assign(shell, child, world)


def _redirected(shell: Shell, node: Node, world: World) -> list[Outcome]:
    body = node.child_by_field_name("body")
    if body is None:
        return [(world, True)]
    from precision_plan.importers.shell.outputs import heredoc

    document = heredoc(shell, node, world)
    outcomes = run_with_status(shell, body, world)
    target = next((child for child in node.children if child.type == "file_redirect"), None)
    if document is not None and target is not None:
        destination = target.child_by_field_name("destination")
        file = None if destination is None else text(shell, destination, world).value
        if file is not None and text_of(body, shell.source).strip() == "cat":
            for after, _ in outcomes:
                after.files[file] = document
    return outcomes


def _pipeline(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """Every part runs in a shell of its own: what it sets is lost."""
    for child in node.children:
        if child.is_named:
            run(shell, child, world.copy())
    return [(world, True)]


def _subshell(shell: Shell, node: Node, world: World) -> list[Outcome]:
    run_block(shell, node.children, [world.copy()])
    return [(world, True)]


def _compound(shell: Shell, node: Node, world: World) -> list[Outcome]:
    if _is_arithmetic(shell, node):
        shell.visited.add(shell.at(node))
        changed(shell, node, world)
        return [(world, True)]
    return [(after, True) for after in run_block(shell, node.children, [world])]


def _list(shell: Shell, node: Node, world: World) -> list[Outcome]:
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
    if kind == "test_command" or _is_arithmetic(shell, node):
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
    from precision_plan.importers.shell.conditions import Judged

    yes, no = [], []
    for after in run(shell, node, world):
        held, failed = both_ways(shell, node, after, Judged(None))
        yes += held
        no += failed
    return yes, no


def _is_arithmetic(shell: Shell, node: Node) -> bool:
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


def _if(shell: Shell, node: Node, world: World) -> list[Outcome]:
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


def _case(shell: Shell, node: Node, world: World) -> list[Outcome]:
    subject_node = node.child_by_field_name("value")
    if subject_node is None:
        return [(world, True)]
    subject = text(shell, subject_node, world)
    from precision_plan.importers.shell.conditions import _variable

    name = _variable(shell, subject_node)
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


def _for(shell: Shell, node: Node, world: World) -> list[Outcome]:
    named = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    name = "" if named is None else text_of(named, shell.source)
    nodes = [
        child
        for index, child in enumerate(node.children)
        if node.field_name_for_child(index) == "value"
    ]
    values = words(shell, nodes, world)
    children = [] if body is None else body.children
    at = shell.at(named) if named is not None else None
    if len(values) > MOST_ROUNDS:
        shell.leave("limit", node, f"more than {MOST_ROUNDS} rounds")
    worlds = [world]
    for value in values[:MOST_ROUNDS]:
        for each in worlds:
            if each.flow is None:
                each.set(name, value, at)
        worlds = _again(run_block(shell, children, worlds))
    return [(_past_loop(after), True) for after in worlds]


def _again(worlds: Worlds) -> Worlds:
    for world in worlds:
        if world.flow == "continue":
            world.flow = None
    return worlds


def _past_loop(world: World) -> World:
    if world.flow in {"break", "continue"}:
        world.flow = None
    return world


def _while(shell: Shell, node: Node, world: World) -> list[Outcome]:
    body = node.child_by_field_name("body")
    until = any(child.type == "until" for child in node.children)
    conditions = [
        child
        for index, child in enumerate(node.children)
        if node.field_name_for_child(index) == "condition" and child.is_named
    ]
    children = [] if body is None else body.children
    done: Worlds = []
    worlds = [world]
    for _ in range(MOST_ROUNDS):
        inside: Worlds = []
        open_ended = False
        for each in worlds:
            yes, no = split(shell, conditions[-1], each) if conditions else ([each], [])
            yes, no = (no, yes) if until else (yes, no)
            open_ended = open_ended or bool(yes and no)
            inside += yes
            done += no
        after = _again(run_block(shell, children, inside))
        done += [each for each in after if each.flow is not None]
        worlds = [each for each in after if each.flow is None]
        if open_ended or not worlds:
            break
    return [(_past_loop(after), True) for after in distinct(done + worlds)]


def _once(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """A loop whose rounds are not counted: its body runs once, or not at all."""
    body = node.child_by_field_name("body")
    branch = Branch(one_line(node, shell.source), True, shell.origin(node))
    inside = run_block(shell, [] if body is None else body.children, [world.under(branch)])
    return [(_past_loop(after), True) for after in distinct([world, *inside])]


def _function(shell: Shell, node: Node, world: World) -> list[Outcome]:
    named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if named is not None and body is not None:
        world.functions[text_of(named, shell.source)] = Function(body, shell.source)
    return [(world, True)]


def _test(shell: Shell, node: Node, world: World) -> list[Outcome]:
    yes, no = split(shell, node, world)
    if yes and no:
        return [(world, True)]
    return [(world, bool(yes))]


def _command(shell: Shell, node: Node, world: World) -> list[Outcome]:
    from precision_plan.importers.shell.commands import command

    return command(shell, node, world)


def _declaration(shell: Shell, node: Node, world: World) -> None:
    from precision_plan.importers.shell.commands import declare

    declare(shell, node, world)


def _unset(shell: Shell, node: Node, world: World) -> None:
    for child in node.children:
        name = text_of(child, shell.source)
        world.variables.pop(name, None)
        world.exported -= {name}


_RUN: Mapping[str, Callable[[Shell, Node, World], list[Outcome]]] = {
    "variable_assignment": _simple(_assign_all),
    "variable_assignments": _simple(_assign_all),
    "declaration_command": _simple(_declaration),
    "unset_command": _simple(_unset),
    "command": _command,
    "redirected_statement": _redirected,
    "pipeline": _pipeline,
    "list": _list,
    "subshell": _subshell,
    "compound_statement": _compound,
    "do_group": _compound,
    "if_statement": _if,
    "case_statement": _case,
    "for_statement": _for,
    "c_style_for_statement": _once,
    "while_statement": _while,
    "function_definition": _function,
    "test_command": _test,
    "negated_command": _test,
}

"""Commands: the shell's own, functions, other scripts, and the programs that are started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from precision_plan.importers.shell.assignments import assign
from precision_plan.importers.shell.blocks import Outcome, Worlds, run_block
from precision_plan.importers.shell.files import source_file
from precision_plan.importers.shell.handed import (
    SHELLS,
    Nested,
    environment_of,
    inner_script,
    reads_script,
    with_spaces,
)
from precision_plan.importers.shell.repeated import again
from precision_plan.importers.shell.slips import is_spaced_assignment, lost_backslash
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import WORDS, parsed, text_of
from precision_plan.importers.shell.words import words
from precision_plan.importers.shell.world import Function, World, distinct
from precision_plan.importers.texts import Piece, Source, Text
from precision_plan.plan import Because, Fix
from precision_plan.plan.codes import compose_diagnostic

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CALLS = 24
"""Functions and files within each other."""


def command(shell: Shell, node: Node, world: World) -> list[Outcome]:
    """Run a command in one world."""
    shell.visited.add(shell.at(node))
    prefix = [child for child in node.children if child.type == "variable_assignment"]
    nodes = [
        child for child in node.children if child.type in WORDS or child.type == "command_name"
    ]
    for child in node.children:
        if child.type == "ERROR":
            shell.leave("syntax", child)
    if is_spaced_assignment(shell, node):
        return [(world, False)]
    found = words(shell, nodes, world)
    if not found:
        for child in prefix:
            assign(shell, child, world)
        return [(world, True)]
    name = found[0].value
    if name is None:
        shell.leave("command", node, "its name is not known")
        return [(world, True)]
    if name in world.functions:
        return _function(shell, world, world.functions[name], found[1:])
    builtin = _BUILTINS.get(name)
    if builtin is not None:
        return builtin(shell, node, world, found)
    if name.startswith("-") and len(name) > 1:
        lost_backslash(shell, node, found)
        return [(world, False)]
    env = _with_prefix(shell, world, prefix)
    return _program(shell, node, world, found, env)


def _with_prefix(shell: Shell, world: World, prefix: list[Node]) -> dict[str, Text]:
    env = world.environment()
    inside = world.copy()
    for child in prefix:
        name = assign(shell, child, inside)
        variable = inside.variables.get(name)
        if variable is not None and isinstance(variable.value, Text):
            env[name] = variable.value
            shell.used.add(shell.at(child))
    for name in env:
        variable = world.variables.get(name)
        if variable is not None and variable.at is not None:
            shell.used.add(variable.at)
    return env


def _program(
    shell: Shell, node: Node, world: World, found: list[Text], env: Mapping[str, Text]
) -> list[Outcome]:
    """A program that the script starts; a shell with a script of its own is followed."""
    inner = inner_script(found)
    if inner is not None:
        script, before = inner
        _run_text(shell, _started(world, environment_of(found, before, env)), script)
        return [(world, True)]
    if found[0].shown.rpartition("/")[2] in SHELLS and len(found) > 1:
        file = next((each for each in found[1:] if not each.shown.startswith("-")), None)
        if file is not None:
            arguments = tuple(found[found.index(file) + 1 :])
            _run_file(shell, node, _started(world, env), file, arguments, missing=False)
            return [(world, True)]
    shell.start(found, env, node, world)
    if [word.value for word in found[:2]] == ["ray", "start"]:
        world.ray_env = env
    elif [word.value for word in found[:2]] == ["ray", "stop"]:
        world.ray_env = None
    return [(world, True)]


def run_input(shell: Shell, node: Node, world: World, script: Text) -> None:
    """Follow a script that a command gets as its input, if it is one that runs it."""
    nodes = [
        child for child in node.children if child.type in WORDS or child.type == "command_name"
    ]
    found = words(shell, nodes, world)
    if found and reads_script(found):
        env = environment_of(found, len(found), world.environment())
        _run_text(shell, _started(world, env), script)


def _started(world: World, env: Mapping[str, Text]) -> World:
    """The world of a new shell: it has nothing but the environment."""
    inside = World(branches=world.branches, ray_env=world.ray_env, folder=world.folder)
    for name, value in env.items():
        inside.set(name, value, None)
    inside.exported = frozenset(env)
    return inside


def _run_text(shell: Shell, world: World, script: Text) -> None:
    if shell.calls >= MOST_CALLS:
        return
    _inside(shell, Nested(script), [world])


def _inside(shell: Shell, source: Source, worlds: Worlds) -> Worlds:
    outer, shell.source = shell.source, source
    shell.sources.setdefault(source.file, source)
    shell.calls += 1
    try:
        return run_block(shell, parsed(source).children, worlds)
    finally:
        shell.source = outer
        shell.calls -= 1


def _function(
    shell: Shell, world: World, function: Function, arguments: list[Text]
) -> list[Outcome]:
    if shell.calls >= MOST_CALLS:
        shell.leave("limit", function.body, "functions call each other too deeply")
        return [(world, True)]
    outer_source, shell.source = shell.source, function.source
    shell.calls += 1
    before = dict(world.variables)
    positional, local = world.positional, world.locals
    world.positional, world.locals = tuple(arguments), frozenset()
    try:
        after = run_block(shell, [function.body], [world])
    finally:
        shell.source = outer_source
        shell.calls -= 1
    for each in after:
        for name in each.locals:
            if name in before:
                each.variables[name] = before[name]
            else:
                each.variables.pop(name, None)
        each.positional, each.locals = positional, local
        if each.flow == "return":
            each.flow = None
    return [(each, True) for each in distinct(after)]


def _run_file(
    shell: Shell,
    node: Node,
    world: World,
    name: Text,
    arguments: tuple[Text, ...] | None,
    *,
    missing: bool,
) -> Worlds:
    """Run another script; ``missing``: a file that is not there stops the script."""
    opened = source_file(shell, name)
    if isinstance(opened, Source):
        if opened.file in shell.sourcing or shell.calls >= MOST_CALLS:
            shell.leave("limit", node, "the file sources itself")
            return [world]
        outer = shell.sourcing
        shell.sourcing = (*outer, opened.file)
        positional = world.positional
        if arguments:
            world.positional = arguments
        try:
            after = again(shell, opened, world, partial(_inside, shell, opened, [world]))
        finally:
            shell.sourcing = outer
        for each in after:
            if arguments:
                each.positional = positional
            if each.flow == "return":
                each.flow = None
        return after
    shell.leave("source", node, opened)
    world.lost = True
    if missing and name.known and not name.assumed and _beside_the_script(name):
        _not_there(shell, node, name, world)
    return [world]


def _beside_the_script(name: Text) -> bool:
    """True if a path starts at the script's own folder: any other may lie on another machine."""
    return bool(name.pieces) and name.pieces[0].name == "BASH_SOURCE"


def _not_there(shell: Shell, node: Node, name: Text, world: World) -> None:
    follows = (
        "set -e is on: the script stops here"
        if world.errexit
        else "bash prints an error and goes on without what the file sets"
    )
    shell.find(
        compose_diagnostic(
            "PP940",
            f"{name.shown} does not exist",
            shell.origin(node),
            because=(Because(follows),),
            fix=(Fix("correct the path"),),
            stage="run",
        )
    )


def declare(shell: Shell, node: Node, world: World) -> None:
    """``export``, ``declare``, ``local``, ``readonly``, ``typeset``."""
    word = text_of(node.children[0], shell.source)
    options = "".join(
        text_of(child, shell.source)
        for child in node.children[1:]
        if child.type == "word" and text_of(child, shell.source).startswith("-")
    )
    names = []
    for child in node.children[1:]:
        if child.type == "variable_assignment":
            names.append(assign(shell, child, world))
        elif child.type == "variable_name":
            names.append(text_of(child, shell.source))
        elif child.type in WORDS and not text_of(child, shell.source).startswith("-"):
            for each in words(shell, [child], world):
                names.append(_assigned_word(shell, child, each, world))
    if word == "export" and "n" in options:
        world.exported -= frozenset(names)
    elif word == "export" or "x" in options:
        world.exported |= frozenset(filter(None, names))
    elif (word == "local" or world.positional is not None) and "g" not in options:
        world.locals |= frozenset(names)


def _assigned_word(shell: Shell, node: Node, word: Text, world: World) -> str:
    """``export "X=$Y"``: an assignment that the grammar takes for a word."""
    name, equals, _ = word.shown.partition("=")
    if equals and name.isidentifier():
        world.set(name, word.part(len(name) + 1), shell.at(node))
    return name if name.isidentifier() else ""


_Builtin = Callable[[Shell, "Node", World, list[Text]], list[Outcome]]


def _nothing(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    return [(world, found[0].value != "false")]


def _source(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    if len(found) < 2:
        return [(world, False)]
    arguments = tuple(found[2:]) or None
    after = _run_file(shell, node, world, found[1], arguments, missing=True)
    return [(each, True) for each in after]


def _set(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    rest = found[1:]
    while rest and rest[0].shown[:1] in {"-", "+"} and rest[0].shown not in {"-", "--"}:
        option = rest.pop(0).shown
        if option == "-o" and rest:
            world.errexit = world.errexit or rest.pop(0).shown == "errexit"
        elif option == "+o" and rest:
            world.errexit = world.errexit and rest.pop(0).shown != "errexit"
        elif "e" in option:
            world.errexit = option.startswith("-")
    if rest and rest[0].shown == "--":
        world.positional = tuple(rest[1:])
    return [(world, True)]


def _shift(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    if world.positional is not None:
        count = found[1].value if len(found) > 1 else "1"
        world.positional = world.positional[int(count) if count and count.isdecimal() else 1 :]
    return [(world, True)]


def _stop(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    name = found[0].value
    if name == "exit":
        world.flow = "exit"
    elif name == "return":
        world.flow = "return"
    elif name == "break":
        world.flow = "break"
    else:
        world.flow = "continue"
    return [(world, True)]


def _cd(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    from precision_plan.importers.shell.outputs import normal

    paths = [word for word in found[1:] if not word.shown.startswith("-")]
    world.folder = normal(paths[0]) if len(paths) == 1 else None
    return [(world, True)]


def _read(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    """``read``, ``mapfile``, ``getopts``, ``let``: what they fill is not known any more."""
    for word in found[1:]:
        name = re.match(r"\w*", word.shown)
        if name is not None and name[0].isidentifier():
            piece = Piece(f"${name[0]}", shell.source, node.start_byte, False, False)
            world.set(name[0], Text((piece,)), None)  # no name: it is not unset
    shell.leave("substitution", node, "what it reads is not known")
    return [(world, True)]


def _printf(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    """``printf -v NAME FORMAT TEXT``; any other prints and sets nothing."""
    if len(found) < 4 or found[1].value != "-v" or not found[2].shown.isidentifier():
        return [(world, True)]
    form, values = found[3].value, found[4:]
    if form is None or form.count("%s") != len(values) or form.count("%") != len(values):
        return _read(shell, node, world, [found[0], found[2]])
    pieces: list[Piece] = []
    for index, part in enumerate(form.split("%s")):
        if index:
            pieces.extend(values[index - 1].pieces)
        if part:
            pieces.append(found[3].pieces[0]._replace(text=part, exact=False))
    world.set(found[2].shown, Text(tuple(pieces)), shell.at(node))
    return [(world, True)]


def _eval(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    script = with_spaces(found[1:])
    if found[1:] and script.known and "\n" not in script.shown:
        _run_text(shell, world, script)
        return [(world, True)]
    shell.leave("command", node, "a text that is run as a script is not followed")
    return [(world, True)]


def _exec(shell: Shell, node: Node, world: World, found: list[Text]) -> list[Outcome]:
    if len(found) > 1:
        _program(shell, node, world, found[1:], _with_prefix(shell, world, []))
        world.flow = "exit"
    return [(world, True)]


_BUILTINS: Mapping[str, _Builtin] = {
    **dict.fromkeys(
        ("echo", "true", "false", ":", "wait", "trap", "ulimit", "umask", "shopt", "hash",
         "alias", "unalias", "type", "jobs", "enable", "popd", "test", "[", "times", "bg",
         "fg", "disown", "builtin", "history", "complete"),
        _nothing,
    ),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("exit", "return", "break", "continue"), _stop),
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts"), _read),
    **dict.fromkeys(("cd", "pushd"), _cd),
    "let": _read,
    "printf": _printf,
    "set": _set,
    "shift": _shift,
    "eval": _eval,
    "exec": _exec,
}  # fmt: skip

"""What a launcher starts: words and environment of every command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from precision_plan.facts.python_launchers import LauncherFunction
from precision_plan.importers.python.expressions import Evaluated, json_text, opaque, several
from precision_plan.importers.python.reading import Reading
from precision_plan.importers.python.shell_words import lines, split
from precision_plan.importers.python.values import Value, World
from precision_plan.importers.texts import Piece, Text, joined

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def start(reading: Reading, node: ast.Call, row: LauncherFunction, world: World) -> Evaluated:
    """Note what a call starts, on each way."""
    keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
    nodes = [*node.args, *keywords.values()]
    found: Evaluated = []
    for each, values in several(reading, nodes, world):
        positional = values[: len(node.args)]
        named = dict(zip(keywords, values[len(node.args) :], strict=True))
        if row.kind == "job":
            _job(reading, node, row, positional, named, each)
        else:
            env = _variables(reading, named.get(row.environment)) if row.environment else None
            command = positional[1] if row.kind == "exec" and len(positional) > 1 else None
            _process(reading, node, command or _first(positional, named), each, env)
        found.append((each, opaque(reading, node)))
    return found


def _first(positional: tuple[Value, ...], named: Mapping[str, Value]) -> Value:
    if positional:
        return positional[0]
    return named.get("args") or named.get("cmd") or named.get("command") or Value()


def _variables(reading: Reading, value: Value | None) -> dict[str, Text] | None:
    if value is None or value.entries is None:
        return None
    return {name: each.text for name, each in value.entries.items()}


def _process(
    reading: Reading, node: ast.Call, command: Value, world: World, env: dict[str, Text] | None
) -> None:
    """A list is a program with its words; a text goes to a shell."""
    if command.items is not None:
        if command.items:
            found = tuple(_one_word(item.text) for item in command.items)
            reading.start(found, node, world, env)
        return
    exported = dict(world.env if env is None else env)
    for line in lines(command.text):
        words = list(line.words)
        if words[0].value == "export":
            for word in words[1:]:
                _assign(exported, word)
            continue
        own = dict(exported)
        while words and _ASSIGNMENT.match(words[0].shown):
            _assign(own, words.pop(0))
        if words:
            reading.start(tuple(words), node, world, own)


def _assign(env: dict[str, Text], word: Text) -> None:
    name, equals, _ = word.shown.partition("=")
    if equals:
        env[name] = word.part(len(name) + 1)


def _one_word(text: Text) -> Text:
    """An item of a list is one word, whatever is in it."""
    return Text(tuple(piece._replace(split=False) for piece in text.pieces))


# A training job -----------------------------------------------------------------------------------
def _job(
    reading: Reading,
    node: ast.Call,
    row: LauncherFunction,
    positional: tuple[Value, ...],
    named: Mapping[str, Value],
    world: World,
) -> None:
    """A function that submits a training script with arguments and variables to Ray."""
    at = Piece("", reading.program.source, reading.program.offset(node), exact=False)
    arguments = named.get(row.arguments) or (positional[0] if positional else Value())
    script = named.get(row.script) or Value(_word(at, row.script_default))
    given = named.get(row.environment) or Value(entries={})
    env = Value(entries={**_own(at, row, arguments.text), **(given.entries or {})})
    if given.entries is None and given.constant is not None:
        reading.leave("arguments", node, f"what {row.environment} holds is not known")
    variables = json_text(Value(entries={"env_vars": env}))
    runtime = joined((_word(at, "--runtime-env-json="), variables))
    words = [_word(at, text) for text in ("ray", "job", "submit")]
    words += [_one_word(runtime), _word(at, "--"), _word(at, "python3"), _one_word(script.text)]
    words += _model(reading, node, named.get(row.model))
    reading.start((*words, *split(arguments.text)), node, world, None)


def _own(at: Piece, row: LauncherFunction, arguments: Text) -> dict[str, Value]:
    """The variables that the function adds."""
    shown = " ".join(arguments.shown.split())
    found = {}
    for name, text in row.variables.items():
        if name in row.unless and row.unless[name] in shown:
            continue
        piece = at._replace(text=text or f"${{{name}}}", known=text is not None, name=name)
        found[name] = Value(Text((piece,)))
    return found


def _word(at: Piece, text: str) -> Text:
    return Text((at._replace(text=text),))


def _model(reading: Reading, node: ast.Call, model: Value | None) -> Iterable[Text]:
    """The arguments of a model: those of the file of its name, else anything."""
    if model is None or (model.known and model.constant is None):
        return ()
    from precision_plan.importers.python.models import model_words

    found = model_words(reading, model)
    if found is not None:
        return found
    shown = model.text.shown or "?"
    reading.leave("source", node, "the arguments of the model are not known", text=shown)
    piece = Piece(
        f"$(model_args {shown})", reading.program.source, reading.program.offset(node),
        False, False, split=True,
    )  # fmt: skip
    return (Text((piece,)),)

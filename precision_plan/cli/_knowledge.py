"""What facts/ says of a flag, a plan field or an environment variable, as cards to print."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from precision_plan.cli._concerns import rule_rows
from precision_plan.cli._engine_values import value_rows
from precision_plan.cli._variables import engine_only_card, listed_card, reader_rows, way_rows
from precision_plan.facts.env_names import listed_names
from precision_plan.facts.env_vars import DeadName, EnvVar, dead_names, env_vars
from precision_plan.facts.frameworks import RL_FRAMEWORKS, FrameworkFlag, framework_flags
from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_absent import AbsentFlag, absent_flags
from precision_plan.facts.megatron_parser import other_flags
from precision_plan.facts.megatron_shape import megadlm_command_line, shape_flags
from precision_plan.facts.value_notes import value_notes
from precision_plan.facts.vllm import EngineArg, engine_args
from precision_plan.facts.vllm_env_names import vllm_env_names
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.render._pages import Card, Page


def cards(subject: str, pages: Iterable[Page]) -> tuple[Card, ...]:
    """Everything known of ``subject``: a flag with or without dashes, a dest, field or variable."""
    found = [*_flag_cards(subject), *_variable_cards(subject)]
    if not found:
        return ()
    names = {name for card in found for name in card.names if name}
    names |= {field for field, variable in FIELD_VARIABLES.items() if variable in names}
    rows = rule_rows(names)
    known = {text.partition(" ")[0] for _, text in rows}
    mentioned = _mention_of(names)
    rows += [
        ("see also", f"{page.id} {page.summary}")
        for page in pages
        if page.id not in known and mentioned.search(_prose(page))
    ]
    for label, text in rows:
        found[-1] = found[-1].with_rows(label, [text])
    return tuple(found)


def known_names() -> Iterator[str]:
    """Every flag, field and variable that can be explained."""
    for flag in _flags():
        yield from flag.flags
        yield flag.field
    yield from absent_flags()
    for argument in engine_args().values():
        yield from (argument.flag, argument.field)
    yield from env_vars()
    yield from vllm_env_names()
    yield from listed_names()
    yield from dead_names()


def _mention_of(names: Collection[str]) -> re.Pattern[str]:
    """Matches any of ``names`` as a whole word, a field also without its section."""
    keys = {name.rpartition(".")[2] for name in names}
    words = {*names, *(key for key in keys if "_" in key)}
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(words)))})(?![\w-])")


def _prose(page: Page) -> str:
    return f"{page.summary}\n{page.sections.get('Why', '')}"  # an example names many fields


# Flags ----------------------------------------------------------------------------------------
def _flags() -> Iterator[MegatronFlag | FrameworkFlag]:
    yield from megatron_flags()
    yield from shape_flags()
    yield from megadlm_command_line().values()
    yield from other_flags()
    for framework in RL_FRAMEWORKS:
        yield from framework_flags(framework).values()


def _flag_cards(subject: str) -> Iterator[Card]:
    dest = _dest(subject)
    seen: set[tuple[str, ...]] = set()
    for flag in _flags():
        spelt = set(map(_dest, flag.flags))
        if dest not in spelt and subject != flag.field and dest != getattr(flag, "dest", None):
            continue
        if flag.flags in seen:
            continue
        seen.add(flag.flags)
        yield _megatron_card(flag) if isinstance(flag, MegatronFlag) else _framework_card(flag)
    for argument in engine_args().values():
        names = {argument.field, *map(_dest, (argument.flag, *argument.aliases))}
        if subject in names or dest in names or dest.removeprefix("vllm_") in names:
            yield _engine_card(argument)
    if (absent := absent_flags().get(f"--{subject.lstrip('-')}")) is not None:
        yield _absent_card(absent)


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _megatron_card(flag: MegatronFlag) -> Card:
    rows = [("meaning", flag.meaning)] if flag.meaning else []
    if flag.field:
        rows.append(("plan field", flag.field))
    rows += [("Megatron", str(flag.versions)), *_value_rows(flag)]
    for since, change in flag.changes:
        delta = ", ".join(f"{key} {_shown(value)}" for key, value in change.items())
        rows.append((f"since {since}", delta))
    rows += [("ends in", feed) for feed in flag.feeds]
    if flag.note:
        rows.append(("note", flag.note))
    rows += _refused_rows(flag.field)
    rows.append(("source", flag.source))
    return Card(", ".join(flag.flags), "command-line flag", tuple(rows), (*flag.flags, flag.field))


def _framework_card(flag: FrameworkFlag) -> Card:
    rows = [("meaning", flag.meaning), ("plan field", flag.field)]
    rows += [("read by", ", ".join(flag.frameworks)), *_value_rows(flag)]
    if flag.note:
        rows.append(("note", flag.note))
    rows.append(("source", flag.source))
    return Card(", ".join(flag.flags), "command-line flag", tuple(rows), (*flag.flags, flag.field))


def _engine_card(argument: EngineArg) -> Card:
    newest = argument.at("HEAD")
    rows = [("meaning", argument.effect), ("plan field", argument.field)]
    rows.append(("vLLM", str(argument.versions)))
    if argument.key:
        rows.append(("written as", f"the key {argument.key} of its JSON"))
    if newest.choices:
        rows.append(("takes", ", ".join(newest.choices)))
    rows.append(("default", _shown(argument.default)))
    if argument.note:
        rows.append(("note", argument.note))
    rows += value_rows(argument.field)
    rows += _refused_rows(argument.field)
    rows.append(("source", argument.source))
    return Card(argument.flag, "vLLM engine argument", tuple(rows), (argument.flag, argument.field))


def _absent_card(absent: AbsentFlag) -> Card:
    rows = [("status", "Megatron-LM has no such flag"), ("because", absent.reason)]
    rows += [("use", absent.use or "nothing"), ("source", absent.source)]
    return Card(", ".join(absent.flags), "flag that does not exist", tuple(rows), absent.flags)


def _refused_rows(field: str) -> Iterator[tuple[str, str]]:
    """Values that documents promise for a field and the plan refuses."""
    for (name, value), note in value_notes().items():
        if name == field:
            yield f"not {value}", f"{note.why}; {' or '.join(text for text, _ in note.fix)}"


def _value_rows(flag: MegatronFlag | FrameworkFlag) -> Iterator[tuple[str, str]]:
    if flag.action in ("store_true", "store_false"):
        yield "takes", "no value"
    elif flag.choices:
        yield "takes", ", ".join(flag.choices)
    elif flag.type:
        yield "takes", flag.type + (" ..." if flag.nargs in ("+", "*") else "")
    yield "default", _shown(flag.default)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else json.dumps(value)


# Environment variables ------------------------------------------------------------------------
def _variable_cards(subject: str) -> Iterator[Card]:
    names = {subject, FIELD_VARIABLES.get(subject, subject)}
    for name in sorted(names):
        if (variable := env_vars().get(name)) is not None:
            yield _variable_card(variable)
        elif (card := engine_only_card(name) or listed_card(name)) is not None:
            yield card
        if (dead := dead_names().get(name)) is not None:
            yield _dead_card(dead)


def _variable_card(variable: EnvVar) -> Card:
    field = next((key for key, name in FIELD_VARIABLES.items() if name == variable.name), None)
    rows = [("meaning", variable.meaning)]
    if field:
        rows.append(("plan field", field))
    rows.append(("read by", ", ".join(variable.read_by)))
    rows += [(package, str(span)) for package, span in variable.versions.items()]
    rows += [
        ("in", ", ".join(variable.roles)),
        *((f"in {name}", f"{', '.join(roles)}, too") for name, roles in variable.also.items()),
        ("read at", {"import": "import of the package", "start": "start of the process"}.get(
            variable.read, "each use")),
        ("takes", ", ".join(variable.values) if variable.values else variable.type or "any text"),
        ("default", variable.default or "none"),
    ]  # fmt: skip
    rows += reader_rows(variable.name)
    rows += way_rows(variable.name, variable.roles)
    rows += [("mind", text) for text in variable.exclusive]
    rows.append(("source", variable.source))
    names = (variable.name, *([field] if field else []))
    return Card(variable.name, "environment variable", tuple(rows), names)


def _dead_card(dead: DeadName) -> Card:
    status = {
        "inert": "nothing reads it",
        "removed": f"gone from {dead.package}, {dead.versions}",
        "renamed": f"renamed in {dead.package}, {dead.versions}",
    }[dead.status]
    rows = [("status", status), ("use", dead.use or "nothing")]
    if dead.note:
        rows.append(("note", dead.note))
    rows.append(("source", dead.source))
    return Card(dead.name, "environment variable without effect", tuple(rows), (dead.name,))

"""What facts/ says of a flag, a plan field or an environment variable, as cards to print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from precision_plan.facts.env_vars import DeadName, EnvVar, dead_names, env_vars
from precision_plan.facts.frameworks import FrameworkFlag, framework_flags
from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_shape import megadlm_command_line, shape_flags
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.render._pages import Card, Page

_FRAMEWORKS = ("vime", "slime", "miles")


def cards(subject: str, pages: Iterable[Page]) -> tuple[Card, ...]:
    """Everything known of ``subject``: a flag with or without dashes, a dest, field or variable."""
    found = [*_flag_cards(subject), *_variable_cards(subject)]
    if not found:
        return ()
    names = {subject, *(name for card in found for name in card.names)}
    rules = [f"{page.id} {page.slug}" for page in pages if _mentions(page, names)]
    if rules:
        found[-1] = found[-1].with_row("rules", ", ".join(rules))
    return tuple(found)


def known_names() -> Iterator[str]:
    """Every flag, field and variable that can be explained."""
    for flag in _flags():
        yield from flag.flags
        yield flag.field
    yield from env_vars()
    yield from dead_names()


def _mentions(page: Page, names: Iterable[str]) -> bool:
    text = " ".join((page.summary, *page.sections.values()))
    return any(name in text for name in names)


# Flags ----------------------------------------------------------------------------------------
def _flags() -> Iterator[MegatronFlag | FrameworkFlag]:
    yield from megatron_flags()
    yield from shape_flags()
    yield from megadlm_command_line().values()
    for framework in _FRAMEWORKS:
        yield from framework_flags(framework).values()


def _flag_cards(subject: str) -> Iterator[Card]:
    dest = subject.lstrip("-").replace("-", "_")
    seen: set[tuple[str, ...]] = set()
    for flag in _flags():
        spelt = {name.lstrip("-").replace("-", "_") for name in flag.flags}
        if dest not in spelt and subject != flag.field and dest != getattr(flag, "dest", None):
            continue
        if flag.flags in seen:
            continue
        seen.add(flag.flags)
        yield _megatron_card(flag) if isinstance(flag, MegatronFlag) else _framework_card(flag)


def _megatron_card(flag: MegatronFlag) -> Card:
    rows = [("plan field", flag.field), ("Megatron", str(flag.versions)), *_value_rows(flag)]
    for since, change in flag.changes:
        delta = ", ".join(f"{key} {_shown(value)}" for key, value in change.items())
        rows.append((f"since {since}", delta))
    rows += [("ends in", feed) for feed in flag.feeds]
    if flag.note:
        rows.append(("note", flag.note))
    rows.append(("source", flag.source))
    return Card(", ".join(flag.flags), "command-line flag", tuple(rows), (*flag.flags, flag.field))


def _framework_card(flag: FrameworkFlag) -> Card:
    rows = [("plan field", flag.field), ("read by", ", ".join(flag.frameworks)), *_value_rows(flag)]
    if flag.note:
        rows.append(("note", flag.note))
    rows.append(("source", flag.source))
    return Card(", ".join(flag.flags), "command-line flag", tuple(rows), (*flag.flags, flag.field))


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
        ("read at", {"import": "import of the package", "start": "start of the process"}.get(
            variable.read, "each use")),
        ("takes", ", ".join(variable.values) if variable.values else variable.type or "any text"),
        ("default", variable.default or "none"),
    ]  # fmt: skip
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

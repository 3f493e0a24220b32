"""What facts/ says of how a variable is read, and of the way by which it reaches its readers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from precision_plan.facts.env_names import env_name, package_roles
from precision_plan.facts.env_readers import PLAIN, EnvReader, env_readers, read_as
from precision_plan.facts.framework_behaviour import env_precedence
from precision_plan.facts.frameworks import RL_FRAMEWORKS, framework_env
from precision_plan.facts.vllm_env_names import vllm_env_names, vllm_span
from precision_plan.render._pages import Card

_SPELLINGS = ("1", "0", "true", "false", "yes", "2", "")
_MOMENTS = {"import": "import of the package", "start": "start of the process"}


def reader_rows(name: str) -> Iterator[tuple[str, str]]:
    """Each place that reads a variable: where, when, how, and what it makes of spellings."""
    for reader in env_readers(name):
        moment = _MOMENTS.get(reader.read, "each use")
        span = "" if reader.versions.is_open else f" {reader.versions}"
        yield "reader", f"{reader.package}{span}: {reader.reads} at {moment} ({reader.source})"
        if reader.default is not None:
            yield "unset is", repr(reader.default)
        if reader.choices:
            yield "takes", ", ".join(reader.choices)
        elif reader.reads not in PLAIN:
            yield "spellings", _spellings(reader)


def _spellings(reader: EnvReader) -> str:
    shown = []
    for text in _SPELLINGS:
        reading = read_as(reader, text)
        value = repr(reading.value) if reading.kind == "value" else reading.kind
        shown.append(f"{text or 'empty'}: {value}")
    return ", ".join(shown)


def way_rows(name: str, roles: Collection[str]) -> Iterator[tuple[str, str]]:
    """Through which layers a value gets to each role that reads it, and who changes it there."""
    for role, row in env_precedence().items():
        if role in roles:
            yield f"way to {role}", " < ".join(row.layers)
            if row.note:
                yield "note", row.note
    for framework in RL_FRAMEWORKS:
        for entry in framework_env(framework):
            if entry.name == name:
                does = "removes it" if entry.value is None else f"sets {entry.value}"
                yield framework, f"{does} ({entry.how}) in {', '.join(entry.roles)}"


def listed_card(name: str) -> Card | None:
    """The card of a variable of which no more is known than the place that reads it."""
    listed = env_name(name)
    if listed is None:
        return None
    span = "" if listed.versions.is_open else f" {listed.versions}"
    roles = package_roles()[listed.package]
    rows = [
        ("read by", f"{listed.package}{span}"),
        ("in", ", ".join(roles)),
        ("takes", listed.type or "not known"),
    ]
    if listed.default is not None:
        rows.append(("default", listed.default))
    rows += [row for row in reader_rows(name) if row[0] != "unset is"]
    rows += way_rows(name, roles)
    rows.append(("source", listed.source))
    return Card(name, "environment variable", tuple(rows), (name,))


def engine_only_card(name: str) -> Card | None:
    """The card of a variable of which no more is known than that vLLM declares it."""
    runs = vllm_env_names().get(name)
    if runs is None:
        return None
    rows = [("read by", "vllm"), ("vllm", str(vllm_span(name))), *reader_rows(name)]
    rows.append(("source", runs[-1].source))
    return Card(name, "environment variable", tuple(rows), (name,))

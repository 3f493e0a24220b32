"""How a variable's reader understands a text: the very expression, and what comes of it.

A row's ``reads`` is the expression of the source with the variable's text as ``x`` (and its
listed values as ``choices``). Most switches that look alike are not: ``true`` is on for one
reader, off for the next, and a ``ValueError`` for a third.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.env_names import env_name
from precision_plan.facts.env_vars import env_var
from precision_plan.facts.versions import EVERY_VERSION, VersionRange


class EnvReader(NamedTuple):
    """One place that reads a variable, on one range of a package's versions.

    ``default`` is the text that an unset variable counts as (``None``: unset has a meaning of
    its own, or depends on other things). ``versions`` covers the releases that were read; for
    those between two of them that differ nothing is said. ``stage`` is set where it is known that
    a value which cannot be read stops the engine's configuration.
    """

    name: str
    package: str
    reads: str
    source: str
    default: str | None = None
    choices: tuple[str, ...] = ()
    read: Literal["import", "call", "start"] = "start"
    versions: VersionRange = EVERY_VERSION
    stage: Literal["engine_config"] | None = None


class Reading(NamedTuple):
    """What a reader makes of a text; ``unset``: as if the variable were not there."""

    kind: Literal["on", "off", "unset", "value", "error"]
    value: Any = None


_ERROR, _UNSET = Reading("error"), Reading("unset")


def _switch(on: bool) -> Reading:
    return Reading("on" if on else "off", on)


def _number(kind: Callable[[str], Any]) -> Callable[[str], Reading]:
    def read(text: str) -> Reading:
        try:
            return Reading("value", kind(text))
        except (ValueError, TypeError):
            return _ERROR

    return read


def _of_number(test: Callable[[int], bool]) -> Callable[[str], Reading]:
    def read(text: str) -> Reading:
        try:
            return _switch(test(int(text)))
        except ValueError:
            return _ERROR

    return read


def _text(change: Callable[[str], Any]) -> Callable[[str], Reading]:
    return lambda text: Reading("value", change(text))


_C_NUMBER = re.compile(r"[ \t-\r]*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)?")
STRTOLL = "strtoll(x)"
"""NCCL's reader: C's strtoll in base 0, which takes what does not begin with a number for 0."""


def _strtoll(text: str) -> Reading:
    if not text:
        return _UNSET
    sign, digits = _C_NUMBER.match(text).groups()  # type: ignore[union-attr]
    if digits is None:
        return Reading("value", 0)
    if digits[0] == "0" and digits[1:2] not in {"x", "X"}:
        octal = re.match(r"[0-7]+", digits)
        value = int(octal.group(), 8) if octal else 0
    else:
        value = int(digits, 0)
    value = -value if sign == "-" else value
    return Reading("value", value) if -(2**63) <= value < 2**63 else _UNSET


_SGLANG_SWITCH = (
    "{'true': True, '1': True, 'yes': True, 'y': True, "
    "'false': False, '0': False, 'no': False, 'n': False}.get(x.lower())"
)
_SGLANG_TEXTS = {"true", "1", "yes", "y", "false", "0", "no", "n"}


_READERS: Mapping[str, Callable[[str], Reading]] = MappingProxyType(
    {
        "bool(int(x))": _of_number(bool),
        "int(x) > 0": _of_number(lambda number: number > 0),
        "int(x) == 1": _of_number(lambda number: number == 1),
        "int(x)": _number(int),
        "float(x)": _number(float),
        "json.loads(x)": _number(json.loads),
        "x == '1'": lambda text: _switch(text == "1"),
        "x != '0'": lambda text: _switch(text != "0"),
        "x.lower() == 'true'": lambda text: _switch(text.lower() == "true"),
        "x.lower() in ('1', 'true')": lambda text: _switch(text.lower() in {"1", "true"}),
        "x.strip().lower() in ('1', 'true')": lambda text: _switch(
            text.strip().lower() in {"1", "true"}
        ),
        "{'1': True, '0': False}.get(x.strip())": lambda text: (
            _switch(text.strip() == "1") if text.strip() in {"0", "1"} else _UNSET
        ),
        _SGLANG_SWITCH: lambda text: (
            _switch(text.lower() in {"true", "1", "yes", "y"})
            if text.lower() in _SGLANG_TEXTS
            else _UNSET
        ),
        "x.upper() in ('1', 'ON', 'YES', 'TRUE')": lambda text: _switch(
            text.upper() in {"1", "ON", "YES", "TRUE"}
        ),
        STRTOLL: _strtoll,
        "x": _text(str),
        "path": _text(str),
        "x.lower()": _text(str.lower),
        "x.upper()": _text(str.upper),
        "x.split(',')": _text(lambda text: text.split(",")),
    }
)

PLAIN = frozenset({"x", "path", "x.lower()", "x.upper()", "x.split(',')"})
"""Readers that take any text."""


def read_as(reader: EnvReader, text: str) -> Reading:
    """What ``reader`` makes of ``text``."""
    if reader.choices:
        folded = "lower" in reader.reads
        choices = [choice.lower() for choice in reader.choices] if folded else reader.choices
        given = text.lower() if folded else text
        return Reading("value", text) if given in choices else _ERROR
    return _READERS[reader.reads](text)


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    rows: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for row in table("env_readers"):
        rows[row["name"]] = (*rows.get(row["name"], ()), row)
    return rows


def reader_names() -> tuple[str, ...]:
    """Every variable whose readers are known."""
    return tuple(_by_name())


@lru_cache(maxsize=512)
def env_readers(name: str) -> tuple[EnvReader, ...]:
    """The places that read a variable, by package and version.

    A variable of which no more is known than its name is read as ``facts.env_names`` says, in
    every release that has it.
    """
    rows = _by_name().get(name)
    if rows is not None:
        return tuple(record(EnvReader, row) for row in rows)
    listed = None if env_var(name) is not None else env_name(name)
    if listed is None or listed.reads is None:
        return ()
    return (EnvReader(name, listed.package, listed.reads, listed.source, listed.default),)


_LOOKS_ON, _LOOKS_OFF = {"true", "yes", "on"}, {"false", "no", "off"}


def misread(reader: EnvReader, text: str) -> str | None:
    """How ``reader`` refuses a text or reads it against its look; ``None`` if it does neither."""
    reading = read_as(reader, text)
    if reading.kind == "error":
        return f"is refused by {reader.reads}"
    low = text.strip().lower()
    if reader.reads == STRTOLL and reading.kind == "value":
        whole = _C_NUMBER.fullmatch(text.rstrip()) and low not in {"", "+", "-"}
        meant_off = low in _LOOKS_OFF and reading.value == 0
        return None if whole or meant_off else f"reads as {reading.value}: {reader.reads}"
    number = low.isascii() and low.isdigit()
    looks_on = low in _LOOKS_ON or (number and int(low) > 0)
    if looks_on and reading.kind in {"off", "unset"}:
        return f"reads as {reading.kind}: {reader.reads}"
    if reading.kind == "on" and (low in _LOOKS_OFF or not low):
        return f"reads as on: {reader.reads}"
    if reading.kind == "unset" and low:
        return f"reads as unset: {reader.reads}"
    return None

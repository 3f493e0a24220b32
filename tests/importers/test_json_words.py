"""JSON inside words: what Python's parser reads, where each key stands, what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.importers.json_words import read_json
from precision_plan.importers.texts import Piece, Source, Text, literal

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
NAMES = st.text('abc$"\\é {}[]:,', min_size=1, max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def word(text: str, offset: int = 0) -> Text:
    source = Source("f", b"x" * offset + text.encode())
    return literal(text, source, offset)


@given(OBJECTS, st.sampled_from([None, 1, 4]), st.booleans(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_reads_what_python_reads_and_knows_where(
    value: dict[str, Any], indent: int | None, ascii_only: bool, offset: int
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    read = read_json(word(text, offset))
    assert read.value == value
    assert read.fault is None and not read.repeated
    lines = (("x" * offset) + text).split("\n")
    for key in value:
        origin = read.origins[key]
        rest = lines[origin.line - 1][origin.column - 1 :]
        assert rest.startswith(json.dumps(key, ensure_ascii=ascii_only))


@given(st.text('{}[]":,ab1 \n', max_size=12))
@settings(max_examples=300, deadline=None)
def test_refuses_what_python_refuses(text: str) -> None:
    try:
        expected, fails = json.loads(text), False
    except ValueError:
        expected, fails = None, True
    read = read_json(word(text))
    assert (read.fault is not None) == fails
    assert read.value == expected


def unknown(text: str, source: Source, offset: int) -> Piece:
    return Piece(text, source, offset, known=False)


def test_unknown_parts_of_values_are_references() -> None:
    source = Source("run.sh", b"." * 60)
    pieces = (
        Piece('{"a": "', source, 0),
        unknown("${HOST}", source, 7),
        Piece(':1", "b": ', source, 14),
        unknown('$(echo "{" | x)', source, 23),
        Piece(', "c": ["', source, 38),
        unknown("`date`", source, 47),
        Piece('"]}', source, 53),
    )
    read = read_json(Text(pieces))
    assert read.value == {"a": "${HOST}:1", "b": '$(echo "{" | x)', "c": ["$(`date`)"]}
    assert read.origins["b"].column == 20


def test_unknown_parts_between_keys_leave_it_unknown() -> None:
    source = Source("run.sh", b"")
    pieces = (Piece('{"a": "1" ', source, 0), unknown("$MORE", source, 10), Piece("}", source, 15))
    read = read_json(Text(pieces))
    assert read.value is None and read.fault is None


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ('{\n "a": "1"\n "b": "2"}', "expecting ',' delimiter", 3, 2),
        ("", "expecting value", 1, 1),
        ("{'a': 1}", "expecting property name enclosed in double quotes", 1, 2),
    ],
)
def test_a_fault_has_its_place(text: str, message: str, line: int, column: int) -> None:
    fault = read_json(word(text)).fault
    assert fault is not None
    assert (fault.origin.line, fault.origin.column) == (line, column)
    assert fault.message == message


def test_a_key_that_stands_twice() -> None:
    read = read_json(word('{"a": 1, "b": {"c": 1, "c": 2}}'))
    assert [(each.message, each.origin.column) for each in read.repeated] == [("b.c", 24)]
    assert read.value == {"a": 1, "b": {"c": 2}}


def test_nesting_without_end_is_a_fault() -> None:
    assert read_json(word("[" * 100_000)).fault is not None

"""Edits of YAML: the data changes as asked, and every line that is not concerned stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from omegaconf._utils import get_yaml_loader

from precision_plan.compose.editing import edit, without_comments
from precision_plan.compose.unedited import CannotEdit
from precision_plan.compose.written import written
from tests._hypothesis import examples

BOM = "\ufeff"
Path = tuple[str, ...]


@dataclass
class Text:
    """A generated document: its lines, each with the key that it belongs to."""

    lines: list[tuple[Path, str, bool]] = field(default_factory=list)  # owner, text, is comment
    leaves: list[Path] = field(default_factory=list)
    mappings: list[Path] = field(default_factory=list)
    count: int = 0

    def add(self, owner: Path, line: str, comment: bool = False) -> None:
        self.lines.append((owner, line, comment))

    def name(self) -> str:
        self.count += 1
        return f"key{self.count}x"


SCALARS = st.one_of(
    st.sampled_from(["true", "no", "1", "-2.5", "1e-6", "null", "~", "hybrid", "a b", "${a.b}"]),
    st.sampled_from(["'it''s'", '"tab\\t"', "'# no comment'", '"{no: map}"', "http://x:1/#y"]),
    st.sampled_from(["[1, 2]", "['a, b', \"c\"]", "[]", "{}"]),
)
INNER = st.sampled_from(["true", "no", "1", "1e-6", "~", "a b", "'a, b'", '"}"', "[1, 2]", "{}"])
COMMENTS = st.sampled_from(["# why", "# key: value", "#! ---", "# précision: {a: 1}", "# 'open"])
VALUES = st.one_of(
    st.booleans(),
    st.integers(-5, 70000),
    st.sampled_from([1e-6, 0.5, 1e20]),
    st.sampled_from(
        ["hybrid", "1", "true", "", " a", "a: b", "a #b", "it's", '"', "é", "x\ny", "-"]
    ),
    st.lists(st.sampled_from(["a", "b, c", "1"]), max_size=2),
)


@st.composite
def documents(draw: st.DrawFn) -> Text:
    text = Text()
    text.add((), "# @package _global_", True)
    text.add(("keep",), "keep: 1   # the first")
    block(draw, text, (), "", 0)
    return text


def block(draw: st.DrawFn, text: Text, path: Path, indent: str, depth: int) -> None:
    text.mappings.append(path)
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 2))):
            text.add(path, draw(st.sampled_from(["", indent + draw(COMMENTS)])), True)
        key = text.name()
        here = (*path, key)
        text.leaves.append(here)
        tail = draw(st.sampled_from(["", "", "  # behind", " # é"]))
        kinds = ["scalar", "scalar", "flow", "list", "literal", "nothing"]
        kind = draw(st.sampled_from([*kinds, "block", "block"] if depth < 2 else kinds))
        quoted = draw(st.sampled_from([key, key, f'"{key}"', f"'{key}' "]))
        if kind == "block":
            text.add(here, f"{indent}{quoted}:{tail}")
            block(draw, text, here, indent + draw(st.sampled_from(["  ", "    "])), depth + 1)
        elif kind == "flow":
            text.add(here, f"{indent}{quoted}: {flow(draw, text, here)}{tail}")
        elif kind == "list":
            text.add(here, f"{indent}{quoted}:{tail}")
            for item in draw(st.lists(SCALARS, min_size=1, max_size=2)):
                text.add(here, f"{indent}- {item}")
        elif kind == "literal":
            text.add(here, f"{indent}{quoted}: {draw(st.sampled_from(['|', '>-', '|2']))}{tail}")
            text.add(here, f"{indent}  a # text")
            text.add(here, f"{indent}    b: [")
        elif kind == "nothing":
            text.add(here, f"{indent}{quoted}:{tail}")
        else:
            text.add(here, f"{indent}{quoted}: {draw(SCALARS)}{tail}")


def flow(draw: st.DrawFn, text: Text, path: Path) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        key = text.name()
        text.leaves.append((*path, key))
        parts.append(f"{key}: {draw(INNER)}")
    text.mappings.append(path)
    return "{" + draw(st.sampled_from([", ", ","])).join(parts) + draw(st.sampled_from(["}", " }"]))


def joined(text: Text, ending: str, bom: str, end: str) -> str:
    return bom + ending.join(line for _, line, _ in text.lines) + end


def loaded(text: str) -> Any:
    return yaml.load(text.removeprefix(BOM), get_yaml_loader())


def changed(data: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The edit on plain data; mappings that it empties go."""
    result = dict(data)
    if len(path) == 1:
        result.pop(path[0], None)
        return result if value is None else {**result, path[0]: value}
    inner = changed(result.get(path[0]) or {}, path[1:], value)
    result[path[0]] = inner
    if not inner:
        del result[path[0]]
    return result


def emptied(data: Any, path: Path) -> list[Path]:
    """The mappings that go with a key, because it is all that they hold."""
    gone = []
    for length in range(len(path) - 1, 0, -1):
        inner = data
        for part in path[:length]:
            inner = inner[part]
        if len(inner) > 1:
            break
        gone.append(path[:length])
    return gone


def is_kept(owner: Path, comment: bool, path: Path, gone: list[Path]) -> bool:
    """True for a line that an edit of ``path`` does not concern."""
    if owner[: len(path)] == path:
        return False
    return comment or owner not in gone


SHAPES = st.tuples(st.sampled_from(["\n", "\n", "\r\n"]), st.sampled_from(["", BOM]), st.booleans())


def check_lines(before: Text, path: Path, gone: list[Path], after: str, names: set[str]) -> None:
    """Every line that is not concerned is there, in order; any other names what was edited."""
    kept = [
        line
        for owner, line, comment in before.lines
        if line.strip() and is_kept(owner, comment, path, gone)
    ]
    lines = [line.rstrip("\r") for line in after.removeprefix(BOM).split("\n")]
    rest = []
    for line in filter(str.strip, lines):
        if kept and line == kept[0]:
            kept.pop(0)
        else:
            rest.append(line)
    assert kept == []
    assert all(any(name in line for name in names) for line in rest)


@examples(150)
@given(documents(), SHAPES, st.data())
def test_a_key_is_removed(text: Text, shape: tuple[str, str, bool], data: st.DataObject) -> None:
    ending, bom, newline = shape
    before = joined(text, ending, bom, ending if newline else "")
    path = data.draw(st.sampled_from(text.leaves))
    old = loaded(before)
    gone = emptied(old, path)
    try:
        after = edit(before, {".".join(path): None})
    except CannotEdit:
        # A comment of an emptied section would become a line of the text above it.
        assume(not gone)
        raise
    assert loaded(after) == changed(old, path, None)
    assert after.startswith(bom) and (ending == "\n" or "\n" not in after.replace("\r\n", ""))
    # Between braces, the line of the outermost mapping is the one that changes.
    outer = path[:-1] if any(owner == path[:-1] and "{" in line and path[-1] in line
                             for owner, line, _ in text.lines) else path  # fmt: skip
    check_lines(text, outer, gone, after, set(outer))


@examples(150)
@given(documents(), SHAPES, VALUES, st.data())
def test_a_value_is_set(
    text: Text, shape: tuple[str, str, bool], value: Any, data: st.DataObject
) -> None:
    ending, bom, newline = shape
    before = joined(text, ending, bom, ending if newline else "")
    path = data.draw(st.sampled_from(text.leaves))
    old = loaded(before)
    lines = [line for owner, line, _ in text.lines if owner[: len(path)] == path]
    try:
        after = edit(before, {".".join(path): value})
    except CannotEdit:
        assume(not any("#" in line for line in lines))
        raise
    assert loaded(after) == changed(old, path, value)
    outer = next(owner for owner, line, _ in text.lines if path[-1] in line)
    check_lines(text, outer, [], after, set(outer))
    if len(lines) == 1:
        assert after.count("\n") == before.count("\n")


@examples(150)
@given(documents(), SHAPES, VALUES, st.lists(st.sampled_from(["new1", "new2"]), max_size=2),
       st.data())  # fmt: skip
def test_a_key_is_added(
    text: Text,
    shape: tuple[str, str, bool],
    value: Any,
    inner: list[str],
    data: st.DataObject,
) -> None:
    ending, bom, newline = shape
    before = joined(text, ending, bom, ending if newline else "")
    path = (*data.draw(st.sampled_from(text.mappings)), "added", *inner)
    old = loaded(before)
    try:
        after = edit(before, {".".join(path): value})
    except CannotEdit:
        assume(newline)  # a text at the end of the file would get a line feed
        raise
    assert loaded(after) == changed(old, path, value)
    assert ending == "\n" or "\n" not in after.replace("\r\n", "")
    parent = path[: -1 - len(inner)]
    flow = any(owner == parent and "{" in line for owner, line, note in text.lines if not note)
    check_lines(text, parent if flow else path, [], after, {"added", *inner, *parent[-1:]})


@examples(200)
@given(st.one_of(VALUES, st.text(max_size=8)))
def test_what_is_written_reads_back(value: Any) -> None:
    text = written(value)
    assert "\n" not in text
    try:
        assert yaml.safe_load(f"k: {text}\n") == {"k": value}
        assert yaml.safe_load(f"{{k: {text}, l: [{text}]}}\n") == {"k": value, "l": [value]}
    except yaml.YAMLError:  # characters that YAML does not hold, whatever the quotes
        assert isinstance(value, str) and not value.isprintable()


# -- single edits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("a:\n  b: 1\n", {"a.c": "x"}, "a:\n  b: 1\n  c: x\n"),
        ("a: 1\n\nb:\n  c: 1\n# end\n", {"d.e": 2}, "a: 1\n\nb:\n  c: 1\n\nd:\n  e: 2\n# end\n"),
        ("a:\n    b: 1\n", {"c.d.e": 1}, "a:\n    b: 1\nc:\n    d:\n        e: 1\n"),
        ("env:\n  all:   # none yet\n", {"env.all.X": "1"},
         "env:\n  all:   # none yet\n    X: \"1\"\n"),
        ("a: {}\n", {"a.b": [1, "2"]}, "a: {b: [1, \"2\"]}\n"),
        ("a: {\n  b: 1,   # one\n}\n", {"a.c": 2}, "a: {\n  b: 1,   # one\n  c: 2,\n}\n"),
        ("a: {\n  b: 1   # one\n}\n", {"a.c": 2}, "a: {\n  b: 1,   # one\n  c: 2\n}\n"),
        ("a: 'x'\nb: \"x\"\nc: x\n", {"a": "y", "b": "y", "c": "y"}, "a: 'y'\nb: \"y\"\nc: y\n"),
        ("a: {b: 1}  # old\nc:\n  d: 2\n", {"a.b": None, "c.b": 1},
         "c:\n  d: 2\n  b: 1  # old\n"),
        ("a:\n  b.c: 1\n  d: 2\n", {"a.b.c": None}, "a:\n  d: 2\n"),
        ("a:\n  - 1\n  - 2\nb: 3\n", {"a": [1]}, "a: [1]\nb: 3\n"),
        ("a: 1\nb: |+\n  text\n\n", {"a": 2}, "a: 2\nb: |+\n  text\n\n"),
    ],
)  # fmt: skip
def test_edit(before: str, changes: dict[str, Any], after: str) -> None:
    assert edit(before, changes) == after


@pytest.mark.parametrize(
    ("before", "changes", "why"),
    [
        ("a: 1\n", {"a": None}, "nothing would be left"),
        ("a: &x {b: 1}\nc: *x\n", {"a.b": 2}, "would change other keys"),
        ("a: &x {b: 1}\nc: *x\n", {"a": None}, "other keys refer to a by an alias"),
        ("a: &x {b: 1}\nc: *x\n", {"c.d": 2}, "c is an alias"),
        ("a: &x {b: 1}\nc: *x\n", {"c": 2}, "the value of c is an alias"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", {"c.b": None}, "brought in by an alias"),
        ("a: 1\na: 2\n", {"a": 3}, "a is written twice"),
        ("a.b: 1\na: {b: 2}\n", {"a.b": 3}, "two keys are called a.b"),
        ("a:\n  - 1   # one\n  - 2\n", {"a": [2]}, "has comments in it"),
        ("a: [\n", {"a": 1}, "not YAML"),
        ("? a\n: b\nc: 1\n", {"a": None}, "shares its"),
        ("a: 1\n", {"a.b": 1}, "a is no mapping"),
        ("b: {a}\n", {"b.a": 1}, "has no value of its own"),
    ],
)
def test_an_edit_is_refused(before: str, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotEdit, match=why):
        edit(before, changes)


@pytest.mark.parametrize(
    ("before", "place", "after"),
    [
        ("a: 1   # x\r\nb: 2\r\n", (1, 8), "a: 1\r\nb: 2\r\n"),
        ("a: 1\n  # x\nb: 2\n", (2, 3), "a: 1\nb: 2\n"),
        ("a: 1 # keep # x", (1, 13), "a: 1 # keep"),
        (BOM + "# x\na: 1\n", (1, 1), BOM + "a: 1\n"),
    ],
)
def test_a_comment_is_removed(before: str, place: tuple[int, int], after: str) -> None:
    assert without_comments(before, [place]) == after


@pytest.mark.parametrize("place", [(1, 1), (9, 1), (1, 40)])
def test_no_comment_stands_there(place: tuple[int, int]) -> None:
    with pytest.raises(CannotEdit, match="no comment in this place"):
        without_comments("a: 1\n", [place])

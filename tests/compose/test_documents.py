"""YAML as OmegaConf types it, with a position for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from precision_plan.compose.document import Document, parse_document


def parse(text: str) -> Document:
    document = parse_document(text, Path("a.yaml"), "a.yaml")
    assert document.problems == ()
    return document


@settings(max_examples=500, deadline=None)
@given(st.text("0123456789.eE+-_:xobnaNifINFyesnoTRUtruefalse~", min_size=1, max_size=8))
@example("1e5")
@example("1_000")
@example("0o17")
@example("017")
@example("0x1F")
@example("1:30")
@example("1:30.5")
@example(".5")
@example("5.")
@example("-.inf")
@example(".NaN")
@example("2024-01-31")
@example("on")
@example("=")
def test_scalars_have_the_types_that_omegaconf_gives_them(text: str) -> None:
    try:
        wanted = OmegaConf.create(f"a: {text}\n")
    except Exception:
        return
    if not isinstance(wanted._get_node("a")._value(), (str, int, float, bool, type(None))):
        return
    assert repr(parse(f"a: {text}\n").data["a"]) == repr(wanted._get_node("a")._value())


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1, c: [1, 2]}\nd: *x\n",
        "a: &x {b: 1}\nd:\n  <<: *x\n  c: 2\n",
        "a: &x {b: 1, c: 1}\ne: &y {c: 2}\nd:\n  <<: [*x, *y]\n  f: 3\n",
        "a: &x {b: 1}\nd:\n  b: 2\n  <<: *x\n",
        "a: |\n  two\n  lines\nb: >-\n  folded\n  text\n",
        "a: !!str 12\nb: !!float 1\nc: !!int '7'\nd: !!bool yes\ne: !!null ''\n",
        "1: a\ntrue: b\n1.5: c\n",
        "? a\n: b\n",
        "a: 'it''s'\nb: \"tab\\t\\u00e9\"\n",
        "{a: [], b: {}, c: [{d: e}]}\n",
    ],
)
def test_documents_have_the_content_that_omegaconf_reads(text: str) -> None:
    wanted: Any = OmegaConf.to_container(OmegaConf.create(text))
    assert parse(text).data == wanted


def test_positions() -> None:
    document = parse("# comment\ntraining:\n  bf16: true\n\n  nested: {x: 1, y: [a, {z: 2}]}\n")
    assert document.marks == {
        "training": (2, 1),
        "training.bf16": (3, 3),
        "training.nested": (5, 3),
        "training.nested.x": (5, 12),
        "training.nested.y": (5, 18),
        "training.nested.y.1.z": (5, 26),
    }


def test_a_merged_key_stands_where_it_is_written() -> None:
    document = parse("a: &x\n  b: 1\nd:\n  <<: *x\n")
    assert document.data["d"] == {"b": 1}
    assert document.marks["d.b"] == (2, 3)


def test_numbers_as_written() -> None:
    document = parse("cuda: 12.10\nn: 1_000\nh: 0x10\nquoted: '12.10'\nlist: [1, 2.50]\n")
    assert document.data["cuda"] == 12.1
    assert document.texts == {
        "cuda": "12.10", "n": "1_000", "h": "0x10", "list.0": "1", "list.1": "2.50",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("# @package _global_\na: 1\n", "_global_"),
        ("\n\n#@package foo.bar\n# comment\na: 1\n", "foo.bar"),
        ("# comment\n# @package foo\na: 1\n", None),
        ("a: 1\n", None),
    ],
)
def test_package_header(text: str, package: str | None) -> None:
    assert parse(text).package == package


def test_suppressions() -> None:
    document = parse(
        "a: 1  # precision-plan: ignore[PP101, PP102] tried on the cluster\n"
        "# precision-plan: ignore[PP103] the next line\n"
        "# and why\n"
        "\n"
        "b: 2\n"
        "c: '# precision-plan: ignore[PP104] a text'\n"
        "d: |\n"
        "  # precision-plan: ignore[PP105] a text\n"
        "e: x#precision-plan:ignore[PP106]\n"
        "# precision-plan: ignore-file[PP107]\n"
        "# precision-plan: gpu=h100\n"
        "f: g #precision-plan:ignore[PP108]: why\n"
    )
    assert [(each.ids, each.line, each.reason) for each in document.suppressions] == [
        (("PP101", "PP102"), 1, "tried on the cluster"),
        (("PP103",), 5, "the next line"),
        (("PP107",), 0, ""),
        (("PP108",), 12, "why"),
    ]
    assert [str(each.origin) for each in document.suppressions] == [
        "a.yaml:1:7", "a.yaml:2:1", "a.yaml:10:1", "a.yaml:12:6",
    ]  # fmt: skip

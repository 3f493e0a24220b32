"""Laying text out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.render._layout import Style, columns_of, hanging, printable, table, wrap

WIDTHS = st.integers(min_value=8, max_value=100)


@given(st.text(), WIDTHS)
def test_no_line_is_wider_than_asked(text: str, width: int) -> None:
    assert all(columns_of(line) <= width for line in wrap(printable(text), width))


@given(st.text(), WIDTHS)
def test_wrapping_loses_no_character(text: str, width: int) -> None:
    shown = printable(text)
    together = "".join(wrap(shown, width))
    assert "".join(together.split()) == "".join(shown.split())


@given(st.text())
def test_what_is_printable_is_printed_as_it_is(text: str) -> None:
    once = printable(text)
    assert printable(once) == once
    assert all(char.isprintable() or char in " \xa0" or ord(char) > 0xFF for char in once)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("\x1b[1;31mabc\x1b[0m", 3), ("精度", 4), ("e\N{COMBINING ACUTE ACCENT}", 1)],
)
def test_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns


def test_a_long_path_breaks_after_a_separator() -> None:
    lines = wrap("NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py:703", 50)
    assert lines == ["NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/", "arguments.py:703"]


def test_hanging_indent() -> None:
    assert hanging("  because", "one two three", 20, indent=11) == [
        "  because  one two",
        "           three",
    ]


def test_table_aligns_wraps_and_leaves_no_trailing_space() -> None:
    rows = [("name", "b", "last cell that wraps here"), ("a longer name", "bb", "")]
    assert table(rows, (8, 8), 34, 2) == [
        "  name      b   last cell that",
        "                wraps here",
        "  a longer  bb",
        "  name",
    ]


def test_style_is_silent_without_colour() -> None:
    assert Style(False)("error", "x") == "x"
    assert Style(True)("error", "x") == "\x1b[1;31mx\x1b[0m"
    assert Style(True)("error", "") == ""

"""Where a key that a YAML text does not have yet is put, and how it is indented."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_plan.compose.layout import Node, Place
from precision_plan.compose.removing import line_end, line_start
from precision_plan.compose.unedited import CannotEdit
from precision_plan.compose.written import written
from precision_plan.plan.text_edits import TextEdit

_STEP = "  "
_REST = re.compile(r"[ \t]*(,?)[ \t]*(?:#[^\n]*)?\r?\n")


def insertion(
    text: str,
    root: Node,
    found: Mapping[str, Place | None],
    key: str,
    value: Any,
    comment: str,
) -> list[TextEdit]:
    """Edits that put a new key at the end of the innermost mapping of its name that exists.

    ``comment`` goes behind it, where there is room for one.

    Raises:
        CannotEdit: if the mapping is an alias, or no mapping.
    """
    parts = key.split(".")
    place: Place | None = None
    known = len(parts) - 1
    while known:
        place = found.get(".".join(parts[:known]))
        if place is not None:
            break
        known -= 1
    holder, missing = (root if place is None else place.pair.value), parts[known:]
    where = ".".join(parts[:known])
    if place is not None and holder.empty:
        return [_first(text, place, missing, value, comment)]
    if holder.kind == "alias":
        raise CannotEdit(f"{where} is an alias, and a key of it would be a key of others, too")
    if holder.kind != "mapping":
        raise CannotEdit(f"{where} is no mapping in this file")
    if holder.flow:
        return _between_braces(text, holder, missing, value)
    return [_at_end(text, root, holder, missing, value, comment)]


def _between_braces(text: str, holder: Node, missing: list[str], value: Any) -> list[TextEdit]:
    inner = written(value)
    for name in reversed(missing[1:]):
        inner = f"{{{written(name)}: {inner}}}"
    entry = f"{written(missing[0])}: {inner}"
    if not holder.pairs:
        return [TextEdit(holder.end - 1, holder.end - 1, entry)]
    last = holder.pairs[-1]
    begin = line_start(text, last.start)
    indent = text[begin : last.start]
    rest = _REST.match(text, last.end)
    if indent.strip() or rest is None:
        return [TextEdit(last.end, last.end, f", {entry}")]
    comma = [] if rest[1] else [TextEdit(last.end, last.end, ",")]
    return [*comma, _lines_after(text, last.end, [f"{indent}{entry}{rest[1]}"])]


def _at_end(
    text: str, root: Node, holder: Node, missing: list[str], value: Any, comment: str
) -> TextEdit:
    last = holder.pairs[-1]
    begin = line_start(text, last.start)
    indent = text[begin : last.start]
    if indent.strip():  # the mapping begins in the line of a list's dash
        indent = " " * len(indent)
    lines = _entry(missing, value, indent, _step(text, root), comment)
    if holder is root and len(missing) > 1 and _is_set_apart(text, begin):
        lines.insert(0, "")
    return _lines_after(text, last.end, lines)


def _first(text: str, place: Place, missing: list[str], value: Any, comment: str) -> TextEdit:
    """The first key of a mapping that holds nothing yet (``env:``)."""
    if place.mapping.flow or place.pair.colon is None or place.pair.value.anchor:
        raise CannotEdit(f"{place.pair.key.text} is no mapping in this file")
    begin = line_start(text, place.pair.start)
    indent = " " * (place.pair.start - begin) + _STEP
    lines = _entry(missing, value, indent, _STEP, comment)
    return _lines_after(text, place.pair.colon, lines)


def _entry(missing: list[str], value: Any, indent: str, step: str, comment: str) -> list[str]:
    lines = []
    for name in missing[:-1]:
        lines.append(f"{indent}{written(name)}:")
        indent += step
    behind = f"  {comment}" if comment else ""
    return [*lines, f"{indent}{written(missing[-1])}: {written(value)}{behind}"]


def _lines_after(text: str, index: int, lines: list[str]) -> TextEdit:
    """Whole lines after the line of ``index``, with the line ending of the text."""
    newline = "\r\n" if "\r\n" in text else "\n"
    at = line_end(text, index)
    block = newline.join(lines)
    if text[at - 1 : at] != "\n":
        return TextEdit(at, at, newline + block)
    return TextEdit(at, at, block + newline)


def _step(text: str, root: Node) -> str:
    """The indentation of one level, as the text has it."""
    for pair in root.pairs:
        value = pair.value
        if value.kind == "mapping" and not value.flow and value.pairs:
            first = value.pairs[0].start
            inner = first - line_start(text, first)
            outer = pair.start - line_start(text, pair.start)
            if inner > outer:
                return " " * (inner - outer)
    return _STEP


def _is_set_apart(text: str, begin: int) -> bool:
    """True if a blank line stands before the line that begins at ``begin``."""
    above = text.rfind("\n", 0, begin - 1) + 1 if begin else 0
    return begin > 0 and not text[above:begin].strip()

"""The support matrix as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from precision_plan.plan.matrix import STATUSES, Cell, Matrix, RuleLine
from precision_plan.render._layout import Style, columns_of, hanging, wrap

MATRIX_FORMATS = ("text", "markdown", "json")
SCHEMA_VERSION = 1

_COLORS = {"supported": "good", "beta": "advice", "experimental": "advice", "refused": "error"}


def render_matrix(
    matrix: Matrix, format: str, *, width: int = 80, color: bool = False, every: bool = False
) -> str:
    """Render in one of :data:`MATRIX_FORMATS`; ends with a newline.

    Text and Markdown leave out pairs that no GPU documents unless ``every`` is set; JSON has all.

    Raises:
        ValueError: if there is no such format.
    """
    if format == "text":
        return _text(matrix, width, Style(color), every)
    if format == "markdown":
        return _markdown(matrix, every)
    if format == "json":
        return _json(matrix)
    raise ValueError(f"there is no format {format!r}; known: {', '.join(MATRIX_FORMATS)}")


def _says(cell: Cell) -> str:
    """``refused PP204``: the status and the rule that counts, or how many more there are."""
    ids = list(dict.fromkeys(reason.id for reason in cell.reasons))
    if not ids:
        return cell.status
    more = f" +{len(ids) - 1}" if len(ids) > 1 else ""
    return f"{cell.status} {ids[0]}{more}"


def _split(
    matrix: Matrix, framework: str, every: bool
) -> tuple[list[tuple[Cell, ...]], list[tuple[Cell, ...]]]:
    """Rows to show, and rows of pairs without documentation."""
    shown: list[tuple[Cell, ...]] = []
    silent: list[tuple[Cell, ...]] = []
    for row in matrix.rows(framework):
        (shown if every or row[0].source is not None else silent).append(row)
    return shown, silent


def _text(matrix: Matrix, width: int, style: Style, every: bool) -> str:
    lines: list[str] = []
    for framework in matrix.frameworks:
        shown, silent = _split(matrix, framework, every)
        lines.append(style("title", framework))
        for part in _parts(matrix, shown, width):
            lines += _table(matrix, shown, part, style)
            lines.append("")
        if silent:
            text = f"{_pairs(silent)} that {framework} does not document: --all lists them"
            lines += [*hanging("", text, width, indent=2), ""]
    lines.append(style("title", "status"))
    for status, meaning in STATUSES.items():
        lines += hanging(f"  {status}", meaning, width, indent=16)
    rules = _named(matrix, every)
    if rules:
        lines += ["", style("title", "rules (precision-plan explain ID)")]
        for rule in rules:
            lines += hanging(f"  {rule.id}", f"{rule.summary} [{rule.source[0]}]", width, indent=9)
    notes = _notes(matrix, every)
    if notes:
        lines += ["", style("title", "notes on the pairs")]
        for pair, text in notes:
            lines += hanging(f"  {pair}", text, width, indent=30)
    lines += ["", style("title", "sources of the pairs")]
    for source in _sources(matrix):
        lines += hanging("  -", source, width, indent=4)
    lines += ["", *_target(matrix, width)]
    return "\n".join(lines) + "\n"


def _named(matrix: Matrix, every: bool) -> tuple[RuleLine, ...]:
    """The rules that a shown cell names, or counts."""
    shown = {
        reason.id
        for framework in matrix.frameworks
        for row in _split(matrix, framework, every)[0]
        for cell in row
        for reason in cell.reasons
    }
    return tuple(rule for rule in matrix.rules if rule.id in shown)


def _pairs(rows: Sequence[tuple[Cell, ...]]) -> str:
    return f"{len(rows)} more pair{'s' if len(rows) > 1 else ''}"


def _target(matrix: Matrix, width: int) -> list[str]:
    given = ", ".join(f"{name} {text}" for name, text in matrix.versions.items())
    text = f"versions: {given}" if given else "versions: unknown (say them with --target vllm=...)"
    return wrap(text, width)


_ROW = 15 + 2 + 14 + 2
"""Columns that the names of a pair take."""


def _parts(
    matrix: Matrix, rows: Sequence[tuple[Cell, ...]], width: int
) -> Iterator[tuple[int, ...]]:
    """Numbers of the GPU columns that fit beside each other."""
    part: list[int] = []
    used = _ROW
    for at in range(len(matrix.gpus)):
        wide = _wide(matrix, rows, at) + 2
        if part and used + wide > width + 2:
            yield tuple(part)
            part, used = [], _ROW
        part.append(at)
        used += wide
    if part:
        yield tuple(part)


def _head(matrix: Matrix, at: int) -> str:
    gpu = matrix.gpus[at]
    return f"{gpu} ({matrix.capabilities[gpu]})"


def _wide(matrix: Matrix, rows: Sequence[tuple[Cell, ...]], at: int) -> int:
    return max([len(_head(matrix, at)), *(len(_says(row[at])) for row in rows)])


def _table(
    matrix: Matrix, rows: Sequence[tuple[Cell, ...]], part: Sequence[int], style: Style
) -> list[str]:
    widths = [15, 14, *(_wide(matrix, rows, at) for at in part)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            text + " " * (size - columns_of(text)) for text, size in zip(cells, widths, strict=True)
        ]
        return ("  " + "  ".join(padded)).rstrip()

    lines = [style("dim", line(["trained", "rollout", *(_head(matrix, at) for at in part)]))]
    last = ""
    for row in rows:
        train, rollout = row[0].pair
        painted = [
            style(_COLORS[row[at].status], _says(row[at]))
            if row[at].status in _COLORS
            else _says(row[at])
            for at in part
        ]
        lines.append(line(["" if train == last else train, rollout, *painted]))
        last = train
    return lines


def _sources(matrix: Matrix) -> list[str]:
    texts = (cell.source for cell in matrix.cells if cell.source is not None)
    return sorted({part.strip() for text in texts for part in text.split(";")})


def _notes(matrix: Matrix, every: bool) -> list[tuple[str, str]]:
    """Needs and notes of the documented pairs, those that frameworks share in one line."""
    found: dict[tuple[str, str], list[str]] = {}
    for framework in matrix.frameworks:
        for row in _split(matrix, framework, every)[0]:
            cell = row[0]
            words = [*(f"needs {need}" for need in cell.needs), *([cell.note] if cell.note else [])]
            if words:
                key = (" / ".join(cell.pair), "; ".join(words))
                found.setdefault(key, []).append(framework)
    return [(pair, f"{text} ({', '.join(names)})") for (pair, text), names in found.items()]


def _markdown(matrix: Matrix, every: bool) -> str:
    heads = [_head(matrix, at) for at in range(len(matrix.gpus))]
    lines = ["# Support matrix", ""]
    for framework in matrix.frameworks:
        shown, silent = _split(matrix, framework, every)
        lines += [f"## {framework}", ""]
        lines.append("| trained | rollout | " + " | ".join(heads) + " |")
        lines.append("|---|---|" + "---|" * len(heads))
        for row in shown:
            lines.append(f"| {' | '.join(row[0].pair)} | {' | '.join(map(_says, row))} |")
        lines.append("")
        if silent:
            lines += [f"{_pairs(silent)} that {framework} does not document.", ""]
    lines += ["## Status", ""]
    lines += [f"- `{status}`: {meaning}" for status, meaning in STATUSES.items()]
    rules = _named(matrix, every)
    if rules:
        lines += ["", "## Rules", ""]
        lines += [f"- `{rule.id}` {rule.slug}: {rule.summary} ({rule.source[0]})" for rule in rules]
    notes = _notes(matrix, every)
    if notes:
        lines += ["", "## Notes on the pairs", ""]
        lines += [f"- `{pair}`: {text}" for pair, text in notes]
    lines += ["", "## Sources of the pairs", ""]
    lines += [f"- {source}" for source in _sources(matrix)]
    return "\n".join(lines) + "\n"


def _json(matrix: Matrix) -> str:
    data = {
        "schema_version": SCHEMA_VERSION,
        "versions": dict(matrix.versions),
        "frameworks": list(matrix.frameworks),
        "gpus": [{"name": gpu, "capability": matrix.capabilities[gpu]} for gpu in matrix.gpus],
        "statuses": dict(STATUSES),
        "rules": [
            {
                "id": rule.id,
                "slug": rule.slug,
                "summary": rule.summary,
                "source": list(rule.source),
            }
            for rule in matrix.rules
        ],
        "cells": [
            {
                "framework": cell.framework,
                "gpu": cell.gpu,
                "train": cell.train,
                "rollout": cell.rollout,
                "status": cell.status,
                "reasons": [
                    {"id": each.id, "severity": each.severity, "message": each.message}
                    for each in cell.reasons
                ],
                "source": cell.source,
                "note": cell.note,
                "needs": list(cell.needs),
                "plan": cell.plan,
            }
            for cell in matrix.cells
        ],
    }
    return json.dumps(data, indent=2) + "\n"

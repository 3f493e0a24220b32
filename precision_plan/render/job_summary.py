"""Markdown for a job summary or a comment: findings by file, reasons and ways out folded away.

Only this module's own words are Markdown. What comes from a recipe stands in ``<code>``, where no
name is mentioned and nothing is linked; what could close it, or mean something to Markdown where
that is read, is written as a character reference.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from precision_plan.render._closing import counts, found, notes
from precision_plan.render._layout import Style, printable
from precision_plan.render._mask import Mask
from precision_plan.render._run import in_order
from precision_plan.render._told import told

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._run import Run

LIMIT = 1_000_000
"""Bytes. GitHub takes no job summary above 1 MiB, and then shows nothing of it."""

_ACTIVE = re.compile(r"[^\w ./=,:;()-]|_", re.ASCII)


def lint(report: LintReport, run: Run) -> str:
    """A heading with the numbers, one section a file with its findings, what else there is."""
    mask, plain = Mask(), Style(False)
    blocks = [f"## precision-plan: {', '.join(found(report.diagnostics, plain))}"]
    closing = [*notes(report), ", ".join(counts(report))]
    size, left, file = sum(map(len, closing)), len(report.diagnostics), None
    for each in _by_file(report, run, mask):
        place = run.place_of(each, mask)
        path = place.path if place else ""
        new = [f"### {_heading(path)}"] if path != file else []
        new.append(_finding(each, run, mask))
        size += sum(map(len, new)) + 2 * len(new)
        if size > LIMIT:
            blocks.append(f"{left} findings more do not fit here; the log has them.")
            break
        blocks += new
        file, left = path, left - 1
    return "\n\n".join([*blocks, *map(_inert, closing)]) + "\n"


def _by_file(report: LintReport, run: Run, mask: Mask) -> list[Diagnostic]:
    """Files in the order of their worst finding."""
    files: dict[str, list[Diagnostic]] = {}
    for each in in_order(report):
        place = run.place_of(each, mask)
        files.setdefault(place.path if place else "", []).append(each)
    return [each for group in files.values() for each in group]


def _finding(each: Diagnostic, run: Run, mask: Mask) -> str:
    words, place = told(each, run, mask), run.place_of(each, mask)
    line = f", line {place.line}" if place and place.line else ""
    rows = [f"<li>{label} {_code(text)}</li>" for label, text in words.rows]
    rows.append(f"<li>more {_code(f'precision-plan explain {each.id}')}</li>")
    # No blank line in it: the block is HTML to its end, and nothing in it is read as Markdown.
    return "\n".join(
        [
            "<details>",
            f"<summary><b>{each.severity} {each.id}</b> {each.slug}{line}<br>",
            f"{_code(words.message)}</summary>",
            "<ul>",
            *rows,
            "</ul>",
            "</details>",
        ]
    )


def _heading(path: str) -> str:
    return f"<code>{_inert(printable(path))}</code>" if path else "Command line"


def _code(text: str) -> str:
    return f"<code>{escape(text, quote=False)}</code>"


def _inert(text: str) -> str:
    return _ACTIVE.sub(lambda match: f"&#{ord(match.group())};", text)

"""Annotations of GitHub Actions: a workflow command a finding, then what a log reader wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_plan.render._closing import counts, notes, summary
from precision_plan.render._layout import Style, printable
from precision_plan.render._mask import Mask
from precision_plan.render._run import in_order
from precision_plan.render._told import told

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._run import Run

_COMMANDS = {"error": "error", "warning": "warning", "advice": "notice"}


def lint(report: LintReport, run: Run) -> str:
    """Errors first, since GitHub shows the first ten annotations of each kind for a step."""
    mask = Mask()
    lines = [annotation(found, run, mask) for found in in_order(report)]
    closing = summary(report.diagnostics, counts(report), report.seconds, Style(False))
    return "\n".join([*lines, *notes(report), closing]) + "\n"


def annotation(found: Diagnostic, run: Run, mask: Mask) -> str:
    """``::error file=...,line=...,col=...,title=...::message`` on one line."""
    place = run.place_of(found, mask)
    properties = {"title": f"{found.id} {found.slug}"}
    if place is not None:
        numbers = {"line": place.line, "col": place.column}
        where = {name: str(number) for name, number in numbers.items() if number}
        properties = {"file": printable(place.path), **where, **properties}
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    text = f"{told(found, run, mask).lines}\nmore: precision-plan explain {found.id}"
    return f"::{_COMMANDS[found.severity]} {shown}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

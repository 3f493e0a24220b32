"""Reports of a comparison as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from precision_plan.drift.changes import Change, Gap, Kind, Report

SCHEMA_VERSION = 1

_SHOWN = 4  # names of a gap that are printed without --all
_ORDER: Mapping[Kind, int] = {"vanished": 0, "changed": 1, "appeared": 2}


def as_json(reports: Iterable[Report]) -> str:
    """Every change of every report, and what was not compared."""
    data = {"schema_version": SCHEMA_VERSION, "reports": [_report_data(one) for one in reports]}
    return json.dumps(data, indent=2) + "\n"


def as_text(reports: Iterable[Report], *, every: bool = False) -> str:
    """A page for a person.

    Args:
        every: list changes that do not concern precision, too, instead of counting them.
    """
    pages = [list(_lines(report, every)) for report in reports]
    return "\n\n".join("\n".join(page) for page in pages) + "\n"


def _report_data(report: Report) -> dict[str, Any]:
    return {
        "package": report.package,
        "sources": report.sources,
        "version": report.found,
        "facts_version": report.facts,
        "compared": dict(report.compared),
        "summary": dict(Counter(change.kind for change in report.changes)),
        "changes": [_change_data(change) for change in _sorted(report.changes)],
        "not_compared": [dataclasses.asdict(gap) for gap in report.gaps],
    }


def _change_data(change: Change) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(change).items() if value is not None}


def _sorted(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda one: (not one.precise, _ORDER[one.kind], one.subject))


def _lines(report: Report, every: bool) -> Iterator[str]:
    compared = ", ".join(f"{count} {what}" for what, count in report.compared)
    yield f"{report.package} {report.found or 'of unknown version'}    {report.sources}"
    yield f"  compared with the facts for {report.facts}: {compared}"
    listed = [change for change in _sorted(report.changes) if every or change.precise]
    for change in listed:
        yield from _change_lines(change)
    rest = [change for change in report.changes if change not in listed]
    if rest:
        yield f"  {_counted(rest)} without bearing on precision (--all lists them)"
    if not report.changes:
        yield "  no drift"
    else:
        yield f"  in all {_counted(report.changes)}"
    if report.gaps:
        yield "  not compared"
        yield from (f"    {_gap(gap, every)}" for gap in report.gaps)


def _gap(gap: Gap, every: bool) -> str:
    if not gap.names:
        return gap.what
    shown = gap.names if every else gap.names[:_SHOWN]
    more = len(gap.names) - len(shown)
    return f"{len(gap.names)} {gap.what}: {', '.join(shown)}" + (f", and {more} more" * bool(more))


def _counted(changes: Sequence[Change]) -> str:
    kinds = Counter(change.kind for change in changes)
    return ", ".join(f"{kinds[kind]} {kind}" for kind in _ORDER if kinds[kind])


def _change_lines(change: Change) -> Iterator[str]:
    label = f"{change.subject} {change.name}"
    if change.aspect is not None:
        label += f": {change.aspect}"
    yield f"  {change.kind:<8}  {label:<52}  {change.at or ''}".rstrip()
    indent = " " * 12
    if change.kind == "changed":
        yield f"{indent}facts    {_shown(change.facts)}"
        yield f"{indent}sources  {_shown(change.sources)}{_difference(change)}"
    elif change.sources is not None:
        yield f"{indent}{_shown(change.sources)}"
    if change.fact_source is not None:
        yield f"{indent}row of   {change.fact_source}"
    if change.note is not None:
        yield f"{indent}note     {change.note}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "empty"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    return str(value) if str(value) else '""'


def _difference(change: Change) -> str:
    """What a list gained and lost."""
    if not isinstance(change.facts, list) or not isinstance(change.sources, list):
        return ""
    gained = [f"+{item}" for item in change.sources if item not in change.facts]
    lost = [f"-{item}" for item in change.facts if item not in change.sources]
    return f"    ({' '.join(gained + lost)})"

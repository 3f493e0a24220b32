"""What was imported from a script: as JSON, and what is open as lines for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from precision_plan.plan import SCHEMA_VERSION, Origin
from precision_plan.plan.imported import Imported, Way
from precision_plan.plan.unknown import settled
from precision_plan.render._closing import count
from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask


def as_json(imported: Imported) -> str:
    """The recipe as data, the launch that it is, and what is open."""
    mask = _mask(imported)
    data = {
        "schema_version": SCHEMA_VERSION,
        "script": imported.script,
        "launch": None if imported.way is None else _way(imported.way, mask),
        "others": [_way(way, mask) for way in imported.others],
        "recipe": imported.data,
        "gaps": [
            {
                "field": gap.field,
                "text": mask.text(gap.text),
                **_position(gap.origin),
                "because": gap.because,
            }
            for gap in imported.gaps
        ],
        "leftovers": [
            {
                "kind": each.kind,
                "text": mask.text(each.text),
                **_position(each.origin),
                "because": each.because,
            }
            for each in imported.leftovers
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def _way(way: Way, mask: Mask) -> dict[str, Any]:
    return {
        "launch": way.launch,
        **_position(way.origin),
        "branches": [mask.text(branch) for branch in way.branches],
    }


def _position(origin: Origin) -> dict[str, Any]:
    return {"file": origin.file, "line": origin.line, "column": origin.column}


def report(imported: Imported, width: int = 80) -> str:
    """What the recipe does not hold, one line for each: leftovers, gaps, other launches."""
    mask = _mask(imported)
    rows = [(str(gap.origin), "not known", f"{gap.field} {gap.text}") for gap in imported.gaps]
    rows += [(str(each.origin), each.kind, each.text) for each in imported.leftovers]
    lines = [*_table(rows, mask, width), *ways(imported)]
    gaps, left = len(imported.gaps), len(imported.leftovers)
    lines.append(
        f"{count(gaps, 'field')} not known or not written, {count(left, 'place')} left over"
    )
    return "".join(f"{line}\n" for line in lines)


def _table(rows: list[tuple[str, str, str]], mask: Mask, width: int) -> Iterator[str]:
    places = max((len(place) for place, _, _ in rows), default=0)
    kinds = max((len(kind) for _, kind, _ in rows), default=0)
    room = max(width - places - kinds - 4, 20)
    for place, kind, text in rows:
        shown = printable(mask.text(" ".join(text.split())))
        shown = shown if len(shown) <= room else f"{shown[: room - 3]}..."
        yield f"{printable(place):<{places}}  {kind:<{kinds}}  {shown}".rstrip()


def ways(imported: Imported) -> list[str]:
    """The launches that were not taken."""
    mask, lines = _mask(imported), []
    for way in imported.others:
        where = f", where {'; '.join(way.branches)}" if way.branches else ""
        shown = printable(mask.text(where))
        lines.append(f"also launch {way.launch} at {printable(str(way.origin))}{shown}")
    return lines


def _mask(imported: Imported) -> Mask:
    return Mask() if imported.plan is None else Mask.of(settled(imported.plan))

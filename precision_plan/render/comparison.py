"""Two plans beside each other as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from precision_plan.plan.comparison import TARGETS
from precision_plan.plan.origin import UNKNOWN
from precision_plan.render._findings import finding, setting
from precision_plan.render._layout import Style, hanging, printable
from precision_plan.render.json import diagnostic

if TYPE_CHECKING:
    from precision_plan.plan.comparison import Change, Comparison, Told
    from precision_plan.plan.mask import Mask
    from precision_plan.plan.origin import Origin
    from precision_plan.plan.snapshot import Accepted, Snapshot

DIFF_FORMATS = ("text", "json", "markdown")
SCHEMA_VERSION = 1

_LONGEST = 240  # of a value in text; JSON has all of it
_BOTH_HIDDEN = "*** (another one, hidden)"


def render_diff(found: Comparison, format: str, *, width: int = 80, color: bool = False) -> str:
    """Render in one of :data:`DIFF_FORMATS`; ends with a newline.

    Raises:
        ValueError: if there is no such format.
    """
    if format == "text":
        return _text(found, width, Style(color))
    if format == "markdown":
        return _markdown(found)
    if format == "json":
        return json.dumps(_data(found), indent=2) + "\n"
    raise ValueError(f"there is no format {format!r}; known: {', '.join(DIFF_FORMATS)}")


# Values ---------------------------------------------------------------------------------------
def _values(change: Change, found: Comparison) -> tuple[Any, Any]:
    """Both values as they may be shown; two secrets that differ are told apart in words."""
    old = None if change.before is None else found.a.mask.named(change.key, change.before.value)
    new = None if change.after is None else found.b.mask.named(change.key, change.after.value)
    if change.before is not None and change.after is not None and old == new:
        new = _BOTH_HIDDEN
    return old, new


def _spelt(change: Change, value: Any) -> str:
    """A value as a reader expects it: a flag with its name, a variable with ``=``."""
    shown = printable(setting(value))
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST - 3]}..."
    if change.target == "Megatron":
        name = printable(change.name)
        return name if value is True else f"{name} {shown}"
    if change.target == "Environment":
        return f"{change.name}={shown}"
    return shown


def _counted(found: Comparison) -> str:
    fields, effects = len(found.plan), len(found.effects)
    if not found.differs and not found.effects_known:
        return "no field differs; effects are not known"
    if not found.differs:
        return "no field and no effect differs"
    one = "field" if fields == 1 else "fields"
    if not found.effects_known:
        return f"{fields} {one} differ{'s' if fields == 1 else ''}; effects are not known"
    return f"{fields} {one} and {effects} effect{'' if effects == 1 else 's'} differ"


def _groups(found: Comparison) -> Iterable[tuple[str, Sequence[Change]]]:
    """Effects by program, in the order in which they are shown."""
    for target in TARGETS:
        changes = [change for change in found.effects if change.target == target]
        if changes:
            yield target, changes


# Text -----------------------------------------------------------------------------------------
def _text(found: Comparison, width: int, style: Style) -> str:
    blocks = [[*_side("a", found.a, width, style), *_side("b", found.b, width, style)]]
    if found.broken:
        for side in (found.a, found.b):
            blocks += [finding(each, side.mask, width, style) for each in side.diagnostics
                       if side.broken]  # fmt: skip
        return _joined(blocks)
    if found.plan:
        lines = [style("title", "Plan")]
        for change in found.plan:
            lines.append(f"  {printable(change.name)}")
            lines += _lines(change, found, width, style, 4)
        blocks.append(lines)
    for target, changes in _groups(found):
        lines = [style("title", f"Effects: {target}")]
        for change in changes:
            if change.target not in ("Megatron", "Environment"):
                lines.append(f"  {printable(change.name)}")
            if change.roles:
                lines += hanging("  in", ", ".join(change.roles), width, indent=5)
            lines += _lines(change, found, width, style, 4)
        blocks.append(lines)
    blocks += _rest(found, width, style)
    blocks.append([_counted(found)])
    return _joined(blocks)


def _joined(blocks: Iterable[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _side(label: str, side: Snapshot, width: int, style: Style) -> list[str]:
    name = printable(side.mask.text(side.name))
    print_ = f"  {side.fingerprint[:16]}" if side.fingerprint else ""
    lines = hanging(label, f"{name}{print_}", width, indent=3, painted=style("title", label))
    if side.unknown:
        text = f"not known before the run: {', '.join(side.unknown)}"
        lines += hanging("", printable(text), width, indent=3)
    return lines


def _lines(change: Change, found: Comparison, width: int, style: Style, indent: int) -> list[str]:
    lines: list[str] = []
    values = _values(change, found)
    sides = (("-", "error", change.before, values[0], found.a.mask),
             ("+", "good", change.after, values[1], found.b.mask))  # fmt: skip
    for sign, kind, told, value, mask in sides:
        label = " " * indent + sign
        text = "not set" if told is None else _spelt(change, value) + _where(told, mask)
        lines += hanging(label, text, width, indent=indent + 2,
                         painted=" " * indent + style(kind, sign))  # fmt: skip
    return lines


def _where(told: Told, mask: Mask) -> str:
    """Who set a value, or why an effect is there if no field of the same name asked for it."""
    if told.origin is not None and told.origin != UNKNOWN:
        layer = told.origin.layer
        place = printable(mask.text(str(told.origin)))
        return f"    {printable(layer)}  {place}" if layer else f"    {place}"
    if told.reason is not None and told.reason.field is None:
        return f"    {printable(mask.text(told.reason.text))}"
    return ""


def _rest(found: Comparison, width: int, style: Style) -> list[list[str]]:
    blocks = []
    if found.about:
        lines = [style("title", "Without effect")]
        for change in found.about:
            lines.append(f"  {printable(change.name)}")
            lines += _lines(change, found, width, style, 4)
        blocks.append(lines)
    for label, findings in (("a", found.only_a), ("b", found.only_b)):
        if findings:
            blocks.append([style("title", f"Findings of {label} alone"),
                           *(f"  {_finding(each)}" for each in findings)])  # fmt: skip
    return blocks


def _finding(each: Accepted) -> str:
    return printable(f"{each.severity}[{each.id}]" + (f" {each.field}" if each.field else ""))


# Markdown -------------------------------------------------------------------------------------
def _markdown(found: Comparison) -> str:
    a, b = (_cell(side.mask.text(side.name)) for side in (found.a, found.b))
    lines = [f"### {a} → {b}", ""]
    if found.broken:
        for side in (found.a, found.b):
            lines += [f"- **{each.id}** {_escaped(side.mask.text(each.message))}"
                      for each in side.diagnostics if side.broken]  # fmt: skip
        return "\n".join(lines) + "\n"
    lines += [f"{_counted(found)[0].upper()}{_counted(found)[1:]}.", ""]
    if found.plan:
        lines += _table("Plan", "field", found.plan, found)
    for target, changes in _groups(found):
        lines += _table(f"Effects: {target}", "setting", changes, found)
    if found.about:
        lines += _table("Without effect", "field", found.about, found)
    for label, findings in ((a, found.only_a), (b, found.only_b)):
        if findings:
            lines += [f"Findings of {label} alone: {', '.join(map(_finding, findings))}", ""]
    return "\n".join(lines)


def _table(title: str, head: str, changes: Sequence[Change], found: Comparison) -> list[str]:
    lines = [f"**{title}**", "", f"| {head} | before | after |", "|---|---|---|"]
    for change in changes:
        roles = f" ({', '.join(change.roles)})" if change.roles else ""
        cells = [_cell(change.name) + roles]
        sides = zip((change.before, change.after), _values(change, found),
                    (found.a.mask, found.b.mask), strict=True)  # fmt: skip
        for told, value, mask in sides:
            if told is None:
                cells.append("not set")
                continue
            place = _place(told.origin, mask)
            cells.append(_cell(setting(value)[:_LONGEST]) + (f"<br>{place}" if place else ""))
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _place(origin: Origin | None, mask: Mask) -> str:
    if origin is None or origin == UNKNOWN:
        return ""
    return _escaped(mask.text(str(origin)))


def _cell(text: str) -> str:
    """Text as code in a table: no mark in it is read as Markdown."""
    safe = printable(text).replace("|", "\\|")
    fence = "``" if "`" in safe else "`"
    space = " " if "`" in safe else ""
    return f"{fence}{space}{safe}{space}{fence}"


def _escaped(text: str) -> str:
    safe = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{char}" if char in "\\`*_[]|#" else char for char in safe)


# JSON -----------------------------------------------------------------------------------------
def _data(found: Comparison) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _side_data(found.a),
        "b": _side_data(found.b),
        "differs": None if found.broken else found.differs,
        "effects_known": found.effects_known,
        "plan": [_setting_data(change, found) for change in found.plan],
        "effects": [_effect_data(change, found) for change in found.effects],
        "about": [_setting_data(change, found) for change in found.about],
        "findings": {
            "only_a": [_finding_data(each) for each in found.only_a],
            "only_b": [_finding_data(each) for each in found.only_b],
        },
    }


def _side_data(side: Snapshot) -> dict[str, Any]:
    return {
        "name": side.mask.text(side.name),
        "kind": side.kind,
        "fingerprint": side.fingerprint or None,
        "unknown": list(side.unknown),
        "versions": {package: dict(row) for package, row in side.versions.items()},
        "diagnostics": [diagnostic(each, side.mask) for each in side.diagnostics],
    }


def _setting_data(change: Change, found: Comparison) -> dict[str, Any]:
    old, new = _values(change, found)
    return {
        "field": change.name,
        "before": _told_data(change.before, old, found.a.mask),
        "after": _told_data(change.after, new, found.b.mask),
    }


def _told_data(told: Told | None, value: Any, mask: Mask) -> dict[str, Any] | None:
    if told is None:
        return None
    origin = UNKNOWN if told.origin is None else told.origin
    return {
        "value": value,
        "layer": mask.text(origin.layer) or None,
        "file": None if origin == UNKNOWN else mask.text(origin.file),
        "line": origin.line or None,
        "column": origin.column or None,
    }


def _effect_data(change: Change, found: Comparison) -> dict[str, Any]:
    old, new = _values(change, found)
    return {
        "target": change.target,
        "name": change.name,
        "roles": list(change.roles),
        "before": _reason_data(change.before, old, found.a.mask),
        "after": _reason_data(change.after, new, found.b.mask),
    }


def _reason_data(told: Told | None, value: Any, mask: Mask) -> dict[str, Any] | None:
    if told is None:
        return None
    reason = told.reason
    return {
        "value": value,
        "reason": None if reason is None else mask.text(reason.text),
        "field": None if reason is None else reason.field,
        "source": None if reason is None else reason.fact,
    }


def _finding_data(each: Accepted) -> dict[str, Any]:
    return {"id": each.id, "severity": each.severity, "field": each.field}

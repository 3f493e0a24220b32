"""One finding as a block of lines: what and where, the message, because, the ways out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from precision_plan.plan.origin import UNKNOWN
from precision_plan.render._layout import Style, columns_of, hanging, printable, wrap
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Because, Diagnostic, Origin

_WHERE = 38  # the column in which positions stand when the slug leaves room
_INDENT = 11  # "  because  "


def finding(found: Diagnostic, mask: Mask, width: int, style: Style) -> list[str]:
    """The lines of one finding, at most ``width`` columns each (a position is never cut)."""
    lines = _headline(found, mask, width, style)
    lines += ["  " + line for line in wrap(_safe(mask, found.message), width - 2)]
    label = "because"
    for premise in found.because:
        lines += _row(label, _premise(premise, mask), width, style)
        label = ""
    if found.resolved:
        taken = ", ".join(f"{name} = {setting(value)}" for name, value in found.resolved.items())
        lines += _row("taken", _safe(mask, taken), width, style)
    lines += _fixes(found, mask, width, style)
    return [*lines, *_row("more", f"precision-plan explain {found.id}", width, style)]


def setting(value: Any) -> str:
    """A value as a command line or a JSON file would spell it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value).replace("e-0", "e-")
    if isinstance(value, (list, tuple)) and not any(isinstance(each, Mapping) for each in value):
        return " ".join(map(setting, value))
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _headline(found: Diagnostic, mask: Mask, width: int, style: Style) -> list[str]:
    head = f"{found.severity}[{found.id}]"
    plain = f"{head} {found.slug}"
    painted = f"{style(found.severity, head)} {style('title', found.slug)}"
    where = _position(found.origin, mask)
    if not where:
        return [painted]
    gap = max(_WHERE - len(plain), 2)
    if len(plain) + gap + columns_of(where) > width:
        gap = width - len(plain) - columns_of(where)
    if gap < 2:
        return [painted, f"  {where}"]
    return [painted + " " * gap + where]


def _premise(premise: Because, mask: Mask) -> str:
    text, where = _safe(mask, premise.text), _position(premise.origin, mask)
    return f"{text}    {where}" if where else text


def _fixes(found: Diagnostic, mask: Mask, width: int, style: Style) -> list[str]:
    texts = [_safe(mask, fix.text) for fix in found.fix]
    if not texts:
        return []
    together = "    or    ".join(texts)
    if _INDENT + columns_of(together) <= width:
        return _row("fix", together, width, style)
    lines = _row("fix", texts[0], width, style)
    for text in texts[1:]:
        lines += _row("or", text, width, style)
    return lines


def _row(label: str, text: str, width: int, style: Style) -> list[str]:
    plain = f"  {label}"
    return hanging(plain, text, width, indent=_INDENT, painted=style("dim", plain))


def _position(origin: Origin, mask: Mask) -> str:
    return "" if origin == UNKNOWN else _safe(mask, str(origin))


def _safe(mask: Mask, text: str) -> str:
    return printable(mask.text(text))

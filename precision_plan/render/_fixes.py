"""What was fixed, and what could not be: the lines at the end of a lint report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from precision_plan.render import diff
from precision_plan.render._layout import Style, hanging, printable
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic, Fix
    from precision_plan.plan.fixes import Fixes

_INDENT = 9  # "  fixed  "


def fix_lines(fixes: Fixes, width: int, style: Style) -> list[str]:
    """One entry for each finding that is gone, and for each whose fix could not be applied.

    Fixes of scripts stand in the diff below.
    """
    mask = Mask()
    lines: list[str] = []
    for each in fixes.fixed:
        lines += _entry("fixed", each.diagnostic, _done(each.fix, mask), mask, width, style)
    for each in fixes.proposals:
        lines += _entry("diff", each.diagnostic, _done(each.fix, mask), mask, width, style)
    return [*lines, *left_lines(fixes, width, style)]


def left_lines(fixes: Fixes, width: int, style: Style) -> list[str]:
    """One entry for each finding whose safe fix could not be applied, with the reason."""
    mask = Mask()
    lines: list[str] = []
    for each in fixes.unfixed:
        text = f"{_done(each.fix, mask)}: not applied, {printable(mask.text(each.why))}"
        lines += _entry("left", each.diagnostic, text, mask, width, style)
    return lines


def fix_summary(fixes: Fixes, remaining: int) -> str:
    """``fixed 3 findings in 2 files; 1 remains``, or what would be fixed if it were no dry run."""
    if not fixes.written:
        findings = _count(len(fixes.fixed) + len(fixes.proposals), "finding")
        return f"would fix {findings} in {_count(len(fixes.changes) + len(fixes.proposed), 'file')}"
    findings = _count(len(fixes.fixed), "finding")
    told = [
        f"fixed {findings} in {_count(len(fixes.changes), 'file')}",
        f"{remaining} {'remains' if remaining == 1 else 'remain'}",
    ]
    if fixes.proposals:
        findings = _count(len(fixes.proposals), "finding")
        told.append(
            f"the diff would fix {findings} in {_count(len(fixes.proposed), 'script')}, "
            "which is not written"
        )
    return "; ".join(told)


def fix_diff(fixes: Fixes) -> str:
    """What is not written as one unified diff, secrets hidden: a hunk with one does not apply."""
    shown = fixes.proposed if fixes.written else (*fixes.changes, *fixes.proposed)
    texts = (diff.unified(change.name, change.before, change.after) for change in shown)
    return "".join(map(diff.without_secrets, texts))


def fix_data(fixes: Fixes) -> dict[str, Any]:
    """What was fixed and what was not, as JSON data; ``diff`` has what is not written."""
    mask = Mask()
    return {
        "fixed": [_data(each.diagnostic, each.fix, mask) for each in fixes.fixed],
        "not_fixed": [
            {**_data(each.diagnostic, each.fix, mask), "why": mask.text(each.why)}
            for each in fixes.unfixed
        ],
        "proposed": [_data(each.diagnostic, each.fix, mask) for each in fixes.proposals],
        "changed_files": [mask.text(change.name) for change in fixes.changes],
        "diff": fix_diff(fixes),
    }


def _entry(
    label: str, found: Diagnostic, text: str, mask: Mask, width: int, style: Style
) -> list[str]:
    where = printable(mask.text(str(found.origin)))
    painted = style("dim" if label == "left" else "good", f"  {label}")
    return hanging(f"  {label}", f"{found.id} {where}  {text}", width,
                   indent=_INDENT, painted=painted)  # fmt: skip


def _done(fix: Fix, mask: Mask) -> str:
    if not fix.edits:
        return printable(mask.text(fix.text))
    gone = [name for name, value in fix.edits.items() if value is None]
    parts = [f"{name}: {_shown(name, value, mask)}" for name, value in fix.edits.items()
             if value is not None]  # fmt: skip
    if gone:
        parts.append(f"{'instead of' if parts else 'remove'} {', '.join(gone)}")
    return printable(mask.text(" ".join(parts) if gone and len(parts) > 1 else ", ".join(parts)))


def _shown(name: str, value: Any, mask: Mask) -> str:
    value = mask.named(name.rpartition(".")[2], value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _data(found: Diagnostic, fix: Fix, mask: Mask) -> dict[str, Any]:
    return {
        "id": found.id,
        "slug": found.slug,
        "file": mask.text(found.origin.file),
        "line": found.origin.line or None,
        "column": found.origin.column or None,
        "field": found.field,
        "edits": mask.data(fix.edits),
        "text": _done(fix, mask),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

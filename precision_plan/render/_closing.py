"""What stands at the end: what was not checked, what a baseline hides, how much was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from precision_plan.plan.diagnostic import SEVERITIES
from precision_plan.render._layout import Style, printable
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic
    from precision_plan.plan.compiled import LintReport


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def unchecked(rules: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence about the rules that could not speak; nothing if all of them could."""
    if not rules:
        return []
    needs = {need for missing in rules.values() for need in missing}
    told = []
    for fields, why in (
        (sorted(_field(need) for need in needs if "." not in need), "not declared"),
        (sorted(need for need in needs if "." in need), "not known before the launch"),
    ):
        if fields:
            shown = fields[:_MOST_FIELDS]
            if len(fields) > len(shown):
                shown.append(f"{len(fields) - len(shown)} more")
            told.append(f"{', '.join(shown)} {'is' if len(fields) == 1 else 'are'} {why}")
    return [f"{count(len(rules), 'rule')} not checked: {'; '.join(told)}"]


_MOST_FIELDS = 12


def _field(need: str) -> str:
    return {"gpu": "hardware.gpu", "env": "env"}.get(need, f"software.{need}")


def notes(report: LintReport) -> list[str]:
    """Sentences about what the findings do not show."""
    told = unchecked(report.unchecked)
    if report.fixes is not None:
        from precision_plan.render._fixes import fix_summary

        told.insert(0, fix_summary(report.fixes, len(report.diagnostics)))
    if report.leftovers:
        left = count(len(report.leftovers), "place")
        told.append(f"{left} in scripts not understood: precision-plan import SCRIPT lists them")
    baseline = report.baseline
    if baseline is None:
        return told
    name = printable(Mask().text(baseline.file))
    if baseline.recorded is not None:
        told.append(f"{count(baseline.recorded, 'finding')} recorded in the baseline {name}")
        return told
    if baseline.hidden:
        told.append(f"{count(len(baseline.hidden), 'finding')} hidden by the baseline {name}")
    if baseline.gone:
        entries = count(baseline.gone, "entry", "entries")
        verb = "is" if baseline.gone == 1 else "are"
        told.append(
            f"{entries} of the baseline {name} {verb} no longer found: "
            "run again with --update-baseline to drop what is gone"
        )
    return told


def summary(
    diagnostics: Sequence[Diagnostic], counts: Sequence[str], seconds: float, style: Style
) -> str:
    """The closing line."""
    return ", ".join([*found(diagnostics, style), *counts, f"{seconds:.2f} s"])


def found(diagnostics: Sequence[Diagnostic], style: Style) -> list[str]:
    """How many errors and warnings, and advice if there is any."""
    number = {
        severity: sum(1 for diagnostic in diagnostics if diagnostic.severity == severity)
        for severity in SEVERITIES
    }
    words = [
        style("error" if number["error"] else "good", count(number["error"], "error")),
        style("warning", count(number["warning"], "warning"))
        if number["warning"]
        else count(0, "warning"),
    ]
    if number["advice"]:
        words.append(style("advice", f"{number['advice']} advice"))
    return words


def counts(report: LintReport) -> list[str]:
    """How many rules and files, and how many files were left out."""
    words = [count(report.rules_checked, "rule"), count(len(report.files), "file")]
    if report.skipped:
        words.append(f"{len(report.skipped)} skipped")
    return words

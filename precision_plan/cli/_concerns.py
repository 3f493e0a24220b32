"""Which rules speak of which setting: read off each rule's own example, by running it.

A page's ``Bad`` example is known to be caught (a test runs it), and the finding names the fields
that it is about. That is what a flag needs or excludes, without a second list to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from precision_plan.cli._pages import rule_page
from precision_plan.compose.document import parse_document
from precision_plan.plan import PrecisionPlan
from precision_plan.rules.base import Context, Finding, Rule
from precision_plan.rules.registry import rules

_LABELS = {"error": "refused", "warning": "warned about", "advice": "advised on"}


def rule_rows(names: Collection[str]) -> list[tuple[str, str]]:
    """``(label, "PP126 summary")`` for every rule whose example turns on one of ``names``.

    ``names`` are plan fields and environment variables; errors come first.
    """
    rows = {label: [] for label in _LABELS.values()}  # type: dict[str, list[str]]
    for rule in rules().values():
        if any(_named(field, names) for field in fields_of(rule)):
            rows[_LABELS[rule.severity]].append(f"{rule.id} {rule.summary}")
    return [(label, text) for label, texts in rows.items() for text in texts]


def fields_of(rule: Rule) -> set[str]:
    """The plan fields that the finding of the rule's ``Bad`` example names.

    None for a rule whose example is a checkpoint folder: it speaks of files.
    """
    example = rule_page(rule).sections.get("Bad", "")
    settings = dict(parse_document(example, Path("example.yaml"), rule.id).data)
    settings.pop("files", None)
    found = rule.check(Context(PrecisionPlan.model_validate(settings)))
    findings = (found,) if isinstance(found, Finding) else found or ()
    return {field for finding in findings for field in _fields(finding)}


def _fields(finding: Finding) -> Iterator[str]:
    if finding.field:
        yield finding.field
    yield from (premise.field for premise in finding.because if premise.field)


def _named(field: str, names: Collection[str]) -> bool:
    return field in names or field.rpartition(".")[2] in names

"""A test report: one test case a file, failed if the run fails because of it.

Jenkins shows the first ``failure`` of a test case and drops the others, so that a file has one,
with all its findings. What does not make the run fail is told in ``system-out``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from precision_plan.plan.codes import is_broken_input
from precision_plan.render._closing import count, notes
from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask
from precision_plan.render._run import in_order
from precision_plan.render._told import told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree.ElementTree import Element

    from precision_plan.plan import Diagnostic
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._run import Run

_SUITE = "precision-plan"
_NOWHERE = "command line"


def lint(report: LintReport, run: Run) -> str:
    """The whole report; every linted file is there, clean ones as passed."""
    mask = Mask()
    cases: dict[str, list[Diagnostic]] = {}
    for file in report.files:
        cases[mask.text(run.path(file))] = []
    for found in in_order(report):
        place = run.place_of(found, mask)
        cases.setdefault(place.path if place else _NOWHERE, []).append(found)
    suite = ElementTree.Element("testsuite", name=_SUITE)
    for path, findings in cases.items():
        suite.append(_case(path, findings, run, mask))
    told_at_end = notes(report)
    if told_at_end:
        _text(ElementTree.SubElement(suite, "system-out"), "\n".join(told_at_end))
    totals = {
        "tests": str(len(cases)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
    }
    suite.attrib.update({**totals, "skipped": "0", "time": f"{report.seconds:.2f}"})
    root = ElementTree.Element("testsuites", {"name": _SUITE, **totals})
    root.append(suite)
    ElementTree.indent(root)
    # ASCII only, like the JSON formats: other characters are written as references.
    body = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(path: str, findings: Sequence[Diagnostic], run: Run, mask: Mask) -> Element:
    case = ElementTree.Element("testcase", classname=_SUITE, name=_legal(printable(path)))
    failing = [found for found in findings if run.fails(found)]
    others = [found for found in findings if not run.fails(found)]
    if failing:
        kind = "error" if any(map(is_broken_input, failing)) else "failure"
        first = failing[0]
        message = f"{first.id} {first.slug}: {told(first, run, mask).message}"
        if len(failing) > 1:
            message += f" (and {count(len(failing) - 1, 'more finding')})"
        failure = ElementTree.SubElement(case, kind, type=first.id, message=_legal(message))
        _text(failure, "\n\n".join(_block(found, run, mask) for found in failing))
    if others:
        output = ElementTree.SubElement(case, "system-out")
        _text(output, "\n\n".join(_block(found, run, mask) for found in others))
    return case


def _block(found: Diagnostic, run: Run, mask: Mask) -> str:
    place = run.place(found.origin, mask)
    head = f"{found.severity}[{found.id}] {found.slug}" + (f"  {place}" if place else "")
    words = told(found, run, mask)
    rows = [words.message, *(f"{label:<7}  {text}" for label, text in words.rows)]
    rows.append(f"more     precision-plan explain {found.id}")
    return "\n".join([head, *(f"  {row}" for row in rows)])


def _text(element: Element, text: str) -> None:
    element.text = _legal(text)


def _legal(text: str) -> str:
    """Without the two characters that are printable and that XML cannot hold."""
    return text.replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")

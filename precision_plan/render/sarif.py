"""SARIF 2.1.0, which code scanning services and editors read.

Files are named below ``%SRCROOT%``, the repository; one that lies elsewhere by its own address.
Two findings are the same for a reader that follows them over time if rule, file, field and
message are: lines move. What a baseline hides is left out: code scanning takes a suppressed result
for an open one (github/codeql-action#1230).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from precision_plan._version import __version__
from precision_plan.render._closing import notes
from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask
from precision_plan.render._pages import page_text
from precision_plan.render._run import Place, in_order
from precision_plan.render._told import key_of, told
from precision_plan.render.markdown import address, rule_page

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._pages import Page
    from precision_plan.render._run import Run

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LONGEST = 1024
"""Characters of a description that GitHub shows."""

_ROOT = "%SRCROOT%"
_LEVELS = {"error": "error", "warning": "warning", "advice": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "advice": "recommendation"}


def lint(report: LintReport, run: Run) -> str:
    """One log with one run; its rules are those that found something."""
    mask = Mask()
    found = in_order(report)
    ids = sorted({each.id for each in found})
    index = {id: number for number, id in enumerate(ids)}
    results = [_result(each, index[each.id], run, mask) for each in found]
    _add_fingerprints(results, found, run, mask)
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver(ids, found, run)},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {
                    _ROOT: {"description": {"text": "The root of the repository."}}
                },
                "invocations": [_invocation(report, run)],
                "artifacts": [
                    {"location": _artifact(path), "roles": ["analysisTarget"]}
                    for path in dict.fromkeys(mask.text(run.path(file)) for file in report.files)
                ],
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _driver(ids: Sequence[str], found: Sequence[Diagnostic], run: Run) -> dict[str, Any]:
    by_id = {each.id: each for each in found}
    return {
        "name": "precision-plan",
        "semanticVersion": __version__,
        "rules": [_rule(by_id[id], run.pages.get(id)) for id in ids],
    }


def _rule(found: Diagnostic, page: Page | None) -> dict[str, Any]:
    # The profile may have raised a finding's severity; the page has the rule's own.
    severity = page.severity if page else found.severity
    rule: dict[str, Any] = {
        "id": found.id,
        "name": found.slug,
        "defaultConfiguration": {"level": _LEVELS[severity]},
        "properties": {
            "precision": "high",
            "problem.severity": _PROBLEMS[severity],
            "tags": ["precision", found.stage],
        },
    }
    if page is None:
        return rule
    summary = page.summary.replace("``", "`")
    rule["shortDescription"] = {"text": f"{summary}."}
    why = page.sections.get("Why", "").replace("``", "`")
    rule["fullDescription"] = {"text": shorten(f"{summary}. {why}", _LONGEST, placeholder=" ...")}
    rule["help"] = {"text": page_text(page), "markdown": rule_page(page)}
    rule["properties"]["source"] = list(page.source)
    link = next(filter(None, map(address, page.source)), "")
    if link:
        rule["helpUri"] = link
    return rule


def _result(found: Diagnostic, index: int, run: Run, mask: Mask) -> dict[str, Any]:
    words, place = told(found, run, mask), run.place_of(found, mask)
    result: dict[str, Any] = {
        "ruleId": found.id,
        "ruleIndex": index,
        "level": _LEVELS[found.severity],
        "message": {"text": words.lines},
    }
    location: dict[str, Any] = {}
    if place is not None:
        location["physicalLocation"] = _physical(place)
    if found.field:
        location["logicalLocations"] = [{"fullyQualifiedName": mask.text(found.field)}]
    if location:
        result["locations"] = [location]
    related: list[dict[str, Any]] = []
    for premise in found.because:
        where = run.place(premise.origin, mask)
        if where is not None:
            text = printable(mask.text(premise.text))
            related.append(
                {
                    "id": len(related) + 1,
                    "physicalLocation": _physical(where),
                    "message": {"text": text},
                }
            )
    if related:
        result["relatedLocations"] = related
    result["properties"] = {
        "stage": found.stage,
        "source": list(found.source),
        "fix": list(words.fixes),
    }
    return result


def _physical(place: Place) -> dict[str, Any]:
    region = {"startLine": max(place.line, 1)}  # GitHub takes no location without a line
    if place.column:
        region["startColumn"] = place.column
    return {"artifactLocation": _artifact(place.path), "region": region}


def _artifact(path: str) -> dict[str, str]:
    try:
        name = path.encode("utf-8", "surrogateescape")  # the bytes of a name that is no UTF-8
    except UnicodeEncodeError:
        name = path.encode("utf-8", "surrogatepass")
    if path.startswith("/"):
        return {"uri": f"file://{quote(name)}"}
    if path[1:3] == ":/":  # Windows
        return {"uri": f"file:///{quote(name)}"}
    return {"uri": quote(name), "uriBaseId": _ROOT}


def _add_fingerprints(
    results: Sequence[dict[str, Any]], found: Sequence[Diagnostic], run: Run, mask: Mask
) -> None:
    from hashlib import sha256

    seen: dict[tuple[str, ...], int] = {}
    for result, each in zip(results, found, strict=True):
        key = tuple(key_of(each, run, mask))
        seen[key] = seen.get(key, 0) + 1
        data = json.dumps([*key, seen[key]]).encode()
        result["partialFingerprints"] = {"ruleFileFieldMessage/v1": sha256(data).hexdigest()[:32]}


def _invocation(report: LintReport, run: Run) -> Mapping[str, Any]:
    code = run.exit_code(report)
    return {
        "executionSuccessful": code != 2,
        "exitCode": code,
        "toolExecutionNotifications": [
            {"level": "note", "message": {"text": text}} for text in notes(report)
        ],
    }

"""SARIF against the official schema, and what readers do with it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest
from hypothesis import given

from precision_plan import __version__
from precision_plan.cli._pages import pages
from precision_plan.plan import Origin
from precision_plan.plan.compiled import LintReport
from precision_plan.render import render_lint
from precision_plan.render._mask import Mask
from precision_plan.render._run import Run, in_order
from precision_plan.render._told import told
from tests.render.ci_samples import (
    BROKEN,
    CLEAN,
    NOWHERE,
    OF_ARGUMENT,
    REPORT,
    REPORTS,
    RUN,
    WITH_BASELINE,
)
from tests.render.samples import ADVICE, ERROR, RECIPE

HERE = Path(__file__).parent
FINGERPRINT = "ruleFileFieldMessage/v1"


@cache
def validator() -> jsonschema.Draft4Validator:
    text = (HERE / "schemas" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8")
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    return jsonschema.Draft4Validator(json.loads(text), format_checker=checker)


def run_of(report: LintReport, run: Run = RUN) -> dict[str, Any]:
    log = json.loads(render_lint(report, "sarif", run=run))
    assert list(validator().iter_errors(log)) == []
    (found,) = log["runs"]
    return dict(found)


def test_the_schema_refuses_what_is_no_sarif() -> None:
    log = json.loads(render_lint(REPORT, "sarif", run=RUN))
    log["runs"][0]["results"][0]["level"] = "advice"
    assert [error.validator for error in validator().iter_errors(log)] == ["enum"]


def test_what_is_written(committed) -> None:
    text = render_lint(replace(REPORT, diagnostics=(ERROR,)), "sarif", run=RUN)
    committed(HERE / "snapshots" / "lint.sarif", text.replace(__version__, "VERSION"))


@pytest.mark.parametrize("report", [REPORT, CLEAN, WITH_BASELINE], ids=["mixed", "clean", "base"])
@pytest.mark.parametrize("run", [RUN, Run()], ids=["with pages", "bare"])
def test_it_is_valid(report: LintReport, run: Run) -> None:
    assert run_of(report, run)["tool"]["driver"]["semanticVersion"] == __version__


def test_every_rule_is_a_valid_descriptor() -> None:
    known = {page.id: page for page in pages()}
    found = tuple(replace(ERROR, id=id, slug=page.slug) for id, page in known.items())
    rules = run_of(replace(REPORT, diagnostics=found), Run(pages=known))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(known)
    for rule in rules:
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["markdown"].startswith(f"# {rule['id']} {rule['name']}\n")
        assert rule.get("helpUri", "https://").startswith("https://")
    assert sum("helpUri" in rule for rule in rules) > len(rules) / 2


def test_levels_and_order() -> None:
    found = run_of(REPORT)
    assert [each["level"] for each in found["results"]] == ["error", "error", "warning", "note"]
    rules = found["tool"]["driver"]["rules"]
    for each in found["results"]:
        assert rules[each["ruleIndex"]]["id"] == each["ruleId"]


def test_a_rule_has_its_own_level_whatever_the_profile_made_of_it() -> None:
    raised = replace(ERROR, severity="warning")
    found = run_of(replace(REPORT, diagnostics=(raised,)))
    assert found["results"][0]["level"] == "warning"
    assert found["tool"]["driver"]["rules"][0]["defaultConfiguration"] == {"level": "error"}
    assert found["tool"]["driver"]["rules"][0]["helpUri"] == (
        "https://github.com/NVIDIA/TransformerEngine/issues/1939"
    )


def test_places() -> None:
    (result,) = run_of(replace(REPORT, diagnostics=(ERROR,)))["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": RECIPE, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 14, "startColumn": 3},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "training.fp8_recipe"}]
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "conf/hardware/h200.yaml"
    assert related["message"] == {"text": "hardware.gpu = h200"}


def test_places_that_are_no_position() -> None:
    (result,) = run_of(replace(REPORT, diagnostics=(OF_ARGUMENT,)))["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "m/config.json"
    assert "set by: --target tensor_parallel_size=4" in result["message"]["text"]
    (result,) = run_of(replace(REPORT, diagnostics=(NOWHERE,)))["results"]
    assert "locations" not in result


def test_a_file_elsewhere_has_its_own_address() -> None:
    outside = replace(ERROR, origin=Origin("/etc/a b.yaml", 1))
    (result,) = run_of(replace(REPORT, diagnostics=(outside,)))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///etc/a%20b.yaml"}


def fingerprints(*found: Any) -> list[str]:
    results = run_of(replace(REPORT, diagnostics=found))["results"]
    return [each["partialFingerprints"][FINGERPRINT] for each in results]


def test_a_fingerprint_survives_moved_lines_only() -> None:
    (before,) = fingerprints(ERROR)
    moved = replace(ERROR, origin=replace(ERROR.origin, line=99, column=1))
    assert fingerprints(moved) == [before]
    for other in (
        replace(ERROR, message="another"),
        replace(ERROR, field="training.fp4"),
        replace(ERROR, origin=replace(ERROR.origin, file="b.yaml")),
        replace(ERROR, id="PP205"),
    ):
        assert fingerprints(other) != [before]
    assert len(set(fingerprints(ERROR, moved))) == 2


@pytest.mark.parametrize(
    ("found", "fail_on", "code"),
    [((), "error", 0), ((ADVICE,), "error", 0), ((ADVICE,), "advice", 1), ((ERROR,), "error", 1),
     ((ERROR, BROKEN), "error", 2)],
)  # fmt: skip
def test_the_exit_code_is_told(found: Any, fail_on: str, code: int) -> None:
    run = run_of(replace(REPORT, diagnostics=found), replace(RUN, fail_on=fail_on))
    (invocation,) = run["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (code, code != 2)


def test_what_a_baseline_hides_is_left_out() -> None:
    run = run_of(WITH_BASELINE)
    assert [each["ruleId"] for each in run["results"]] == ["PP133"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["PP133"]
    told_too = run["invocations"][0]["toolExecutionNotifications"]
    assert told_too[0]["message"]["text"] == ("2 findings hidden by the baseline ci/baseline.json")


@given(REPORTS)
def test_every_text_arrives(report: LintReport) -> None:
    run = run_of(report)
    for result, found in zip(run["results"], in_order(report), strict=True):
        assert result["message"]["text"] == told(found, RUN, Mask()).lines
        place = RUN.place_of(found, Mask())
        assert place is not None
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert artifact["uri"].isascii() and not set(artifact["uri"]) & set(' "<>\\^`{|}#?')
        name = unquote_to_bytes(artifact["uri"].removeprefix("file://"))
        assert name.decode("utf-8", "surrogatepass") == place.path or (
            name == place.path.encode("utf-8", "surrogateescape")
        )

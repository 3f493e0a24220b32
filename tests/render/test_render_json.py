"""The shape that scripts and CI depend on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from precision_plan.plan import SCHEMA_VERSION, Diagnostic
from precision_plan.render import render_lint, render_plan
from tests.render.samples import COMPILED, ERROR, RECIPE, REPORT, WARNING

DIAGNOSTIC_KEYS = {
    "id", "slug", "severity", "message", "file", "line", "column", "field", "because", "fix",
    "source", "docs",
}  # fmt: skip


def plan_of(compiled: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(render_plan(compiled, "json"))
    return data


def test_plan_has_the_agreed_keys() -> None:
    data = plan_of(COMPILED)
    assert data.keys() >= {
        "schema_version", "recipe", "fingerprint", "plan", "diagnostics", "lowered",
    }  # fmt: skip
    assert data["schema_version"] == SCHEMA_VERSION
    assert data["recipe"] == "my-mxfp8"
    lowered = data["lowered"]
    assert lowered["megatron"].keys() >= {"argv", "env"}
    assert lowered["transformer_engine"].keys() >= {"recipe", "kwargs", "env"}
    assert lowered["ray"].keys() >= {"runtime_env"}
    assert lowered["vllm"].keys() >= {"args", "env"}
    assert lowered["checkpoint"].keys() >= {"quantization_config"}
    assert lowered["megatron"]["argv"][:2] == ["--fp8-format", "e4m3"]
    assert lowered["transformer_engine"]["recipe"] == "MXFP8BlockScaling"
    assert lowered["checkpoint"]["quantization_config"] == {"quant_method": "fp8"}


def test_every_item_keeps_its_reason() -> None:
    items = plan_of(COMPILED)["lowered"]["megatron"]["items"]
    assert items[0] == {
        "name": "--fp8-format",
        "value": "e4m3",
        "reason": "training.fp8_format = e4m3",
        "field": "training.fp8_format",
        "source": None,
    }
    assert items[2]["value"] is True and items[2]["source"] == "a/b@1:c.py:3"


def test_roles() -> None:
    assert plan_of(COMPILED)["roles"][2] == {
        "name": "activations",
        "dtype": "unknown",
        "bytes_per_element": None,
        "origin": "not declared",
    }


def test_diagnostic() -> None:
    found = plan_of(COMPILED)["diagnostics"][0]
    assert found.keys() >= DIAGNOSTIC_KEYS
    assert (found["id"], found["severity"]) == ("PP204", "error")
    assert (found["file"], found["line"], found["column"]) == (RECIPE, 14, 3)
    assert found["because"] == [
        {
            "text": "hardware.gpu = h200",
            "field": "hardware.gpu",
            "file": "conf/hardware/h200.yaml",
            "line": 1,
            "column": None,
        }
    ]
    assert found["fix"][0] == {
        "text": "training.fp8_recipe: blockwise",
        "edits": {"training.fp8_recipe": "blockwise"},
        "applicability": "suggested",
    }
    assert found["docs"] == "docs/rules/PP204.md"
    assert found["source"] == list(ERROR.source)


def test_an_unknown_position_is_null() -> None:
    nowhere = Diagnostic("PP101", "fp16-with-bf16", "error", "no position")
    found = plan_of(replace(COMPILED, diagnostics=(nowhere,)))["diagnostics"][0]
    assert (found["file"], found["line"], found["column"]) == (None, None, None)


def test_broken_input_has_nothing_lowered() -> None:
    data = plan_of(replace(COMPILED, lowering=None))
    assert data["lowered"] is None and data["roles"] == []


def test_lint_has_the_agreed_keys() -> None:
    data = json.loads(render_lint(REPORT, "json"))
    assert data.keys() == {"schema_version", "diagnostics", "summary"}
    assert [found["id"] for found in data["diagnostics"]] == ["PP204", "PP133"]
    assert data["summary"] == {
        "errors": 1,
        "warnings": 0,
        "advice": 1,
        "rules": 64,
        "unchecked": {},
        "files": [RECIPE, "conf/recipes/other.yaml"],
        "skipped": ["conf/notes.yaml"],
    }


def test_output_is_ascii_and_valid_whatever_a_message_holds() -> None:
    odd = replace(WARNING, message="\x1b[2J \u202e 精度", resolved={"loss_scale": float("inf")})
    text = render_plan(replace(COMPILED, diagnostics=(odd,)), "json")
    assert text.isascii() and "\x1b" not in text
    found = json.loads(text, parse_constant=lambda name: None)["diagnostics"][0]
    assert found["message"] == "\x1b[2J \u202e 精度"
    assert found["resolved"] == {"loss_scale": "inf"}


def test_the_same_recipe_gives_the_same_text() -> None:
    assert render_plan(COMPILED, "json") == render_plan(replace(COMPILED, seconds=9.0), "json")

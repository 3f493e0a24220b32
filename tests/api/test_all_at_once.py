"""All problems of a recipe are told at once, each where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import compile

CONF = Path(__file__).parents[2] / "conf"
HEAD = """\
# @package _global_
defaults:
  - override /hardware: h100
  - override /software: megatron-lm
  - override /training: bf16
  - override /optimizer: adam
  - _self_
recipe: {title: five mistakes, source: [a test], maturity: stable}
"""


def told(tmp_path: Path, body: str) -> list[tuple[str, int]]:
    file = tmp_path / "recipe.yaml"
    file.write_text(HEAD + body)
    found = compile(file, conf_dir=CONF)
    assert found.exit_code == 1
    for diagnostic in found.diagnostics:
        assert diagnostic.origin.file.endswith("recipe.yaml")
        assert diagnostic.fix
    return [(each.id, each.origin.line) for each in found.diagnostics if each.severity == "error"]


def test_five_mistakes_give_five_findings(tmp_path: Path) -> None:
    body = """\
training:
  fp16: true
  fp8_format: e5m2
  fp8_recipe: mxfp8
optimizer:
  main_grads_dtype: fp8
  exp_avg_dtpe: fp16
"""
    assert told(tmp_path, body) == [
        ("PP101", 10),
        ("PP003", 11),
        ("PP204", 12),
        ("PP003", 14),
        ("PP002", 15),
    ]


@pytest.mark.parametrize("value", ["e5m2", "e4m4", "hybird"])
def test_a_refused_value_hides_nothing_else(tmp_path: Path, value: str) -> None:
    body = f"training: {{fp8_format: {value}, fp8_recipe: mxfp8}}\n"
    assert ("PP204", 9) in told(tmp_path, body)


def test_nothing_is_said_that_rests_on_a_refused_value(tmp_path: Path) -> None:
    body = "training: {fp8_format: nonsense, fp8_recipe: blockwise}\n"
    assert told(tmp_path, body) == [("PP003", 9)]


def test_the_plan_does_not_hold_the_assumed_value(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(HEAD + "training: {fp8_format: e5m2}\n")
    assert compile(file, conf_dir=CONF).plan.training.fp8_format is None

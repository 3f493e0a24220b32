"""Reading the file of ``--te-precision-config-file``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from precision_plan.importers.te_precision import parse_precision_file, read_precision_file
from precision_plan.lower.te_precision import file_text
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.te_precision import TePrecisionConfig
from tests.lower.plans import any_plan

FILE = """\
configs:
  nvfp4:
    transformer_engine_config_type: TEQuantizationParams
    training_recipe: {fp4_quantization_recipe: nvfp4}
  bf16:
    transformer_engine_config_type: "TEQuantizationParams"
    training_recipe: {}
matchers:
  experts:
    config: nvfp4
    type: glob
    pattern: "*.mlp.experts.*"
    enabled: yes
  rest: {config: bf16, type: glob, pattern: "*", enabled: true}
"""


def said(text: str) -> list[tuple[str, str, int, str]]:
    return [
        (found.id, found.severity, found.origin.line, found.message)
        for found in parse_precision_file(text, "te.yaml").diagnostics
    ]


def test_content_and_positions(tmp_path: Path) -> None:
    path = tmp_path / "te.yaml"
    path.write_text(FILE)
    found = read_precision_file(path)
    assert found.diagnostics == ()
    assert found.config is not None and found.config.configs is not None
    recipe = found.config.configs["nvfp4"].training_recipe
    assert recipe is not None and recipe.fp4_quantization_recipe == "nvfp4"
    matched = found.config.match("decoder.layers.3.mlp.experts.linear_fc1")
    assert matched is not None and matched[0] == "experts"
    origin = found.origins["training.te_precision_config.matchers.experts.pattern"]
    assert (origin.line, origin.column, origin.layer) == (12, 5, "te_precision_config_file")


def test_a_value_that_is_refused_is_left_out_and_the_rest_is_read() -> None:
    text = FILE.replace("recipe: nvfp4}", "recipe: nvfp5}")
    found = parse_precision_file(text, "te.yaml")
    assert [(each.id, each.origin.line) for each in found.diagnostics] == [("PP003", 4)]
    assert "did you mean nvfp4?" in {fix.text for fix in found.diagnostics[0].fix}
    assert found.config is not None and found.config.matchers is not None
    assert set(found.config.matchers) == {"experts", "rest"}


def test_keys_that_megatron_passes_over_are_no_errors() -> None:
    text = "version: 1\n" + FILE.replace("enabled: yes", "enabled: yes\n    why: quality")
    assert said(text) == [
        ("PP002", "warning", 1, "Megatron does not read version"),
        ("PP002", "warning", 15, "Megatron does not read matchers.experts.why"),
    ]


def test_a_key_that_megatron_refuses_is_an_error() -> None:
    (found,) = said(FILE.replace("training_recipe: {}", "training_recipe: {fp8_recipe: mxfp8}"))
    assert found[:3] == ("PP002", "error", 7)


def test_keys_with_one_value_that_a_file_must_have() -> None:
    text = FILE.replace("    type: glob\n", "").replace(
        '    transformer_engine_config_type: "TEQuantizationParams"\n', ""
    )
    assert said(text) == [
        ("PP003", "error", 5, "configs.bf16 lacks transformer_engine_config_type, "
         "which Megatron demands"),
        ("PP003", "error", 8, "matchers.experts lacks type, which Megatron demands"),
    ]  # fmt: skip


def test_what_no_matcher_reads_may_lack_them() -> None:
    text = FILE.replace("    type: glob\n", "").replace("enabled: yes", "enabled: no")
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "PP011"), ("- a", "PP005"), ("a: [", "PP001"), ("a: 1\na: 2\n", "PP008")],
)
def test_a_text_that_is_no_such_file(text: str, code: str) -> None:
    found = parse_precision_file(text, "te.yaml")
    assert found.config is None
    assert [each.id for each in found.diagnostics] == [code]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = read_precision_file(tmp_path / "gone.yaml")
    assert found.config is None
    assert [each.id for each in found.diagnostics] == ["PP010"]


@settings(max_examples=150, deadline=None)
@given(any_plan())
def test_what_lowering_writes_is_read_back(plan: PrecisionPlan) -> None:
    config = plan.training.te_precision_config
    if config is None:
        return
    text = file_text(config)
    found = parse_precision_file(text, "te.yaml")
    assert all(each.id != "PP003" for each in found.diagnostics)
    if found.config is not None:
        assert file_text(found.config) == text


def test_an_empty_configuration_is_read_back() -> None:
    found = parse_precision_file(file_text(TePrecisionConfig()), "te.yaml")
    assert found.config == TePrecisionConfig(configs={}, matchers={})

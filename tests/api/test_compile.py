"""One recipe through the whole pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

import precision_plan
from precision_plan import Compiled, api

RECIPE = """\
# @package _global_
recipe:
  title: A test
  source: [https://example.org/recipe]
  maturity: experimental
hardware: {gpu: h100, nodes: 1, gpus_per_node: 8}
software: {framework: megatron-lm, megatron_core: 0.16.1, transformer_engine: 2.10.0}
training:
  bf16: true
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE)
    return path


def compiled(recipe: Path | str, *overrides: str, **options: object) -> Compiled:
    return api.compile(recipe, overrides, **options)  # type: ignore[arg-type]


def errors(result: Compiled) -> list[str]:
    return [found.id for found in result.diagnostics if found.severity == "error"]


def test_a_clean_recipe(recipe: Path) -> None:
    result = compiled(recipe)
    assert result.exit_code == 0
    assert result.name == "mine"
    assert result.plan.training.bf16 is True
    assert result.lowering is not None and "--bf16" in result.lowering.megatron.argv
    assert result.fingerprint == result.plan.fingerprint()
    assert result.rules_checked > 20


def test_overrides_reach_the_plan_and_its_origins(recipe: Path) -> None:
    result = compiled(recipe, "training.fp16=true")
    assert errors(result) == ["PP101"]
    assert result.exit_code == 1
    found = result.diagnostics[0]
    assert (found.origin.layer, found.origin.file) == ("override", "training.fp16=true")
    assert result.lowering is not None, "what would have been launched can still be seen"


def test_all_problems_at_once(recipe: Path) -> None:
    result = compiled(
        recipe,
        "training.fp16=true",
        "+training.fp8_formt=e4m3",
        "optimizer.main_grads_dtype=fp8",
        "training.fp8_format=e4m3",
        "optimizer.optimizer_cpu_offload=yes_please",
        "training.fp8_recipe=mxfp8",
    )
    assert {"PP101", "PP002", "PP003", "PP004"} <= set(errors(result))
    assert len(errors(result)) >= 5
    assert result.exit_code == 1


def test_a_broken_file_has_no_lowering(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("training: [\n")
    result = compiled(path)
    assert errors(result) == ["PP001"]
    assert result.exit_code == 2 and result.lowering is None and result.rules_checked == 0


def test_a_recipe_that_does_not_exist() -> None:
    result = compiled("no-such-recipe")
    assert errors(result) == ["PP006"]
    assert result.exit_code == 2


def test_the_recipe_may_be_chosen_by_an_override() -> None:
    assert api.compile(None, ["+recipe=qwen3-30b-fp8", "dry_run=true"]).options["dry_run"] is True


def test_profiles(tmp_path: Path) -> None:
    path = tmp_path / "untitled.yaml"
    path.write_text("training: {bf16: true}\n")
    shown = {
        profile: {found.severity for found in compiled(path, profile=profile).diagnostics}
        for profile in ("explore", "ci", "production")
    }
    assert shown["explore"] <= {"error"}
    assert "warning" in shown["ci"]
    assert "advice" not in shown["production"]
    with pytest.raises(ValueError, match="no profile 'strict'; known: explore, ci, production"):
        compiled(path, profile="strict")


def test_a_suppression_silences_its_line(recipe: Path) -> None:
    text = recipe.read_text().replace("  bf16: true", "  bf16: true\n  fp16: true  # {}")
    comment = "precision-plan: ignore[PP101] a test of both"
    recipe.write_text(text.replace("{}", comment))
    assert errors(compiled(recipe)) == []
    recipe.write_text(text.replace("{}", comment.replace(" a test of both", "")))
    assert errors(compiled(recipe)) == ["PP101", "PP020"]


def test_findings_are_sorted_errors_first(recipe: Path) -> None:
    result = compiled(recipe, "training.fp16=true", "training.fp8_recipe=blockwise")
    ranks = [("error", "warning", "advice").index(found.severity) for found in result.diagnostics]
    assert ranks == sorted(ranks)


def test_exported_names() -> None:
    assert precision_plan.__all__ == [
        "Compiled", "Diagnostic", "LintReport", "Lowering", "Origin", "PrecisionPlan",
        "__version__", "compile", "lint", "matrix",
    ]  # fmt: skip
    for name in precision_plan.__all__:
        assert getattr(precision_plan, name) is not None
    assert dir(precision_plan) == sorted(precision_plan.__all__)
    assert precision_plan.compile is api.compile
    with pytest.raises(AttributeError, match="no attribute 'Composer'"):
        _ = precision_plan.Composer

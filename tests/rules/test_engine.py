"""The engine around the rules: scope, profiles, invalid fields, and what a rule may read."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.plan import Origin, PrecisionPlan
from precision_plan.rules.base import Context, Finding, Rule, rule
from precision_plan.rules.engine import check
from precision_plan.rules.profiles import severity_under
from precision_plan.rules.registry import rules

MXFP8_ON_HOPPER: dict[str, Any] = {
    "hardware": {"gpu": "h200"},
    "training": {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "mxfp8"},
}


def plan(**sections: Any) -> PrecisionPlan:
    return PrecisionPlan.model_validate(sections)


def test_a_diagnostic_carries_rule_finding_and_positions() -> None:
    origins = {
        "training.fp8_recipe": Origin("conf/recipes/my-mxfp8.yaml", 14, 3, "recipe"),
        "hardware.gpu": Origin("conf/hardware/h200.yaml", 1, 1, "hardware=h200"),
    }
    report = check(plan(**MXFP8_ON_HOPPER, origins=origins))
    (found,) = [one for one in report.diagnostics if one.severity == "error"]
    assert (found.id, found.slug, found.stage) == ("PP204", "mxfp8-needs-sm100", "te_hardware")
    assert found.message == (
        "training.fp8_recipe = mxfp8 needs compute capability 10.0 up to 12.0; "
        "the target h200 has 9.0"
    )
    assert str(found.origin) == "conf/recipes/my-mxfp8.yaml:14:3"
    (because,) = found.because
    assert because.text == "hardware.gpu = h200"
    assert because.origin.file == "conf/hardware/h200.yaml"
    assert [fix.text for fix in found.fix] == ["training.fp8_recipe: blockwise", "hardware: b200"]
    assert found.source == rules()["PP204"].source


def test_an_unknown_gpu_leaves_hardware_rules_unchecked() -> None:
    report = check(plan(training=MXFP8_ON_HOPPER["training"]))
    assert report.unchecked["PP204"] == ("gpu",)
    assert report.checked + len(report.unchecked) <= len(rules())


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0"])
def test_a_rule_holds_in_its_versions_only(version: str) -> None:
    report = check(
        plan(software={"megatron_core": version}, checkpoint={"ckpt_format": "fsdp_dtensor"})
    )
    fired = {found.id for found in report.diagnostics}
    assert ("PP331" in fired) == (version == "0.14.0")
    assert "PP331" not in report.unchecked


def test_a_finding_that_rests_on_a_refused_value_is_dropped() -> None:
    broken = plan(**MXFP8_ON_HOPPER)
    assert check(broken, invalid=frozenset({"hardware.gpu"})).diagnostics == ()
    assert [one.id for one in check(broken, "explore").diagnostics] == ["PP204"]


def test_profiles_grade_but_never_lower_an_error() -> None:
    bf16_gradients = plan(training={"bf16": True, "grad_reduce_in_bf16": True})
    by_profile = {
        profile: [found.severity for found in check(bf16_gradients, profile).diagnostics]
        for profile in ("explore", "ci", "production")
    }
    assert by_profile == {"explore": [], "ci": ["advice"], "production": ["warning"]}
    assert severity_under("explore", rules()["PP101"]) == "error"


def test_errors_come_first() -> None:
    report = check(plan(training={"fp16": True, "bf16": True, "fp8_margin": 1}))
    severities = [found.severity for found in report.diagnostics]
    assert severities == sorted(severities, key=["error", "warning", "advice"].index)


class TestContext:
    def test_arguments_read_defaults_and_none_for_other_versions(self) -> None:
        old = Context(plan(software={"megatron_core": "0.14.0"}))
        assert old.args.fp8_recipe == "delayed"
        assert old.args.fp4 is None
        with pytest.raises(AttributeError):
            _ = old.args.fp8_recipes

    def test_parsed_keeps_what_args_overrides(self) -> None:
        context = Context(
            plan(training={"bf16": True, "accumulate_allreduce_grads_in_fp32": False})
        )
        assert context.parsed.accumulate_allreduce_grads_in_fp32 is False
        assert context.args.accumulate_allreduce_grads_in_fp32 is True

    def test_a_premise_says_where_a_default_comes_from(self) -> None:
        context = Context(plan())
        assert context.premise("training.fp8_recipe").text == (
            "training.fp8_recipe = delayed (Megatron's default)"
        )
        assert context.premise("hardware.gpu").text == "hardware.gpu is not set"

    def test_a_version_that_is_none_counts_as_unknown(self) -> None:
        context = Context(plan(software={"transformer_engine": "nightly"}))
        assert context.target.package("transformer_engine") is None
        assert context.at_least("transformer_engine", "2.0") is None

    @pytest.mark.parametrize("key", ["--offload-modules", "offload-modules", "offload_modules"])
    def test_other_flags_are_read_in_any_spelling(self, key: str) -> None:
        context = Context(plan(launch={"extra_args": {key: ["core_attn"]}}))
        assert context.extra("offload_modules") == ["core_attn"]


def test_the_decorator_registers_nothing() -> None:
    @rule("PP999", "unlisted", "error", stage="policy", source=("a@1:b.py",))
    def unlisted(ctx: Context) -> Finding | None:
        """A rule that no family lists."""
        return None

    assert isinstance(unlisted, Rule)
    assert unlisted.summary == "A rule that no family lists"
    assert "PP999" not in rules()

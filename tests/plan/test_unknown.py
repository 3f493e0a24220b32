"""Fields that are set to something unknown: whoever reads one is told so, and no rule guesses."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.lower import lower
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.environment import train_env
from precision_plan.plan.given_target import with_target
from precision_plan.plan.unknown import (
    NotKnown,
    is_reference,
    known,
    look_up,
    settled,
    unknown,
    with_unknown,
)
from precision_plan.rules.base import Context
from precision_plan.rules.engine import check
from precision_plan.rules.registry import rules
from tests.checkpoints import described
from tests.rules.test_cases import cases_of, ids

RECIPE = "training.fp8_recipe"


def plan(**sections: Any) -> PrecisionPlan:
    return PrecisionPlan.model_validate(sections)


def test_reading_an_unknown_field_raises_and_the_others_stay() -> None:
    before = plan(training={"bf16": True, "fp8_recipe": "blockwise"})
    after = with_unknown(before, [RECIPE, "training.fp8_format"])
    for name in ("fp8_recipe", "fp8_format"):
        with pytest.raises(NotKnown, match=name):
            getattr(after.training, name)
        with pytest.raises(NotKnown):
            after.get(f"training.{name}")
    assert after.training.bf16 is True
    assert known(after.training, "fp8_recipe") is None
    assert sorted(unknown(after)) == ["training.fp8_format", RECIPE]
    assert list(unknown(before)) == []
    assert before.training.fp8_recipe == "blockwise"
    with pytest.raises(AttributeError):
        after.training.no_such_field  # noqa: B018


def test_unknown_is_neither_unset_nor_any_value() -> None:
    before = plan(training={"bf16": True, "fp8_recipe": "blockwise"})
    after = with_unknown(before, [RECIPE])
    prints = {each.fingerprint() for each in (before, after, settled(after))}
    assert len(prints) == 3
    assert settled(after) == plan(training={"bf16": True})
    assert after.settings() == {"training": {"bf16": True}}
    assert settled(before) is before


def test_what_follows_from_an_unknown_argument_is_unknown() -> None:
    written = plan(software={"framework": "megatron-lm"}, training={"bf16": True})
    context = Context(with_unknown(written, ["training.bf16"]))
    for dest in ("bf16", "params_dtype", "accumulate_allreduce_grads_in_fp32"):
        with pytest.raises(NotKnown, match=r"training\.bf16"):
            getattr(context.args, dest)
    assert context.given["bf16"] == "training.bf16"
    assert context.args.fp16 is False
    assert context.args.tensor_model_parallel_size == 1


def test_an_override_makes_it_known_again() -> None:
    written = plan(software={"framework": "slime"}, optimizer={"use_distributed_optimizer": False})
    context = Context(with_unknown(written, ["optimizer.use_distributed_optimizer"]))
    assert context.args.use_distributed_optimizer is True
    with pytest.raises(NotKnown):
        context.parsed.use_distributed_optimizer  # noqa: B018
    assert "use_distributed_optimizer" not in {each.dest for each in context.effective.overrides}


def test_rules_that_would_read_it_are_unchecked() -> None:
    written = plan(
        hardware={"gpu": "h100"},
        software={"framework": "megatron-lm"},
        training={"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "mxfp8"},
    )
    assert "PP204" in {found.id for found in check(written).diagnostics}
    report = check(with_unknown(written, [RECIPE]))
    assert "PP204" not in {found.id for found in report.diagnostics}
    assert report.unchecked["PP204"] == ("training.fp8_recipe",)
    assert report.checked + len(report.unchecked) == check(written).checked + len(
        check(written).unchecked
    )


def test_a_variable_with_a_reference_is_unknown_but_there() -> None:
    context = Context(plan(env={"all": {"A": "${B}", "C": "1"}}))
    assert "A" in context.train_env
    assert context.env("C") == "1"
    with pytest.raises(NotKnown, match="A"):
        context.env("A")
    assert context.env("B") is None
    assert train_env(context.plan)["A"] == ("${B}", "env.all.A")


def test_a_value_that_ray_expands_is_not_judged() -> None:
    variables = {"OPEN_TRAINING_INT4_FAKE_QAT_FLAG": "1", "OPEN_TRAINING_INT4_GROUP_SIZE": "$GROUP"}
    written = plan(training={"moe_grouped_gemm": True}, env={"all": variables})
    report = check(written)
    assert "PP627" in report.unchecked
    assert "PP627" not in ids(report)


def test_a_field_that_is_a_variable() -> None:
    field = "training.nvfp4_disable_rht"
    context = Context(with_unknown(plan(), [field]))
    with pytest.raises(NotKnown):
        context.env("NVTE_NVFP4_DISABLE_RHT")


def test_a_target_does_not_replace_it() -> None:
    target = {"gpu": "h100", "vllm": "0.33.0"}
    filled = with_target(with_unknown(plan(), ["hardware.gpu", "software.ray"]), target)
    assert sorted(unknown(filled)) == ["hardware.gpu", "software.ray"]
    assert filled.software.vllm == "0.33.0"
    assert Context(filled).target.gpu is None


def test_look_up() -> None:
    values = {"a": 1, "b": "$X", "c": ("$(date)", "field")}
    found = look_up(values, "launch.extra_args")
    assert found.get("a") == 1 and found.get("d", 2) == 2
    assert dict(found.items()) == values
    for name in ("b", "c"):
        with pytest.raises(NotKnown):
            found.get(name)
    assert look_up(None, "") == {}
    assert is_reference("a$b") and not is_reference("ab") and not is_reference(3)


_TARGET = {"hardware", "software"}
"""Sections of what is declared rather than decided: there, *not known* and *not declared* are one,
and a plan is judged by the default version."""


def _leaf_fields(settings: dict[str, Any], without: set[str] = _TARGET) -> list[str]:
    return [
        f"{section}.{name}"
        for section, values in settings.items()
        if section not in {"recipe", "env"} | without and isinstance(values, dict)
        for name in values
    ]


def _good_cases() -> list[Any]:
    return [
        pytest.param(rule_id, [case for case in cases_of(rule_id) if case.get("good")], id=rule_id)
        for rule_id in rules()
    ]


@pytest.mark.parametrize(("rule_id", "cases"), _good_cases())
def test_not_knowing_a_field_adds_no_finding(rule_id: str, cases: list[dict[str, Any]]) -> None:
    """A good case stays good whichever field is not known, for the rule and for every error."""
    for case in cases:
        settings = case.get("plan", {})
        whole = PrecisionPlan.model_validate(settings)
        checkpoint = described(case["files"]) if case.get("files") else None
        for field in _leaf_fields(settings):
            report = check(with_unknown(whole, [field]), checkpoint=checkpoint)
            assert rule_id not in ids(report), (case["name"], field)
            assert not ids(report, "error"), (case["name"], field)


@pytest.mark.parametrize("rule_id", list(rules())[::7])
def test_every_plan_with_an_unknown_field_is_lowered(rule_id: str) -> None:
    for case in cases_of(rule_id)[:2]:
        settings = case.get("plan", {})
        for field in _leaf_fields(settings, set()):
            lowered = lower(with_unknown(PrecisionPlan.model_validate(settings), [field]))
            assert lowered.ray is not None


def test_every_override_says_what_it_may_change() -> None:
    """The declared dests are those that the cases of all rules see replaced, and no fewer."""
    seen = 0
    for rule_id in rules():
        for case in cases_of(rule_id):
            for override in Context(
                PrecisionPlan.model_validate(case.get("plan", {}))
            ).effective.overrides:
                assert override.dest in override.step.changes
                seen += 1
    assert seen > 500

"""Lowering holds for any plan that the schema admits, sensible or not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings

from precision_plan.lower import lower
from precision_plan.lower.context import Context
from precision_plan.lower.megatron import megatron_items
from precision_plan.lower.spelling import command_line, flag_item, text
from precision_plan.plan import Lowering, PrecisionPlan, Reason
from precision_plan.plan.compiled import Compiled
from precision_plan.render import json as as_json
from tests.lower import parsers, plans

slowly = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def _items(lowering: Lowering) -> list[Any]:
    targets = (lowering.megatron, lowering.transformer_engine, lowering.ray, lowering.vllm)
    return [item for target in (*targets, lowering.checkpoint) for item in target.items]


@slowly
@given(plans.any_plan())
def test_any_plan_is_lowered_to_plain_data_with_reasons(plan: PrecisionPlan) -> None:
    lowering = lower(plan)
    assert json.loads(as_json.plan(Compiled("any", plan, (), lowering, "", 0, {}, 0.0)))
    assert len(lowering.roles) == 21
    for item in _items(lowering):
        assert item.reason.text
        assert item.reason.field or item.reason.fact, item
        if item.reason.field:
            assert plan.origin(item.reason.field) is not None


@slowly
@given(plans.any_plan())
def test_variables_and_words_are_text(plan: PrecisionPlan) -> None:
    lowering = lower(plan)
    environments = [
        lowering.ray.runtime_env["env_vars"],
        lowering.ray.train_env_vars,
        lowering.megatron.env,
        lowering.transformer_engine.env,
        lowering.vllm.env,
        *lowering.ray.roles.values(),
    ]
    for env in environments:
        assert all(type(name) is type(value) is str for name, value in env.items())
    for argv in (lowering.megatron.argv, lowering.vllm.argv, lowering.vllm.passthrough):
        assert all(type(word) is str for word in argv)


@slowly
@given(plans.any_plan())
def test_megatron_words_read_back_as_the_plan(plan: PrecisionPlan) -> None:
    context = Context.of(plan)
    parser = parsers.megatron_parser(context.flags.values(), checked=False)
    parsed = vars(parser.parse_args(command_line(megatron_items(context))))
    for field, flag in context.flags.items():
        value = context.get(field)
        said = value is not None and flag_item(flag, value, Reason("")) is not None
        if said and context.trains and not _moved(context, field):
            assert _same(parsed[flag.dest], value), field


def _moved(context: Context, field: str) -> bool:
    """The dtype of inference shares its flag with training."""
    dtype = context.get("inference.dtype")
    return not context.is_rl and field == f"training.{dtype}"


def _same(parsed: Any, value: Any) -> bool:
    if isinstance(parsed, list):
        return parsed == [text(entry) for entry in (value if isinstance(value, tuple) else [value])]
    if isinstance(value, tuple):
        return parsed in (text(value), *map(text, value[:1]))
    if isinstance(value, bool):
        return parsed in (value, text(value))
    if isinstance(value, float):
        return float(parsed) == value
    return str(parsed) == text(value)

"""The plan's choice types against the choices that the tables list, over all versions."""

from typing import Any, Literal, get_args, get_origin

import pytest

from precision_plan.facts.frameworks import framework_flags
from precision_plan.facts.megatron import megatron_flags
from precision_plan.facts.megatron_shape import shape_flags
from precision_plan.facts.transformer_engine import te_recipes
from precision_plan.facts.vllm import engine_args, kv_dtypes, mamba_dtypes
from precision_plan.plan import dtypes
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.precision_plan import PrecisionPlan

UNSET = {"None"}
"""Choices by which a program spells *not set*."""


def literal_values(annotation: Any) -> frozenset[str] | None:
    """Values of the ``Literal`` inside a field's annotation; ``None`` if it has none."""
    if get_origin(annotation) is Literal:
        return frozenset(get_args(annotation))
    found = [literal_values(part) for part in get_args(annotation)]
    values = [item for item in found if item is not None]
    return frozenset().union(*values) if values else None


def field_values(field: str) -> frozenset[str] | None:
    section, _, name = field.partition(".")
    model = type(getattr(PrecisionPlan(), section))
    return literal_values(model.model_fields[name].annotation)


def megatron_choices() -> list[tuple[str, frozenset[str]]]:
    """``(field, union of choices)`` of every flag whose plan field is a choice."""
    union: dict[str, set[str]] = {}
    for flag in (*megatron_flags(), *shape_flags()):
        lists = [flag.choices, *(delta.get("choices") for _, delta in flag.changes)]
        union.setdefault(flag.field, set()).update(
            str(choice) for choices in lists for choice in choices or ()
        )
    return [
        (field, frozenset(choices - UNSET))
        for field, choices in union.items()
        if choices and field_values(field) is not None
    ]


@pytest.mark.parametrize(("field", "choices"), megatron_choices())
def test_megatron_choices(field: str, choices: frozenset[str]) -> None:
    assert field_values(field) == choices


def engine_choices() -> list[tuple[str, frozenset[str]]]:
    return [
        (arg.field, arg.all_choices())
        for arg in engine_args().values()
        if arg.choices and field_values(arg.field) is not None
    ]


@pytest.mark.parametrize(("field", "choices"), engine_choices())
def test_engine_choices(field: str, choices: frozenset[str]) -> None:
    assert field_values(field) == choices


def test_cache_dtypes() -> None:
    assert frozenset(get_args(dtypes.KvCacheDtype)) == frozenset(kv_dtypes())
    assert frozenset(get_args(dtypes.MambaCacheDtype)) == frozenset(mamba_dtypes(None))


@pytest.mark.parametrize("framework", ["vime", "slime", "miles"])
def test_framework_choices_are_in_the_plan(framework: str) -> None:
    """Subsets only: a choice of the plan may belong to another framework."""
    for field, flag in framework_flags(framework).items():
        values = field_values(field)
        if flag.choices and values is not None:
            assert frozenset(flag.choices) <= values, field


def test_recipe_choices() -> None:
    classes = te_recipes().values()
    fp8 = {row.value for row in classes if row.selector == "fp8_recipe"}
    fp4 = {row.value for row in classes if row.selector == "fp4_recipe"}
    assert frozenset(get_args(dtypes.Fp8Recipe)) == fp8
    assert frozenset(get_args(dtypes.Fp4Recipe)) == fp4 | {"custom"}


def test_recipe_fields_that_are_variables() -> None:
    """A plan field behind an NVTE variable takes exactly the values of the recipe's field."""
    by_variable = {
        field.env: field
        for row in te_recipes().values()
        for field in row.fields
        if field.env and field.allowed
    }
    compared = 0
    for name, variable in FIELD_VARIABLES.items():
        values = field_values(name)
        if values is not None and variable in by_variable:
            assert frozenset(by_variable[variable].allowed or ()) == values, name
            compared += 1
    assert compared == 4

"""The rules of a flag are read off the rules' own examples."""

from __future__ import annotations

import pytest

from precision_plan.cli._concerns import fields_of
from precision_plan.plan import PrecisionPlan
from precision_plan.rules.registry import rules


@pytest.mark.parametrize("id", rules())
def test_every_example_names_fields_of_the_plan(id: str) -> None:
    fields = fields_of(rules()[id])
    assert fields or "\n    files:" in rules()[id].page
    for field in fields:
        PrecisionPlan().get(field)  # raises KeyError for a name that is no field

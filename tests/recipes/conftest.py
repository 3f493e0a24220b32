"""The shipped configuration tree, and each recipe composed once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from precision_plan.compose import Composer, build_plan
from precision_plan.plan import PrecisionPlan

CONF = Path(__file__).parents[2] / "conf"
RECIPES = tuple(sorted(path.stem for path in (CONF / "recipes").glob("*.yaml")))


@cache
def _plan(name: str) -> PrecisionPlan:
    composition = Composer(CONF).compose(name)
    result = build_plan(composition)
    assert composition.diagnostics == ()
    assert result.diagnostics == ()
    assert result.invalid == frozenset()
    return result.plan


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> str:
    """The name of each recipe in turn."""
    return str(request.param)


@pytest.fixture
def plan(recipe: str) -> PrecisionPlan:
    """The plan of that recipe, composed without a finding."""
    return _plan(recipe)


@pytest.fixture(scope="session")
def plan_of():
    """``plan_of(name)``: the plan of one recipe."""
    return _plan


@pytest.fixture(scope="session")
def conf() -> Path:
    """The configuration folder."""
    return CONF

"""Recipe classes: defaults, the variables behind them, and what assertions accept."""

from __future__ import annotations

import pytest

from precision_plan.drift.modules import Modules
from precision_plan.drift.recipes import RecipeField, read_recipes
from precision_plan.drift.values import Computed, Values
from tests.drift import trees

HEADER = """
import os
from enum import Enum
from typing import Literal, Optional, Union, Callable
from dataclasses import dataclass
_MODES = (None, "high", "low")
_UNSET = os.getenv("NVTE_MODULE", "0")
class Format(Enum):
    E4M3 = 1
    E5M2 = 2
@dataclass
class Params:
    split: bool = True
class Recipe:
    pass
@dataclass
class Mine(Recipe):
"""


def field(declaration: str, *checks: str) -> RecipeField:
    body = [f"    {declaration}", "    def __post_init__(self):", "        pass"]
    body += [f"        {check}" for check in checks]
    modules = Modules(trees.tree({trees.RECIPES: HEADER + "\n".join(body) + "\n"}))
    recipes = read_recipes(modules, Values(modules))
    assert recipes is not None
    (recipe,) = recipes
    assert recipe.name == "Mine"
    (found,) = recipe.fields
    return found


@pytest.mark.parametrize(
    ("declaration", "default", "env"),
    [
        ("f: int = 3", 3, ()),
        ("f: Format = Format.E4M3", "E4M3", ()),
        ("f: Params = Params(split=False)", {"split": False}, ()),
        ("f: bool = os.getenv('NVTE_F', '0') == '1'", False, ("NVTE_F",)),
        ("f: str = os.getenv('NVTE_F', 'mae').upper()", "MAE", ("NVTE_F",)),
        ("f: Optional[str] = os.environ.get('NVTE_F')", None, ("NVTE_F",)),
        ("f: bool = bool(int(_UNSET))", False, ("NVTE_MODULE",)),
        (
            "f: bool = os.getenv('NVTE_A', '0') == os.getenv('NVTE_B', '0')",
            True,
            ("NVTE_A", "NVTE_B"),
        ),
        ("f: object = make(1)", Computed("make(1)"), ()),
    ],
)
def test_default(declaration: str, default: object, env: tuple[str, ...]) -> None:
    found = field(declaration)
    assert (found.default, found.env, found.required) == (default, env, False)


def test_required() -> None:
    found = field("f: Callable")
    assert (found.default, found.required) == (None, True)
    assert found.source == f"{trees.RECIPES}:18"


@pytest.mark.parametrize(
    ("declaration", "check", "allowed", "refused"),
    [
        ("f: int = 1", "assert self.f in [1, 2], 'text'", (1, 2), ()),
        ("f: str = None", "assert self.f in _MODES", (None, "high", "low"), ()),
        ("f: Format = Format.E4M3", "assert self.f == Format.E4M3", ("E4M3",), ()),
        ("f: Format = Format.E4M3", "assert self.f != Format.E5M2", None, ("E5M2",)),
        ("f: Format = Format.E4M3", "assert self.f in Format", ("E4M3", "E5M2"), ()),
        ("f: str = None", "assert self.f is None", (None,), ()),
        ("f: bool = False", "assert not self.f", (False,), ()),
        ("f: bool = True", "assert self.f", (True,), ()),
        ("f: bool = False", "assert not self.f and not self.g", (False,), ()),
        ("f: Params = Params()", "assert self.f.split", ({"split": True},), ()),
        ("f: Params = Params()", "assert not self.f.split", ({"split": False},), ()),
        ("f: int = 1", "assert not (self.f == 2 and self.g == 2)", None, ()),
        ("f: int = 1", "assert self.f in known()", None, ()),
        ("f: int = 1", "assert self.f > 0", None, ()),
        ("f: Literal['a', 'b'] = 'a'", "pass", ("a", "b"), ()),
        ("f: Union[Literal['a', 'b'], Callable] = 'a'", "pass", ("a", "b"), ()),
        ("f: int = 1", "pass", None, ()),
    ],
)
def test_allowed(
    declaration: str, check: str, allowed: tuple[object, ...] | None, refused: tuple[object, ...]
) -> None:
    found = field(declaration, check)
    assert (found.allowed, found.refused) == (allowed, refused)


def test_two_assertions_narrow() -> None:
    found = field("f: str = None", "assert self.f in _MODES", "assert self.f is None")
    assert found.allowed == (None,)


def test_what_is_a_recipe() -> None:
    source = HEADER + (
        "    f: int = 1\n"
        "class Undecorated(Recipe): pass\n"
        "@dataclass\nclass Child(Mine):\n    g: int = 2\n"
        "@dataclass\nclass Other:\n    h: int = 3\n"
    )
    modules = Modules(trees.tree({trees.RECIPES: source}))
    recipes = read_recipes(modules, Values(modules)) or []
    assert [(recipe.name, [field.name for field in recipe.fields]) for recipe in recipes] == [
        ("Mine", ["f"]),
        ("Child", ["f", "g"]),
    ]

"""What Transformer Engine makes of the state that recipes leave in a checkpoint.

Its package cannot be imported without the native library; the two modules that decide this need
neither that nor torch, and are loaded from the installed files under their own names.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from precision_plan.rules.quantized_state import OPT_IN
from tests.conformance.te_recipe_module import te_version

_FILE = "transformer_engine/pytorch/_extra_state.py"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The modules ``_extra_state`` and ``recipe``."""
    te_version()
    files = importlib.metadata.files("transformer-engine") or ()
    file = next((Path(str(each.locate())) for each in files if str(each) == _FILE), None)
    if file is None:
        pytest.skip("this transformer-engine keeps its state in another way")
    for name in [name for name in sys.modules if name.startswith("transformer_engine")]:
        monkeypatch.delitem(sys.modules, name)
    root = file.parents[1]
    for name, folder in (("", root), (".common", root / "common"), (".pytorch", root / "pytorch")):
        package = ModuleType(f"transformer_engine{name}")
        package.__path__ = [str(folder)]
        monkeypatch.setitem(sys.modules, package.__name__, package)
    found = importlib.import_module("transformer_engine.pytorch._extra_state")
    recipes = importlib.import_module("transformer_engine.common.recipe")
    yield found, recipes
    for name in (found.__name__, recipes.__name__):
        sys.modules.pop(name, None)


def test_delayed_scaling_is_refused_until_it_is_allowed(
    engine: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra_state, recipes = engine
    left = pickle.dumps({"recipe": recipes.DelayedScaling(), "scale_fwd": [1.0]})
    assert extra_state.UNSAFE_PICKLE_EXTRA_STATE_ENV == OPT_IN
    assert not extra_state.is_stateless_recipe(recipes.DelayedScaling())
    for value in (None, "0", "true"):
        monkeypatch.delenv(OPT_IN, raising=False)
        if value is not None:
            monkeypatch.setenv(OPT_IN, value)
        with pytest.raises(RuntimeError, match="Refusing to load pickled"):
            extra_state.should_load_extra_state_pickle(left, "Linear")
    monkeypatch.setenv(OPT_IN, "1")
    assert extra_state.should_load_extra_state_pickle(left, "Linear")


@pytest.mark.parametrize(
    "name", ["Float8CurrentScaling", "MXFP8BlockScaling", "Float8BlockScaling", "NVFP4BlockScaling"]
)
def test_the_other_recipes_leave_no_state(
    name: str, engine: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra_state, recipes = engine
    monkeypatch.delenv(OPT_IN, raising=False)
    recipe = getattr(recipes, name)()
    assert extra_state.is_stateless_recipe(recipe)
    left = pickle.dumps({"recipe": recipe})
    assert not extra_state.should_load_extra_state_pickle(left, "Linear")

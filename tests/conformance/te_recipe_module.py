"""Transformer Engine's recipe module, loaded afresh under a given environment.

The module reads its ``NVTE_*`` defaults when its classes are defined. It needs neither torch nor
TE's native library, so it is executed from the installed file as often as a test wants.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_FILE = "transformer_engine/common/recipe/__init__.py"


def te_version() -> str:
    """Version of the installed TE, or a skip."""
    try:
        return importlib.metadata.version("transformer-engine")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("transformer-engine is not installed")


def recipe_module(env: Mapping[str, str]) -> ModuleType:
    """The module as a process with exactly these ``NVTE_*`` variables would see it."""
    te_version()
    files = importlib.metadata.files("transformer-engine") or ()
    path = Path(str(next(file for file in files if str(file) == _FILE).locate()))
    name = "te_recipe_under_test"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for variable in [variable for variable in os.environ if variable.startswith("NVTE_")]:
            patch.delenv(variable)
        for variable, value in env.items():
            patch.setenv(variable, value)
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


def build(module: ModuleType, recipe: str, keywords: Mapping[str, Any]) -> Any:
    """Construct a recipe from lowered keywords; every one must be a field, since TE ignores
    what it does not know."""
    kind = getattr(module, recipe)
    unknown = set(keywords) - set(kind.__dataclass_fields__)
    assert not unknown, f"{recipe} has no field {sorted(unknown)}"
    return kind(**{key: real(module, key, value) for key, value in keywords.items()})


def real(module: ModuleType, key: str, value: Any) -> Any:
    """``"E4M3"`` is the member ``Format.E4M3``."""
    return getattr(module.Format, value) if key in ("fp8_format", "fp4_format") else value

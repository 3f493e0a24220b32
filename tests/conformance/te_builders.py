"""Megatron's own recipe builders over the recipe classes of any TE release.

``get_fp8_recipe`` and ``get_fp4_recipe`` exist only where TE can be imported whole. Their source is
taken from the installed megatron-core and executed over the one TE module that they use; the
version of TE and the number of the GPU are the only things that are stood in for.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any, Union

from packaging.version import Version

from tests.conformance.megatron_classes import megatron_class, torch

_SOURCES = {
    "megatron.core.extensions.transformer_engine": ("_get_extra_te_kwargs", "TEDelayedScaling"),
    "megatron.core.fp8_utils": (
        "_resolve_callable_from_python_import_path",
        "_get_custom_recipe",
        "get_fp8_recipe",
    ),
    "megatron.core.fp4_utils": ("get_fp4_recipe",),
}

Builders = tuple[Callable[[Any], Any], Callable[[Any], Any]]


@lru_cache(maxsize=1)
def _definitions() -> ast.Module:
    """The functions and classes of :data:`_SOURCES`; of two variants the one for an installed TE,
    which comes first."""
    megatron_class("TransformerConfig")
    found: list[ast.stmt] = []
    for module, names in _SOURCES.items():
        tree = ast.parse(inspect.getsource(importlib.import_module(module)))
        nodes = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        found += [next(node for node in nodes if node.name == name) for name in names]
    return ast.Module(body=found, type_ignores=[])


def recipe_builders(recipes: ModuleType, version: str) -> Builders:
    """``(get_fp8_recipe, get_fp4_recipe)`` beside TE ``version`` with the module ``recipes``."""
    engine = SimpleNamespace(common=SimpleNamespace(recipe=recipes))
    enums = importlib.import_module("megatron.core.enums")
    here = {
        "TransformerConfig": object,
        "ModelParallelConfig": object,
        "HAVE_TE": True,
        "te": engine,
        "transformer_engine": engine,
        "torch": SimpleNamespace(cuda=SimpleNamespace(current_device=lambda: 0), dtype=torch.dtype),
        "warnings": warnings,
        "importlib": importlib,
        "Union": Union,
        "PkgVersion": Version,
        "Fp8Recipe": enums.Fp8Recipe,
        "Fp4Recipe": enums.Fp4Recipe,
        "get_te_version": lambda: Version(version),
        "is_te_min_version": lambda least: Version(version) >= Version(least),
    }
    exec(compile(_definitions(), "megatron.core", "exec"), here)
    return here["get_fp8_recipe"], here["get_fp4_recipe"]

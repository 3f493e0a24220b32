"""Lists of choices in vLLM's sources against those of the facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from precision_plan.drift.changes import Change
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, Values
from precision_plan.facts.vllm import engine_args, kv_cache_dtypes, mamba_dtypes, quant_names

_FOLDER = "vllm"


def _quantization(vllm: str) -> tuple[str, ...]:
    return tuple(name for name, row in quant_names().items() if vllm in row.versions)


def _dtype(vllm: str) -> tuple[str, ...]:
    return engine_args()["rollout.dtype"].at(vllm).choices or ()


_LISTS: Mapping[str, tuple[str, Callable[[str], tuple[str, ...]]]] = {
    "CacheDType": ("--kv-cache-dtype", kv_cache_dtypes),
    "MambaDType": ("--mamba-ssm-cache-dtype", mamba_dtypes),
    "ModelDType": ("--dtype", _dtype),
    "QuantizationMethods": ("--quantization", _quantization),
}
"""``NAME = Literal[...]`` of the sources, its flag, and the names that the facts have for it."""


def compare_choices(
    modules: Modules, values: Values, vllm: str
) -> tuple[list[Change], int, list[str]]:
    """Lists that changed, how many were found, and the names of those that were not."""
    changes: list[Change] = []
    absent: list[str] = []
    for name, (flag, known) in _LISTS.items():
        found = _find_literal(modules, name)
        texts = [] if found is None else _texts(found, values)
        if found is None or not texts:
            absent.append(f"{name} ({flag})")
        elif set(texts) != set(known(vllm)):
            changes.append(
                Change(
                    "changed",
                    "choices",
                    flag,
                    True,
                    facts=list(known(vllm)),
                    sources=texts,
                    at=found.scope.where(found.node),
                )
            )
    return changes, len(_LISTS) - len(absent), absent


def _find_literal(modules: Modules, name: str) -> Found | None:
    """The first ``NAME = Literal[...]`` of the tree."""
    declared = re.compile(rf"^{name}(?:: TypeAlias)? = (?:typing\.)?Literal\[", re.MULTILINE)
    for path in modules.tree.under(_FOLDER, ".py"):
        module = modules.at(path) if declared.search(modules.tree.text(path)) else None
        found = modules.find(name, Scope(module)) if module else None
        if isinstance(found, Found) and isinstance(found.node, ast.Subscript):
            return found
    return None


def _texts(found: Found, values: Values) -> list[str]:
    """The texts of ``Literal[...]``; empty if one of them is computed."""
    assert isinstance(found.node, ast.Subscript)
    inner = found.node.slice
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    texts = [values.of(item, found.scope) for item in items]
    return [] if any(isinstance(text, Computed) for text in texts) else [str(t) for t in texts]

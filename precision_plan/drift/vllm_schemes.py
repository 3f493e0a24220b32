"""compressed-tensors schemes of vLLM: their least capability in the sources and in the facts."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from precision_plan.drift.changes import Change
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, Values
from precision_plan.drift.vllm_against import Compared
from precision_plan.drift.vllm_classes import returned
from precision_plan.facts.vllm_quant import ct_schemes

_FOLDER = "vllm/model_executor/layers/quantization/compressed_tensors/schemes"
_PREFIX = "CompressedTensors"
_METHOD = "get_min_capability"


def read_schemes(modules: Modules, values: Values) -> dict[str, tuple[int | Computed, str]]:
    """Least capability and ``path:line`` by the name of the class."""
    found: dict[str, tuple[int | Computed, str]] = {}
    for path in modules.tree.under(_FOLDER, ".py"):
        module = modules.at(path)
        for node in module.tree.body if module else ():
            if isinstance(node, ast.ClassDef) and node.name.startswith(_PREFIX) and module:
                scope = Scope(module)
                least = returned(Found(node, scope), _METHOD, modules, values)
                known = least if isinstance(least, int) else Computed(_METHOD)
                found[node.name] = (known, scope.where(node))
    return found


def compare_schemes(found: Mapping[str, tuple[int | Computed, str]], vllm: str) -> Compared:
    """Schemes of the facts that vanished or need another capability."""
    result = Compared(count=len(found))
    known = [row for row in ct_schemes().values() if vllm in row.versions]
    for row in known:
        if row.cls not in found:
            label = f"compressed-tensors {row.scheme}"
            result.changes.append(Change("vanished", "method", label, True, fact_source=row.source))
            continue
        least, at = found[row.cls]
        ours = row.min_cc[0] * 10 + row.min_cc[1]
        if not isinstance(least, Computed) and least != ours:
            result.changes.append(
                Change(
                    "changed",
                    "method",
                    f"compressed-tensors {row.scheme}",
                    True,
                    aspect="min_capability",
                    facts=ours,
                    sources=least,
                    at=at,
                    fact_source=row.source,
                )
            )
    others = sorted(set(found) - {row.cls for row in known} - {"CompressedTensorsScheme"})
    result.gap("compressed-tensors schemes that the facts do not have at this version", others)
    return result

"""The table of variables in ``vllm/envs.py`` against the names that the facts have."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from precision_plan.drift.changes import Change
from precision_plan.drift.modules import Modules, Scope
from precision_plan.drift.source import VLLM
from precision_plan.drift.variables_against import is_precise
from precision_plan.drift.vllm_against import Compared
from precision_plan.facts.vllm_env_names import declared_names, vllm_env_names

_TABLE = "environment_variables"


def declared_variables(modules: Modules) -> dict[str, str] | None:
    """``path:line`` of every name that the table declares; ``None`` if there is no table."""
    module = modules.at(VLLM.anchor)
    table = module.definitions.get(_TABLE) if module else None
    if module is None or not isinstance(table, ast.Dict):
        return None
    scope = Scope(module)
    return {
        key.value: scope.where(key)
        for key in table.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def compare_declared(found: Mapping[str, str], vllm: str) -> Compared:
    """Names that appeared in the table or vanished from it."""
    result = Compared(count=len(found))
    known = declared_names(vllm)
    for name in sorted(known - set(found)):
        source = vllm_env_names()[name][-1].source
        change = Change("vanished", "variable", name, is_precise(name), fact_source=source)
        result.changes.append(change)
    for name in sorted(set(found) - known):
        runs = " and ".join(str(run.versions) for run in vllm_env_names().get(name, ()))
        note = f"in the facts for {runs}, not for {vllm}" if runs else None
        at = found[name]
        change = Change("appeared", "variable", name, is_precise(name), at=at, note=note)
        result.changes.append(change)
    return result

"""Checks a composition against the schema; what is refused is named, dropped and reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic import ValidationError

from precision_plan.compose.composition import Composition, origin_of
from precision_plan.compose.merge import MISSING, copied
from precision_plan.compose.suggest import printable
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.precision_plan import PrecisionPlan


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The plan without the values that the schema refused; ``invalid`` names their fields.

    ``assumed`` is the plan for rules to look at: where a refused value has an obvious way out, it
    is taken, so that ``fp8_format: e5m2`` does not hide what else is wrong with FP8.
    """

    plan: PrecisionPlan
    assumed: PrecisionPlan
    invalid: frozenset[str]
    diagnostics: tuple[Diagnostic, ...]


def build_plan(composition: Composition) -> PlanResult:
    """Validate ``composition``; unknown keys (PP002) and refused values (PP003, PP004, PP005) are
    reported all at once and left out of the plan."""
    data = _sections(composition)
    invalid: set[str] = set()
    diagnostics: list[Diagnostic] = []
    for path, code, why in list(_unusable(data, ())):
        field = ".".join(map(str, path))
        origin = origin_of(composition.origins, field)
        message = printable(f"{field} {why}")
        fix = (Fix("remove the key" if code == "PP002" else "write a value, or remove the key"),)
        diagnostics.append(compose_diagnostic(code, message, origin, field=field, fix=fix))
        invalid.add(field)
        _drop(data, path)
    plan = _validated(data, composition)
    while not isinstance(plan, PrecisionPlan):  # a refusal may hide another: a key, then its value
        from precision_plan.compose.refusals import refusals

        for refusal in list(refusals(plan, data, composition)):
            if refusal.text is not None:
                _replace(data, refusal.path, refusal.text)
                continue
            invalid.update(refusal.invalid)
            diagnostics.append(refusal.diagnostic)
            _drop(data, refusal.path)
        plan = _validated(data, composition)
    assumed = _assumed(data, diagnostics, composition) or plan
    diagnostics.extend(_undocumented(composition, plan))
    return PlanResult(plan, assumed, frozenset(invalid), tuple(diagnostics))


def _assumed(
    data: Mapping[str, Any], diagnostics: list[Diagnostic], composition: Composition
) -> PrecisionPlan | None:
    """The plan with the first fix of every refused value; ``None`` if there is none to take."""
    mended = copied(data)
    taken = False
    for found in diagnostics:
        value = found.fix[0].edits.get(found.field) if found.fix and found.field else None
        if found.id not in ("PP003", "PP004") or value is None or found.field is None:
            continue
        parent: Any = mended
        *sections, name = found.field.split(".")
        for section in sections:
            parent = parent.setdefault(section, {}) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent[name] = value
            taken = True
    plan = _validated(mended, composition) if taken else None
    return plan if isinstance(plan, PrecisionPlan) else None


_RESERVED = "origins"
"""A field of the plan that the composer fills, and no recipe."""


def _sections(composition: Composition) -> dict[str, Any]:
    """A copy for the schema: numbers in ``env`` as written, ``recipe.name`` filled in."""
    data = {
        section: copied(value) for section, value in composition.data.items() if value is not None
    }
    for field, text in composition.texts.items():
        if field.startswith("env.") and field.count(".") == 2:
            _replace(data, tuple(field.split(".")), text)
    recipe = data.setdefault("recipe", {})
    if isinstance(recipe, dict) and composition.recipe is not None:
        recipe.setdefault("name", composition.name)
    return data


def _validated(
    data: Mapping[str, Any], composition: Composition
) -> PrecisionPlan | ValidationError:
    try:
        return PrecisionPlan.model_validate({**data, "origins": composition.origins})
    except ValidationError as error:
        return error


def _unusable(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str, str]]:
    """Paths of what no schema lets through, whatever the type; code and reason of each."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not path and key == _RESERVED:
                yield (key,), "PP002", "is no section of the plan"
            elif not isinstance(key, str):
                yield (*path, key), "PP002", "is no text as a key: write it in quotes"
            else:
                yield from _unusable(value, (*path, key))
    elif isinstance(node, list):
        for item in node:  # a list is refused as a whole
            for _, code, why in _unusable(item, path):
                yield path, code, f"holds an item that {why}"
                return
    elif node == MISSING:
        yield path, "PP003", f"must be given: it is still {MISSING}"
    elif isinstance(node, float) and not isfinite(node):
        yield path, "PP003", f"is {node}; it takes a finite number"


def _undocumented(composition: Composition, plan: PrecisionPlan) -> list[Diagnostic]:
    if composition.recipe is None or any(map(is_broken_input, composition.diagnostics)):
        return []
    said = plan.recipe
    lacking = [name for name in ("title", "source", "maturity") if not getattr(said, name)]
    if not lacking:
        return []
    return [
        compose_diagnostic(
            "PP013",
            f"the recipe does not tell its {' or '.join(lacking)}",
            composition.origins.get("recipe", composition.recipe),
            field="recipe",
            fix=(Fix(f"add {', '.join(lacking)} below 'recipe:'"),),
        )
    ]


def _parent(data: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """The container of ``path`` and the key in it; ``(None, None)`` if there is none."""
    for part in path[:-1]:
        key = _key(data, part)
        if key is None:
            return None, None
        data = data[key]
    return data, _key(data, path[-1])


def _key(node: Any, part: Any) -> Any:
    if isinstance(node, list):
        index = int(part) if str(part).isdigit() else len(node)
        return index if index < len(node) else None
    if not isinstance(node, dict):
        return None
    return part if part in node else next((key for key in node if str(key) == str(part)), None)


def _drop(data: Any, path: tuple[Any, ...]) -> None:
    parent, key = _parent(data, path)
    if parent is not None and key is not None:
        del parent[key]


def _replace(data: Any, path: tuple[Any, ...], value: Any) -> None:
    parent, key = _parent(data, path)
    if parent is not None and key is not None:
        parent[key] = value

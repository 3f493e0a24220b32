"""Checks a composition against the schema; what is refused is named, dropped and reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic import ValidationError

from precision_plan.compose.composition import Composition, origin_of
from precision_plan.compose.merge import MISSING, copied
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.precision_plan import PrecisionPlan


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The plan without the values that the schema refused; ``invalid`` names their fields."""

    plan: PrecisionPlan
    invalid: frozenset[str]
    diagnostics: tuple[Diagnostic, ...]


def build_plan(composition: Composition) -> PlanResult:
    """Validate ``composition``; unknown keys (PP002) and refused values (PP003, PP004, PP005) are
    reported all at once and left out of the plan."""
    data = _sections(composition)
    invalid: set[str] = set()
    diagnostics: list[Diagnostic] = []
    for path, why in _valueless(data, ()):
        field = ".".join(map(str, path))
        diagnostics.append(_without_value(composition, field, why))
        invalid.add(field)
        _drop(data, path)
    plan = _validated(data, composition)
    while not isinstance(plan, PrecisionPlan):
        from precision_plan.compose.refusals import refusals

        for refusal in refusals(plan, data, composition):
            if refusal.text is not None:
                _replace(data, refusal.path, refusal.text)
                continue
            invalid.update(refusal.invalid)
            diagnostics.append(refusal.diagnostic)
            _drop(data, refusal.path)
        plan = _validated(data, composition)
    diagnostics.extend(_undocumented(composition, plan))
    return PlanResult(plan, frozenset(invalid), tuple(diagnostics))


def _sections(composition: Composition) -> dict[str, Any]:
    """A copy for the schema: numbers in ``env`` as written, ``recipe.name`` filled in."""
    data = {
        section: copied(value) for section, value in composition.data.items() if value is not None
    }
    for field, text in composition.texts.items():
        if field.startswith("env."):
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


def _valueless(node: dict[Any, Any], path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], str]]:
    """Paths of values that no schema lets through, whatever the type, and what is wrong."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for key, value in node.items():
        here = (*path, key)
        if isinstance(value, dict):
            found.extend(_valueless(value, here))
        elif isinstance(value, list):
            if any(_is_valueless(item) for item in value):
                found.append((here, "holds an item without a value"))
        elif value == MISSING:
            found.append((here, f"must be given: it is still {MISSING}"))
        elif _is_valueless(value):
            found.append((here, f"is {value}; it takes a finite number"))
    return found


def _is_valueless(value: Any) -> bool:
    return value == MISSING or (isinstance(value, float) and not isfinite(value))


def _without_value(composition: Composition, field: str, why: str) -> Diagnostic:
    return compose_diagnostic(
        "PP003",
        f"{field} {why}",
        origin_of(composition.origins, field),
        field=field,
        fix=(Fix(f"set {field}"),),
    )


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

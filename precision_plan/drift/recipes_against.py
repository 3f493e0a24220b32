"""Transformer Engine's recipe classes in the sources against those of the facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from precision_plan.drift.changes import Change
from precision_plan.drift.recipes import RecipeClass, RecipeField
from precision_plan.drift.values import Computed
from precision_plan.facts.transformer_engine import TeField, te_recipes


def compare_recipes(found: Iterable[RecipeClass], transformer_engine: str) -> Iterator[Change]:
    """Classes and fields that appeared, vanished or changed."""
    classes = {recipe.name: recipe for recipe in found}
    known = {
        name: recipe
        for name, recipe in te_recipes().items()
        if transformer_engine in recipe.versions
    }
    for name, recipe in known.items():
        if name not in classes:
            yield Change("vanished", "recipe", name, True, fact_source=recipe.source)
    for name, seen in classes.items():
        if name not in known:
            fields = [field.name for field in seen.fields]
            yield Change("appeared", "recipe", name, True, sources=fields, at=seen.source)
            continue
        ours = known[name].fields_at(transformer_engine)
        theirs = {field.name: field for field in seen.fields}
        for field in ours.values():
            if field.name not in theirs:
                label = f"{name}.{field.name}"
                yield Change("vanished", "recipe field", label, True, fact_source=field.source)
        for item in theirs.values():
            label = f"{name}.{item.name}"
            if item.name in ours:
                yield from _changed(label, ours[item.name], item)
            else:
                yield Change(
                    "appeared",
                    "recipe field",
                    label,
                    True,
                    sources=_described(item),
                    at=item.source,
                )


def _changed(label: str, ours: TeField, theirs: RecipeField) -> Iterator[Change]:
    aspects = [
        ("default", ours.default, theirs.default, _same_default(ours, theirs)),
        ("env", ours.env, _one(theirs.env), (ours.env,) == (theirs.env or (None,))),
        ("required", ours.required, theirs.required, ours.required == theirs.required),
        ("allowed", _allowed(ours.allowed), _restriction(theirs), _same_allowed(ours, theirs)),
    ]
    for aspect, our_value, their_value, same in aspects:
        if not same:
            yield Change(
                "changed",
                "recipe field",
                label,
                True,
                aspect=aspect,
                facts=our_value,
                sources=their_value,
                at=theirs.source,
                fact_source=ours.source,
            )


def _same_default(ours: TeField, theirs: RecipeField) -> bool:
    if isinstance(theirs.default, Computed):
        return True
    return bool(_thawed(ours.default) == theirs.default) and (
        isinstance(ours.default, bool) is isinstance(theirs.default, bool)
    )


def _same_allowed(ours: TeField, theirs: RecipeField) -> bool:
    """Unset does not count: the facts list what may be set.

    A value that the sources refuse by name must not be allowed; a list that the facts have must
    have its reason in the sources.
    """
    if theirs.allowed is not None:
        accepted = [item for item in theirs.allowed if item not in (None, *theirs.refused)]
        return _allowed(ours.allowed) == sorted(accepted, key=str)
    if theirs.refused:
        return ours.allowed is not None and not set(ours.allowed) & set(theirs.refused)
    return ours.allowed is None


def _allowed(values: Iterable[Any] | None) -> list[Any] | None:
    return None if values is None else sorted(map(_thawed, values), key=str)


def _restriction(field: RecipeField) -> Any:
    if field.allowed is not None:
        return _allowed(item for item in field.allowed if item is not None)
    return f"all but {', '.join(map(str, field.refused))}" if field.refused else None


def _thawed(value: Any) -> Any:
    """A read-only fact as plain data."""
    return dict(value) if hasattr(value, "keys") else value


def _one(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else list(names) or None


def _described(field: RecipeField) -> dict[str, Any]:
    default = str(field.default) if isinstance(field.default, Computed) else field.default
    shown = {"type": field.type, "default": default, "env": _one(field.env)}
    shown["allowed"] = _restriction(field)
    return {key: value for key, value in shown.items() if value is not None}

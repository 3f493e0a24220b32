"""Transformer Engine's recipe classes: fields, defaults, variables behind them, accepted values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from precision_plan.drift.dataclass_fields import (
    MISSING,
    DataclassField,
    FieldReader,
    is_dataclass,
)
from precision_plan.drift.modules import Found, Module, Modules, Scope
from precision_plan.drift.values import Computed, EnumClass, Values, plain, read_key

RECIPES = "transformer_engine.common.recipe"
BASE = "Recipe"


@dataclass(frozen=True, slots=True)
class RecipeField:
    """One constructor field.

    ``default`` is what holds when its variables are unset. ``allowed`` are the values that the
    assertions of ``__post_init__`` list, ``None`` if they list none; ``refused`` those that they
    exclude by name.
    """

    name: str
    type: str
    default: Any
    env: tuple[str, ...]
    allowed: tuple[Any, ...] | None
    refused: tuple[Any, ...]
    required: bool
    source: str


@dataclass(frozen=True, slots=True)
class RecipeClass:
    """One recipe."""

    name: str
    fields: tuple[RecipeField, ...]
    source: str


def read_recipes(modules: Modules, values: Values) -> list[RecipeClass] | None:
    """The recipe classes of a tree; ``None`` if it has no readable recipe module."""
    module = modules.named(RECIPES)
    if module is None:
        return None
    reader = FieldReader(modules, values)
    return [_recipe(found, reader, values) for found in _classes(module, modules)]


def _classes(module: Module, modules: Modules) -> Iterator[Found]:
    scope = Scope(module)
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and is_dataclass(node):
            found = Found(node, scope)
            if _derives(found, modules):
                yield found


def _derives(found: Found, modules: Modules) -> bool:
    if not isinstance(found.node, ast.ClassDef):
        return False
    bases = [modules.find_expression(base, found.scope) for base in found.node.bases]
    return any(
        isinstance(base, Found)
        and isinstance(base.node, ast.ClassDef)
        and (base.node.name == BASE or _derives(base, modules))
        for base in bases
    )


def _recipe(found: Found, reader: FieldReader, values: Values) -> RecipeClass:
    node = found.node
    assert isinstance(node, ast.ClassDef)
    checks = _Checks(node, found.scope, values)
    fields = tuple(_field(item, values, checks) for item in reader.of(found))
    return RecipeClass(node.name, fields, found.scope.where(node))


def _field(field: DataclassField, values: Values, checks: _Checks) -> RecipeField:
    default = field.default
    if isinstance(default, Computed) and field.value is not None:
        default = _constructed(field.value, field.scope, values)
    return RecipeField(
        name=field.name,
        type=ast.unparse(field.annotation),
        default=None if default is MISSING else plain(default),
        env=tuple(dict.fromkeys(_variables(field.value, field.scope, values))),
        allowed=checks.allowed(field),
        refused=tuple(plain(checks.refused.get(field.name, []))),
        required=default is MISSING,
        source=field.source,
    )


def _constructed(node: ast.expr, scope: Scope, values: Values) -> Any:
    """``Name(key=value)`` of constants as a mapping, the facts' form of parameter groups."""
    if isinstance(node, ast.Call) and not node.args and node.keywords:
        items = {item.arg: values.of(item.value, scope) for item in node.keywords}
        if None not in items and not any(isinstance(item, Computed) for item in items.values()):
            return items
    return Computed(ast.unparse(node))


def _variables(node: ast.expr | None, scope: Scope, values: Values) -> Iterator[str]:
    """Environment variables that an expression reads, also through a constant."""
    for part in ast.walk(node) if node is not None else ():
        key = read_key(part, scope) if isinstance(part, ast.expr) else None
        name = None if key is None else values.of(key, scope)
        if isinstance(name, str):
            yield name
        elif isinstance(part, ast.Name):
            found = values.modules.find(part.id, scope)
            if isinstance(found, Found) and isinstance(found.node, ast.expr):
                yield from _variables(found.node, found.scope, values)


class _Checks:
    """What the assertions of a recipe's ``__post_init__`` accept, field by field.

    Understood are ``self.f in VALUES``, ``self.f == V``, ``self.f != V``, ``self.f is None``,
    ``self.f``, ``not self.f``, ``self.f.part`` and conjunctions of them.
    """

    def __init__(self, node: ast.ClassDef, scope: Scope, values: Values) -> None:
        self.values = values
        self.sets: dict[str, list[Any]] = {}
        self.refused: dict[str, list[Any]] = {}
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__post_init__":
                inside = scope.inside(method.body)
                for statement in method.body:
                    if isinstance(statement, ast.Assert):
                        self._holds(statement.test, inside)

    def allowed(self, field: DataclassField) -> tuple[Any, ...] | None:
        """The values that an assertion or, failing that, the annotation lists for a field."""
        accepted = self.sets.get(field.name)
        return self._literal(field) if accepted is None else tuple(plain(accepted))

    def _literal(self, field: DataclassField) -> tuple[Any, ...] | None:
        """The texts of ``Literal[...]``, wherever it stands in the annotation."""
        for part in ast.walk(field.annotation):
            if isinstance(part, ast.Subscript) and ast.unparse(part.value).endswith("Literal"):
                items = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
                return tuple(plain(self.values.of(item, field.scope)) for item in items)
        return None

    def _holds(self, test: ast.expr, scope: Scope) -> None:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                self._holds(part, scope)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._accept(test.operand, [False])
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            self._compare(test, scope)
        else:
            self._accept(test, [True])

    def _compare(self, test: ast.Compare, scope: Scope) -> None:
        value = self.values.of(test.comparators[0], scope)
        if isinstance(value, Computed):
            return
        operation = test.ops[0]
        if isinstance(operation, ast.In) and isinstance(value, list | tuple | set | EnumClass):
            self._accept(test.left, list(value.members if isinstance(value, EnumClass) else value))
        elif isinstance(operation, ast.Eq | ast.Is):
            self._accept(test.left, [value])
        elif isinstance(operation, ast.NotEq | ast.IsNot):
            name = _own_field(test.left)
            if name is not None:
                self.refused.setdefault(name, []).append(value)

    def _accept(self, left: ast.expr, accepted: list[Any]) -> None:
        name = _own_field(left)
        if name is None and isinstance(left, ast.Attribute):  # self.group.part
            name = _own_field(left.value)
            accepted = [{left.attr: item} for item in accepted]
        if name is None:
            return
        before = self.sets.get(name)
        self.sets[name] = (
            accepted if before is None else [item for item in before if item in accepted]
        )


def _own_field(node: ast.expr) -> str | None:
    """``f`` of ``self.f``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else None
    return None

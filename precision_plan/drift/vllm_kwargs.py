"""What vLLM's ``get_kwargs`` makes of a configuration class: options of ``add_argument``.

vLLM writes its flags by hand, but takes their types, choices and defaults from the annotations
of dataclasses. The rules of ``vllm/engine/arg_utils.py`` stand here for annotations as syntax.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from precision_plan.drift.dataclass_fields import (
    MISSING,
    DataclassField,
    FieldReader,
    is_dataclass,
)
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, Values

Options = dict[str, Any]
"""Keyword arguments of ``add_argument``; what is not known is :class:`Computed`."""

DECORATORS = frozenset({"dataclass", "config"})
"""Decorators that make a class of vLLM a dataclass."""

JSON = "json"
_PLAIN = {"bool", "int", "float", "str", "dict", "list", "tuple", "set"}
_COLLECTIONS = ("tuple", "list", "set")
_WRAPPERS = {"Annotated", "SkipValidation", "Final", "Required", "NotRequired"}
_DEPTH = 12


class Hint(NamedTuple):
    """One alternative of an annotation.

    ``kind`` is a builtin's name, ``None``, ``literal``, ``dataclass`` or ``other``; ``values``
    are the members of a literal, ``of`` the elements of a collection.
    """

    kind: str
    values: tuple[Any, ...] = ()
    of: tuple[Hint, ...] = ()
    dataclass: Found | None = None


class KwargsReader:
    """Works out the options that each field of a configuration class gets."""

    def __init__(self, modules: Modules, values: Values) -> None:
        self.modules = modules
        self.values = values
        self.fields = FieldReader(modules, values, DECORATORS)

    def of(self, found: Found) -> dict[str, Options]:
        """Options by field name, as ``get_kwargs(found)`` returns them."""
        return {
            field.name: self._options(field)
            for field in self.fields.of(found)
            if base_text(field.annotation) != "ClassVar"
        }

    def field(self, found: Found, name: str) -> DataclassField | None:
        """One field of a class."""
        return next((field for field in self.fields.of(found) if field.name == name), None)

    def choices(self, field: DataclassField) -> tuple[Any, ...] | Computed | None:
        """The members of the literal in a field's annotation."""
        for hint in self._hints(field.annotation, field.scope, _DEPTH):
            if hint.kind == "literal":
                return _known(hint.values, field)
        return None

    def _options(self, field: DataclassField) -> Options:
        default = None if field.default is MISSING else field.default
        options: Options = {"default": default, "at": field.source}
        hints = tuple(self._hints(field.annotation, field.scope, _DEPTH))
        options.update(_typed(hints, field))
        for hint in hints:
            if hint.dataclass is not None:
                options["dataclass"] = hint.dataclass
        return options

    def _hints(self, node: ast.expr, scope: Scope, depth: int) -> Iterator[Hint]:
        if not depth:
            yield Hint("other")
            return
        if isinstance(node, ast.Constant):
            yield from self._constant(node, scope, depth)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self._hints(node.left, scope, depth)
            yield from self._hints(node.right, scope, depth)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, scope, depth)
        else:
            yield from self._named(node, scope, depth)

    def _constant(self, node: ast.Constant, scope: Scope, depth: int) -> Iterator[Hint]:
        if node.value is None:
            yield Hint("None")
        elif isinstance(node.value, str):  # an annotation in quotes
            try:
                inner = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                yield Hint("other")
            else:
                yield from self._hints(inner, scope, depth - 1)
        else:
            yield Hint("other")

    def _subscript(self, node: ast.Subscript, scope: Scope, depth: int) -> Iterator[Hint]:
        name = base_text(node)
        inner = node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Literal":
            yield Hint("literal", tuple(self._members(parts, scope, depth)))
        elif name == "Optional":
            yield from self._hints(inner, scope, depth - 1)
            yield Hint("None")
        elif name == "Union":
            for part in parts:
                yield from self._hints(part, scope, depth - 1)
        elif name in _WRAPPERS:
            yield from self._hints(parts[0], scope, depth - 1)
        elif name.lower() in _PLAIN:
            ellipsis = any(isinstance(p, ast.Constant) and p.value is ... for p in parts)
            of = tuple(self._hints(parts[0], scope, depth - 1))
            yield Hint(name.lower(), (len(parts), ellipsis), of)
        else:
            yield Hint("other")

    def _members(self, parts: list[ast.expr], scope: Scope, depth: int) -> Iterator[Any]:
        """Members of ``Literal[...]``; a literal inside of one is flattened."""
        for part in parts:
            inner = None
            if not isinstance(part, ast.Constant):
                inner = list(self._hints(part, scope, depth - 1))
            if inner and all(hint.kind == "literal" for hint in inner):
                yield from (value for hint in inner for value in hint.values)
            else:
                yield self.values.of(part, scope)

    def _named(self, node: ast.expr, scope: Scope, depth: int) -> Iterator[Hint]:
        name = ast.unparse(node)
        found = self._runtime(name, scope) or self.modules.find_expression(node, scope)
        if isinstance(found, Found) and isinstance(found.node, ast.ClassDef):
            bases = {ast.unparse(base) for base in found.node.bases}
            if is_dataclass(found.node, DECORATORS):
                yield Hint("dataclass", dataclass=found)
            else:
                yield Hint("dict" if bases & {"dict", "Dict"} else "other")
        elif isinstance(found, Found) and isinstance(found.node, ast.expr):
            yield from self._hints(found.node, found.scope, depth - 1)
        elif found is None and name in _PLAIN:
            yield Hint(name, (0, False))
        else:
            yield Hint("other")

    def _runtime(self, name: str, scope: Scope) -> Found | None:
        """What ``else`` of ``if TYPE_CHECKING`` binds a name to: that is what vLLM sees."""
        for statement in scope.module.tree.body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                bound = Scope(scope.module).inside(statement.orelse).local.get(name)
                if isinstance(bound, ast.expr):
                    return Found(bound, scope)
        return None


def base_text(node: ast.expr) -> str:
    """The last word of an annotation without its arguments."""
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).rpartition(".")[2]


def _known(values: tuple[Any, ...], field: DataclassField) -> tuple[Any, ...] | Computed:
    if any(isinstance(value, Computed) for value in values):
        return Computed(ast.unparse(field.annotation))
    return values


def _typed(hints: tuple[Hint, ...], field: DataclassField) -> Options:
    """``type``, ``choices``, ``nargs`` and ``action``, by the order of vLLM's own tests."""
    kinds = {hint.kind for hint in hints}
    by_kind = {hint.kind: hint for hint in hints}
    if "dataclass" in kinds:
        return {"type": JSON}
    if kinds == {"bool", "str", "None"}:
        return {"type": "str", "nargs": "?"}
    if "bool" in kinds:
        return {"action": "boolean_optional"}
    if "literal" in kinds:
        return _literal(by_kind["literal"], "str" in kinds, "None" in kinds, field)
    for kind in _COLLECTIONS:
        if kind in kinds:
            return _collection(by_kind[kind], kind, field)
    for kind in ("int", "float"):
        if kind in kinds:
            return {"type": kind}
    if "dict" in kinds:
        return {"type": JSON}
    return {"type": "str"}


def _literal(hint: Hint, with_str: bool, with_none: bool, field: DataclassField) -> Options:
    values = _known(hint.values, field)
    if isinstance(values, Computed):
        return {"type": values, "choices": None if with_str else values}
    options: Options = {"type": type(values[0]).__name__ if values else "str"}
    if not with_str:
        options["choices"] = (*_sorted(values), *((None,) if with_none else ()))
    return options


def _sorted(values: tuple[Any, ...]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of several types, which vLLM itself refuses
        return sorted(values, key=str)


def _collection(hint: Hint, kind: str, field: DataclassField) -> Options:
    count, ellipsis = hint.values
    fixed = kind == "tuple" and not ellipsis and count
    options: Options = {"nargs": count if fixed else "+"}
    of = hint.of
    if len(of) == 1 and of[0].kind == "literal":
        options.update(_literal(of[0], False, False, field))
    else:
        options["type"] = of[0].kind if len(of) == 1 else "str"
    return options

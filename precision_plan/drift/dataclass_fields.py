"""Fields of dataclasses, by the rules of :mod:`dataclasses`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Values

_DATACLASS = frozenset({"dataclass"})
_FIELD = ("dataclasses.field", "pydantic.dataclasses.field")
_PYDANTIC_FIELD = ("pydantic.Field", "pydantic.fields.Field")


class _Missing:
    """A field without a default."""

    def __repr__(self) -> str:
        return "required"


MISSING = _Missing()


@dataclass(frozen=True, slots=True, eq=False)
class DataclassField:
    """One field; ``owner`` is the class whose body declares it, ``source`` is ``path:line``.

    ``default`` is :data:`MISSING` if there is none, ``value`` the expression after ``=``.
    """

    owner: str
    name: str
    annotation: ast.expr
    default: Any
    source: str
    scope: Scope
    value: ast.expr | None = None
    init: bool = True
    argparse_meta: ast.expr | None = None


class FieldReader:
    """Reads dataclasses of one tree."""

    def __init__(
        self,
        modules: Modules,
        values: Values,
        decorators: frozenset[str] = _DATACLASS,
    ) -> None:
        self.modules = modules
        self.values = values
        self.decorators = decorators
        self._known: dict[int, dict[str, DataclassField]] = {}

    def of(self, found: Found) -> list[DataclassField]:
        """All fields of a class, inherited ones first, as :func:`dataclasses.fields` has them."""
        return list(self._fields(found).values())

    def _fields(self, found: Found) -> dict[str, DataclassField]:
        node = found.node
        if not isinstance(node, ast.ClassDef):
            return {}
        if id(node) in self._known:
            return self._known[id(node)]
        fields: dict[str, DataclassField] = {}
        self._known[id(node)] = fields
        for base in reversed(node.bases):
            inherited = self.modules.find_expression(base, found.scope)
            if isinstance(inherited, Found):
                fields.update(self._fields(inherited))
        if is_dataclass(node, self.decorators):
            body = found.scope.inside(node.body)
            for statement in node.body:
                field = self._field(node.name, statement, body)
                if field is not None:
                    fields[field.name] = field
        return fields

    def _field(self, owner: str, statement: ast.stmt, scope: Scope) -> DataclassField | None:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            return None
        if base_name(statement.annotation) in ("ClassVar", "InitVar", "KW_ONLY"):
            return None
        options = self._field_options(statement.value, scope)
        default: Any = MISSING
        if options is None:
            if statement.value is not None:
                default = self.values.of(statement.value, scope)
            options = {}
        elif "default" in options:
            default = self.values.of(options["default"], scope)
        elif "default_factory" in options:
            default = self._made(options["default_factory"], scope)
        init = self.values.of(options["init"], scope) if "init" in options else True
        return DataclassField(
            owner=owner,
            name=statement.target.id,
            annotation=statement.annotation,
            default=default,
            source=scope.where(statement),
            scope=scope,
            value=statement.value,
            init=init is not False,
            argparse_meta=self._meta(options.get("metadata")),
        )

    def _field_options(self, node: ast.expr | None, scope: Scope) -> dict[str, ast.expr] | None:
        """The keyword arguments of ``field(...)``; ``None`` if ``node`` is something else.

        The first argument of pydantic's ``Field`` is its default; ``...`` there means none.
        """
        if not isinstance(node, ast.Call):
            return None
        called = self.modules.find_expression(node.func, scope)
        options = {item.arg: item.value for item in node.keywords if item.arg}
        if called in _PYDANTIC_FIELD:
            if node.args:
                options["default"] = node.args[0]
            default = options.get("default")
            if isinstance(default, ast.Constant) and default.value is ...:
                del options["default"]
            return options
        return options if called in _FIELD else None

    def _made(self, factory: ast.expr, scope: Scope) -> Any:
        if isinstance(factory, ast.Lambda):
            return self.values.of(factory.body, scope)
        call = ast.copy_location(ast.Call(func=factory, args=[], keywords=[]), factory)
        return self.values.of(call, scope)

    @staticmethod
    def _meta(metadata: ast.expr | None) -> ast.expr | None:
        if isinstance(metadata, ast.Dict):
            for key, value in zip(metadata.keys, metadata.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "argparse_meta":
                    return value
        return None


def base_name(annotation: ast.expr) -> str:
    """The last word of an annotation without its arguments: ``list`` of ``list[int]``."""
    node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return ast.unparse(node).rpartition(".")[2]


def is_dataclass(node: ast.ClassDef, names: frozenset[str] = _DATACLASS) -> bool:
    """True if a decorator with one of ``names`` (with or without arguments) stands on the class."""
    decorators = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return any(ast.unparse(item).rpartition(".")[2] in names for item in decorators)

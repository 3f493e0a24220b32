"""Values of Python expressions, worked out from their syntax.

Only what declarations use is understood: literals, constants of other modules, enumerations,
arithmetic, comprehensions over them, and reads of the environment, which count as unset.
Everything else is :class:`Computed`: known to be there, not known in value.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.drift.modules import Found, Modules, Scope

_LARGEST = 1 << 512
_LARGEST_POWER = 4096
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that only running the code would tell; ``text`` is its expression."""

    text: str

    def __str__(self) -> str:
        return f"computed: {self.text}"


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member of an enumeration of the sources."""

    enum: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class EnumClass:
    """An enumeration of the sources with its members in order."""

    name: str
    members: tuple[EnumMember, ...]


class _Unknown(Exception):
    """The expression cannot be worked out."""


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARE: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    "bool": bool,
    "dict": dict,
    "float": float,
    "frozenset": frozenset,
    "int": int,
    "len": len,
    "list": list,
    "range": range,
    "set": set,
    "sorted": sorted,
    "str": str,
    "tuple": tuple,
}
_METHODS = frozenset({"upper", "lower", "strip", "split", "keys", "values", "items", "join"})
_ENUM_BASES = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "enum.")
    for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")
)


def plain(value: Any) -> Any:
    """A value in the terms of the facts: enumeration members by name, sequences as lists."""
    if isinstance(value, EnumMember):
        return value.name
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


class Values:
    """Evaluates expressions of one tree."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._open: set[int] = set()
        self._enums: dict[int, EnumClass | None] = {}

    def of(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression, :class:`Computed` if it cannot be told."""
        try:
            return self._value(node, scope)
        except (_Unknown, RecursionError):
            return Computed(ast.unparse(node))

    def enum(self, found: Found | str | None) -> EnumClass | None:
        """The enumeration that a definition is, if it is one."""
        if not isinstance(found, Found) or not isinstance(found.node, ast.ClassDef):
            return None
        key = id(found.node)
        if key not in self._enums:
            self._enums[key] = None  # a class that is its own base is no enumeration
            self._enums[key] = self._enum(found.node, found.scope)
        return self._enums[key]

    def _enum(self, node: ast.ClassDef, scope: Scope) -> EnumClass | None:
        bases = [self.modules.find_expression(base, scope) for base in node.bases]
        if not any(
            base in _ENUM_BASES if isinstance(base, str) else self.enum(base) for base in bases
        ):
            return None
        inside = scope.inside(node.body)
        members = []
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if not name.startswith("_"):
                    value = self.of(statement.value, inside)
                    members.append(EnumMember(node.name, name, value))
        return EnumClass(node.name, tuple(members))

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self._compute(node, scope)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise _Unknown from error

    def _compute(self, node: ast.expr, scope: Scope) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = list(self._items(node.elts, scope))
            return {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)](items)
        if isinstance(node, ast.Dict):
            return self._dict(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._comprehension(node, scope)
        if isinstance(node, ast.JoinedStr):
            return "".join(str(self._value(part, scope)) for part in node.values)
        if isinstance(node, ast.FormattedValue) and node.format_spec is None:
            return self._value(node.value, scope)
        if isinstance(node, ast.Subscript):
            return self._value(node.value, scope)[self._value(node.slice, scope)]
        return self._operation(node, scope)

    def _operation(self, node: ast.expr, scope: Scope) -> Any:
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._value(node.operand, scope))
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, scope)
        if isinstance(node, ast.IfExp):
            chosen = node.body if self._value(node.test, scope) else node.orelse
            return self._value(chosen, scope)
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)  # the first value with this truth decides
            for part in node.values:
                value = self._value(part, scope)
                if bool(value) is wanted:
                    break
            return value
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._value(node.left, scope), self._value(node.comparators[0], scope)
            return _COMPARE[type(node.ops[0])](left, right)
        raise _Unknown

    def _arithmetic(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        if isinstance(node.op, ast.Pow | ast.LShift | ast.Mult):
            # What is read is not trusted to be small: 9**9**9 must not be worked out.
            if not isinstance(left, int | float) or not isinstance(right, int | float):
                raise _Unknown
            if not isinstance(node.op, ast.Mult) and max(abs(left), abs(right)) > _LARGEST_POWER:
                raise _Unknown
        value = _BINARY[type(node.op)](left, right)
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise _Unknown
        return value

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        if node.id in scope.bound:
            return scope.bound[node.id]
        return self._definition(self.modules.find(node.id, scope))

    def _definition(self, found: Found | str | None) -> Any:
        if not isinstance(found, Found):
            raise _Unknown
        enum = self.enum(found)
        if enum is not None:
            return enum
        if isinstance(found.node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            raise _Unknown
        if id(found.node) in self._open:  # a name defined by itself
            raise _Unknown
        self._open.add(id(found.node))
        try:
            return self._value(found.node, found.scope)
        finally:
            self._open.discard(id(found.node))

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        found = self.modules.find_expression(node, scope)
        if found is not None:
            return self._definition(found)
        owner = self._value(node.value, scope)
        if isinstance(owner, EnumClass):
            for member in owner.members:
                if member.name == node.attr:
                    return member
        if isinstance(owner, EnumMember) and node.attr in ("name", "value"):
            return self._known(getattr(owner, node.attr))
        raise _Unknown

    @staticmethod
    def _known(value: Any) -> Any:
        if isinstance(value, Computed):
            raise _Unknown
        return value

    def _items(self, nodes: list[ast.expr], scope: Scope) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._iterate(self._value(node.value, scope))
            else:
                yield self._value(node, scope)

    def _dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        pairs: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:  # **other
                pairs.update(self._value(value, scope))
            else:
                pairs[self._value(key, scope)] = self._value(value, scope)
        return pairs

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        if read_key(node, scope) is not None:
            return self._value(node.args[1], scope) if len(node.args) > 1 else None
        arguments = list(self._items(node.args, scope))
        keywords = {item.arg or "": self._value(item.value, scope) for item in node.keywords}
        if "" in keywords:
            raise _Unknown
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            owner = self._value(node.func.value, scope)
            if not isinstance(owner, str | dict):
                raise _Unknown
            return getattr(owner, node.func.attr)(*arguments, **keywords)
        if isinstance(node.func, ast.Name) and self.modules.find(node.func.id, scope) is None:
            arguments = [
                value.members if isinstance(value, EnumClass) else value for value in arguments
            ]
            value = _BUILTINS[node.func.id](*arguments, **keywords)
            if isinstance(value, range) and len(value) > _LONGEST:
                raise _Unknown
            return value
        raise _Unknown

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope
    ) -> list[Any]:
        loop = node.generators[0]
        if len(node.generators) > 1 or not isinstance(loop.target, ast.Name):
            raise _Unknown
        values = []
        for item in self._iterate(self._value(loop.iter, scope)):
            inner = scope.binding(**{loop.target.id: item})
            if all(self._value(test, inner) for test in loop.ifs):
                values.append(self._value(node.elt, inner))
        return values

    @staticmethod
    def _iterate(value: Any) -> Iterator[Any]:
        if isinstance(value, EnumClass):
            return iter(value.members)
        return iter(value)


def is_environ(node: ast.expr, scope: Scope) -> bool:
    """True for ``os.environ``, however it was imported."""
    return Modules.imported(node, scope) == "os.environ"


def read_key(node: ast.expr, scope: Scope) -> ast.expr | None:
    """The key of a read: ``os.getenv(K)``, ``os.environ[K]`` and ``os.environ.get(K)``."""
    if isinstance(node, ast.Subscript):
        return node.slice if is_environ(node.value, scope) else None
    if not isinstance(node, ast.Call) or not node.args:
        return None
    if Modules.imported(node.func, scope) == "os.getenv":
        return node.args[0]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault"):
        return node.args[0] if is_environ(node.func.value, scope) else None
    return None

"""Python modules of a source tree, parsed on demand, and the names that they define."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from precision_plan.drift.source import SourceTree

_HOPS = 12  # imports that are followed to find a name; guards against circles


@dataclass(frozen=True, slots=True)
class Import:
    """A name that an import statement binds: a module, or ``name`` of a module."""

    module: str
    name: str | None


Definition = ast.expr | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | Import


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One parsed file."""

    name: str
    path: str
    tree: ast.Module
    definitions: Mapping[str, Definition]
    stars: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Where an expression stands: its module, and the names bound around it.

    ``local`` holds definitions of an enclosing function or class body, ``bound`` values of
    comprehension variables.
    """

    module: Module
    local: Mapping[str, Definition] = field(default_factory=dict)
    bound: Mapping[str, Any] = field(default_factory=dict)

    def inside(self, body: Iterable[ast.stmt]) -> Scope:
        """The scope of a function's or class's body that stands in this one."""
        found, _ = _definitions(body, self.module.name, self.module.path)
        return replace(self, local={**self.local, **found})

    def binding(self, **values: Any) -> Scope:
        """The scope with further variables."""
        return replace(self, bound={**self.bound, **values})

    def where(self, node: ast.expr | ast.stmt) -> str:
        """``path:line`` of a node."""
        return f"{self.module.path}:{node.lineno}"


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A definition and the scope that it stands in."""

    node: ast.expr | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    scope: Scope


class Modules:
    """The modules of one tree. ``unreadable`` maps a path to why it could not be parsed."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.unreadable: dict[str, str] = {}
        self._parsed: dict[str, Module | None] = {}

    def at(self, path: str) -> Module | None:
        """The module in one file; ``None`` if it is absent or no Python of this interpreter."""
        if path not in self._parsed:
            self._parsed[path] = self._parse(path) if path in self.tree else None
        return self._parsed[path]

    def named(self, dotted: str) -> Module | None:
        """The module with an import name."""
        path = dotted.replace(".", "/")
        return self.at(f"{path}.py") or self.at(f"{path}/__init__.py")

    def find(self, name: str, scope: Scope) -> Found | str | None:
        """What a name means in a scope.

        Returns:
            The definition; the dotted name if it is imported from outside of the tree; ``None``
            if nothing here binds it (a builtin, or a parameter).
        """
        defined = scope.local.get(name)
        if defined is None:
            return self._global(name, scope.module, _HOPS)
        return self._follow(defined, scope, _HOPS)

    @staticmethod
    def imported(node: ast.expr, scope: Scope) -> str | None:
        """The dotted name that an import in this file gives to a name or attribute.

        No other file is looked at: ``os.environ`` is recognised, a re-export of it is not.
        """
        if isinstance(node, ast.Attribute):
            owner = Modules.imported(node.value, scope)
            return None if owner is None else f"{owner}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        defined = scope.local.get(node.id) or scope.module.definitions.get(node.id)
        if not isinstance(defined, Import):
            return None
        return defined.module if defined.name is None else f"{defined.module}.{defined.name}"

    def find_expression(self, node: ast.expr, scope: Scope) -> Found | str | None:
        """:meth:`find` for a name, or for attributes of an imported module."""
        if isinstance(node, ast.Name):
            return self.find(node.id, scope)
        if not isinstance(node, ast.Attribute):
            return None
        owner = self.imported(node.value, scope)
        if owner is None:
            return None
        module = self.named(owner)
        if module is not None:
            return self._global(node.attr, module, _HOPS)
        # `Class.attribute` of this tree is no name from outside of it
        inside = self.named(owner.rpartition(".")[0]) is not None
        return None if inside else f"{owner}.{node.attr}"

    def _global(self, name: str, module: Module, hops: int) -> Found | str | None:
        defined = module.definitions.get(name)
        if defined is not None:
            return self._follow(defined, Scope(module), hops)
        for star in module.stars if hops else ():
            starred = self.named(star)
            found = self._global(name, starred, hops - 1) if starred else None
            if found is not None:
                return found
        return None

    def _follow(self, defined: Definition, scope: Scope, hops: int) -> Found | str | None:
        if not isinstance(defined, Import):
            return Found(defined, scope)
        if defined.name is None:
            return defined.module
        module = self.named(defined.module)
        if module is None or not hops:
            return f"{defined.module}.{defined.name}"
        return self._global(defined.name, module, hops - 1)

    def _parse(self, path: str) -> Module | None:
        try:
            tree = ast.parse(self.tree.text(path))
        except (SyntaxError, ValueError, RecursionError) as error:
            self.unreadable[path] = str(error)
            return None
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        definitions, stars = _definitions(tree.body, name, path)
        return Module(name, path, tree, definitions, tuple(stars))


def _definitions(
    body: Iterable[ast.stmt], module: str, path: str
) -> tuple[dict[str, Definition], list[str]]:
    """Names bound by statements, and the modules whose names are all imported.

    A later binding wins, but what stands in an ``else`` or ``except`` is the fallback.
    """
    found: dict[str, Definition] = {}
    stars: list[str] = []
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            origin = _origin(statement, module, path)
            for alias in statement.names:
                if alias.name == "*":
                    stars.append(origin)
                else:
                    found[alias.asname or alias.name] = Import(origin, alias.name)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = Import(alias.name if alias.asname else top, None)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = statement.value
        elif isinstance(statement, ast.AnnAssign):
            if isinstance(statement.target, ast.Name) and statement.value is not None:
                found[statement.target.id] = statement.value
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            first, more = _definitions(statement.body, module, path)
            found.update(first)
            stars += more
            for block in _fallbacks(statement):
                other, more = _definitions(block, module, path)
                stars += more
                for name, definition in other.items():
                    found.setdefault(name, definition)
    return found, stars


def _fallbacks(statement: ast.If | ast.Try | ast.With) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, ast.With):
        return
    if isinstance(statement, ast.Try):
        yield statement.finalbody
        for handler in statement.handlers:
            yield handler.body
    yield statement.orelse


def _origin(statement: ast.ImportFrom, module: str, path: str) -> str:
    """The absolute name of the module that an import statement names."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    if not path.endswith("/__init__.py"):
        parts.pop()
    parts = parts[: len(parts) - (statement.level - 1)]
    return ".".join(part for part in (*parts, statement.module) if part)

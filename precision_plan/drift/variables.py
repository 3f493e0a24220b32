"""Environment variables that a source tree reads or sets.

Python is read by syntax: the calls and subscripts of ``os.environ`` and ``os.getenv``, loops over
constant names, and functions that read the variable whose name they are given. C++ and CUDA
sources, where a tree has them, are searched for ``getenv("NAME")``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from precision_plan.drift.modules import Found, Module, Modules, Scope
from precision_plan.drift.values import Computed, Values, is_environ, read_key

_NATIVE = (".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp")
_TOUCHES = re.compile(r"environ|getenv")
_NATIVE_READ = re.compile(
    r'\bgetenv\s*(?:<[^<>]*>)?\s*\(\s*"(?P<name>\w+)"(?:\s*,\s*(?P<default>[^(),;]+?)\s*\))?'
)
_QUOTED = re.compile(r"""["']([A-Z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)["']""")
_LITERAL = re.compile(r'"([^"]*)"|(-?\d+(?:\.\d+)?)|true|false')


@dataclass(slots=True)
class Variable:
    """One variable: where it is read and set (``path:line``), and what it counts as if unset."""

    name: str
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    defaults: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Environment:
    """What a tree does with the environment.

    ``quoted`` are names that stand in a text constant somewhere, whatever is done with them;
    ``unnamed`` are the reads (``path:line``) of names that only running the code would tell.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    quoted: set[str] = field(default_factory=set)
    unnamed: list[str] = field(default_factory=list)
    has_native: bool = False

    def variable(self, name: str) -> Variable:
        """The entry of a name, made if it is new."""
        return self.variables.setdefault(name, Variable(name))


def read_environment(
    modules: Modules, values: Values, folder: str, without: tuple[str, ...] = ()
) -> Environment:
    """Everything below ``folder`` that reads or sets environment variables.

    Args:
        without: beginnings or ends of paths that are left out (parts that the facts do not cover).
    """
    found = Environment()
    wrappers: dict[tuple[str, str], int] = {}
    paths = [
        path
        for path in modules.tree.under(folder, ".py", *_NATIVE)
        if not path.startswith(without) and not path.endswith(without)
    ]
    for module in _containing(modules, paths, _TOUCHES):
        reader = _ModuleReader(module, modules, values, found)
        reader.visit(module.tree)
        wrappers.update(reader.wrappers)
    if wrappers:
        _read_calls(modules, values, paths, wrappers, found)
    for path in paths:
        text = modules.tree.text(path)
        found.quoted.update(_QUOTED.findall(text))
        if not path.endswith(".py"):
            _read_native(path, text, found)
    return found


def _containing(modules: Modules, paths: Iterable[str], text: re.Pattern[str]) -> Iterator[Module]:
    """The Python modules whose text matches: only those are worth parsing."""
    for path in paths:
        if path.endswith(".py") and text.search(modules.tree.text(path)):
            module = modules.at(path)
            if module is not None:
                yield module


class _ScopedVisitor(ast.NodeVisitor):
    """Visits a module and knows the scope and the parameters around each node."""

    def __init__(
        self, module: Module, modules: Modules, values: Values, found: Environment
    ) -> None:
        self.module = module
        self.modules = modules
        self.values = values
        self.found = found
        self.scope = Scope(module)
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.loops: list[tuple[ast.expr, ast.expr]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer = self.scope
        self.scope = outer.inside(node.body)
        self.generic_visit(node)
        self.scope = outer

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self.scope
        self.scope = outer.inside(node.body)
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()
        self.scope = outer

    def visit_For(self, node: ast.For) -> None:
        self.loops.append((node.target, node.iter))
        self.generic_visit(node)
        self.loops.pop()

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.DictComp) -> None:
        loops = [(item.target, item.iter) for item in node.generators]
        self.loops += loops
        self.generic_visit(node)
        del self.loops[len(self.loops) - len(loops) :]

    def names(self, key: ast.expr) -> list[str] | None:
        """The names that a key may be; ``None`` if only running the code would tell."""
        value = self.values.of(key, self.scope)
        if isinstance(value, str):
            return [value]
        if not isinstance(key, ast.Name):
            return None
        for target, iterable in reversed(self.loops):
            items = self.values.of(iterable, self.scope)
            if not isinstance(items, Computed):
                names = [_picked(target, item, key.id) for item in _listed(items)]
                if names and all(isinstance(name, str) for name in names):
                    return [str(name) for name in names]
        return None


def _listed(items: Any) -> list[Any]:
    return list(items) if isinstance(items, Iterable) and not isinstance(items, str) else []


def _named(function: ast.expr, *names: str) -> bool:
    """Whether a called expression is a name, or ends in an attribute, that is one of ``names``."""
    if isinstance(function, ast.Name):
        return function.id in names
    return isinstance(function, ast.Attribute) and function.attr in names


def _tables(call: ast.Call) -> list[ast.Dict]:
    return [item for item in call.args if isinstance(item, ast.Dict)]


def _picked(target: ast.expr, item: Any, name: str) -> Any:
    """What a loop target binds to ``name`` when it takes ``item``."""
    if isinstance(target, ast.Name):
        return item if target.id == name else None
    if isinstance(target, ast.Tuple) and isinstance(item, tuple | list):
        for part, inner in zip(target.elts, item, strict=False):
            if isinstance(part, ast.Name) and part.id == name:
                return inner
    return None


class _ModuleReader(_ScopedVisitor):
    """Reads and writes of one module, and its functions that read what they are told to."""

    def __init__(
        self, module: Module, modules: Modules, values: Values, found: Environment
    ) -> None:
        super().__init__(module, modules, values, found)
        self.wrappers: dict[tuple[str, str], int] = {}

    def visit_Call(self, node: ast.Call) -> None:
        key = read_key(node, self.scope)
        if key is not None and _named(node.func, "setdefault"):
            self._write(node, key)
        elif key is not None:
            default = node.args[1] if len(node.args) > 1 else None
            default = next((k.value for k in node.keywords if k.arg == "default"), default)
            self._read(node, key, default)
        elif Modules.imported(node.func, self.scope) == "os.environ.update":
            for item in (key for table in _tables(node) for key in table.keys):
                if item is not None:
                    self._write(node, item)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if is_environ(node.value, self.scope):
            if isinstance(node.ctx, ast.Load):
                self._read(node, node.slice, None)
            else:
                self._write(node, node.slice)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        container = node.comparators[0]
        if isinstance(node.ops[0], ast.In | ast.NotIn) and is_environ(container, self.scope):
            self._read(node, node.left, None)
        self.generic_visit(node)

    def _read(self, node: ast.expr, key: ast.expr, default: ast.expr | None) -> None:
        names = self.names(key)
        if names is None:
            if not self._wraps(key):
                self.found.unnamed.append(self.scope.where(node))
            return
        for name in names:
            variable = self.found.variable(name)
            variable.reads.append(self.scope.where(node))
            if default is not None:
                variable.defaults.add(_text(self.values.of(default, self.scope)))

    def _write(self, node: ast.expr, key: ast.expr) -> None:
        for name in self.names(key) or ():
            self.found.variable(name).writes.append(self.scope.where(node))

    def _wraps(self, key: ast.expr) -> bool:
        """Note the function if ``key`` is one of its parameters."""
        for function in reversed(self.functions):
            parameters = [item.arg for item in function.args.args]
            if isinstance(key, ast.Name) and key.id in parameters:
                position = parameters.index(key.id) - (parameters[0] in ("self", "cls"))
                self.wrappers[self.module.path, function.name] = position
                return True
        return False


class _CallReader(_ScopedVisitor):
    """Calls of functions that read the variable whose name they are given."""

    def __init__(
        self,
        module: Module,
        modules: Modules,
        values: Values,
        found: Environment,
        wrappers: dict[tuple[str, str], int],
    ) -> None:
        super().__init__(module, modules, values, found)
        self.wrappers = wrappers
        self.called = {name for _, name in wrappers}

    def visit_Call(self, node: ast.Call) -> None:
        if _named(node.func, *self.called):
            name = ast.unparse(node.func).rpartition(".")[2]
            target = self.modules.find_expression(node.func, self.scope)
            path = target.scope.module.path if isinstance(target, Found) else self.module.path
            position = self.wrappers.get((path, name), len(node.args))
            for key in node.args[position : position + 1]:
                for variable in self.names(key) or ():
                    self.found.variable(variable).reads.append(self.scope.where(node))
        self.generic_visit(node)


def _read_calls(
    modules: Modules,
    values: Values,
    paths: Iterable[str],
    wrappers: dict[tuple[str, str], int],
    found: Environment,
) -> None:
    called = re.compile("|".join(rf"\b{name}\(" for name in sorted({n for _, n in wrappers})))
    for module in _containing(modules, paths, called):
        _CallReader(module, modules, values, found, wrappers).visit(module.tree)


def _read_native(path: str, text: str, found: Environment) -> None:
    found.has_native = found.has_native or path.endswith((".cpp", ".cu"))
    for match in _NATIVE_READ.finditer(text):
        variable = found.variable(match["name"])
        variable.reads.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}")
        default = _LITERAL.fullmatch(match["default"] or "")
        if default is not None:
            variable.defaults.add(_native_literal(default[0]))


def _native_literal(text: str) -> str:
    return {"true": "1", "false": "0"}.get(text, text.strip('"'))


def _text(value: Any) -> str:
    """A default as the text that a variable would hold."""
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return {"True": "1", "False": "0"}.get(text, text)

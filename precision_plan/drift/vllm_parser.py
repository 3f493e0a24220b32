"""The flags of ``vllm serve``, from the functions that fill its parser.

They are followed statement by statement, because vLLM takes the options of most flags from a
table (``model_kwargs = get_kwargs(ModelConfig)``) and changes some of its entries on the way.
What is done to an entry and not understood leaves that option :class:`Computed`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from precision_plan.drift.argparse_rules import Flag, assemble
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.parser_functions import Unread
from precision_plan.drift.values import Computed, Values
from precision_plan.drift.vllm_kwargs import JSON, KwargsReader, Options

Bound = dict[str, Any]
"""Options of one flag, or a table that has the options of a field under its name."""
_CLI_ARGS = re.compile(r"^vllm/entrypoints/.*cli_args\.py$")
_START = "make_arg_parser"
ENGINE_FILE = "vllm/engine/arg_utils.py"
_ENGINE = ("AsyncEngineArgs", "add_cli_args")
_JSON_TYPES = re.compile(r"json\.loads|union_dict_and_str")
_COPIES = ("copy", "deepcopy", "dict")
_UNREAD_OPTIONS = frozenset({"help", "metavar", "const", "flags", "deprecated"})
_DEPTH = 12


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """A flag, and the configuration class that a JSON text for it is read into."""

    flag: Flag
    dataclass: Found | None = None
    deprecated: bool = False

    @property
    def kind(self) -> str:
        """How the flag is written, in the words of the facts."""
        if self.flag.action == "boolean_optional":
            return "boolean"
        if self.flag.action in ("store_true", "store_false"):
            return "switch"
        if self.flag.type == JSON:
            return "json"
        return "list" if self.flag.nargs not in (None, "?") else "value"


@dataclass(frozen=True, slots=True)
class _Frame:
    """A function that is being followed: its names, its parser, and the tests around."""

    scope: Scope
    parser: str | None
    owner: Found | None
    bound: dict[str, Bound]
    tests: tuple[str, ...] = ()
    depth: int = _DEPTH

    def under(self, test: str) -> _Frame:
        tests = (*self.tests, test)
        return _Frame(self.scope, self.parser, self.owner, self.bound, tests, self.depth)


class ParserReader:
    """Follows the functions; ``flags`` is what they add, ``unread`` what is not understood."""

    def __init__(self, modules: Modules, values: Values) -> None:
        self.modules = modules
        self.values = values
        self.kwargs = KwargsReader(modules, values)
        self.flags: list[EngineFlag] = []
        self.unread: list[Unread] = []

    def read(self) -> str | None:
        """Read the parser of ``vllm serve``, or of the engine alone where there is no other.

        Returns:
            The path of the file that was started from; ``None`` if there is neither.
        """
        for path in sorted(filter(_CLI_ARGS.match, self.modules.tree.paths)):
            module = self.modules.at(path)
            found = self.modules.find(_START, Scope(module)) if module else None
            if isinstance(found, Found):
                self._function(found, None, None, _DEPTH)
                return path
        module = self.modules.at(ENGINE_FILE)
        owner = self.modules.find(_ENGINE[0], Scope(module)) if module else None
        method = self._method(owner, _ENGINE[1]) if isinstance(owner, Found) else None
        if method is None or not isinstance(owner, Found):
            return None
        self._function(method, owner, None, _DEPTH)
        return ENGINE_FILE

    def _function(
        self, found: Found, owner: Found | None, argument: Bound | None, depth: int
    ) -> None:
        """Follow one function; ``argument`` is the table that it gets, if it gets no parser."""
        node = found.node
        if not isinstance(node, ast.FunctionDef) or not depth:
            return
        names = [item.arg for item in node.args.args if item.arg not in ("self", "cls")]
        if not names:
            return
        bound = {} if argument is None else {names[0]: argument}
        parser = names[0] if argument is None else None
        scope = found.scope.inside(node.body)
        self._block(node.body, _Frame(scope, parser, owner, bound, depth=depth - 1))

    def _block(self, body: Sequence[ast.stmt], frame: _Frame) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                test = ast.unparse(statement.test)
                self._block(statement.body, frame.under(test))
                self._block(statement.orelse, frame.under(f"not ({test})"))
            elif isinstance(statement, ast.For):
                if not self._all_of_a_table(statement, frame):
                    self._block(statement.body, frame)
            elif isinstance(statement, ast.With | ast.While | ast.Try):
                self._block(statement.body, frame)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                self._assign(statement, frame)
            elif isinstance(statement, ast.AugAssign):
                self._spoil(statement.target, statement, frame)
            elif isinstance(statement, ast.Delete):
                for target in statement.targets:
                    self._set(target, None, frame)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._call(statement.value, frame)

    def _assign(self, statement: ast.Assign | ast.AnnAssign, frame: _Frame) -> None:
        if statement.value is None:
            return
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                found = self._bound(statement.value, frame)
                if found is not None:
                    frame.bound[target.id] = found
                elif isinstance(statement.value, ast.Call):
                    self._call(statement.value, frame)
            else:
                self._set(target, statement.value, frame)

    def _bound(self, node: ast.expr, frame: _Frame) -> Bound | None:
        """The table or the options that an expression stands for."""
        if isinstance(node, ast.Name):
            return frame.bound.get(node.id)
        if isinstance(node, ast.Subscript):
            table = self._bound(node.value, frame)
            key = self.values.of(node.slice, frame.scope)
            entry = table.get(key) if table is not None and isinstance(key, str) else None
            return entry if isinstance(entry, dict) else None
        if not isinstance(node, ast.Call) or not node.args:
            return None
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "get_kwargs":
            return self._table(node.args[0], frame)
        first = self._bound(node.args[0], frame)
        if first is not None and name in _COPIES:
            return {key: dict(v) if isinstance(v, dict) else v for key, v in first.items()}
        if first is not None:
            method = self._called(node.func, frame)
            if method is not None:
                self._function(method[0], method[1], first, frame.depth)
            return first
        return None

    def _table(self, node: ast.expr, frame: _Frame) -> Bound | None:
        if isinstance(node, ast.Name) and node.id == "cls":
            found: Found | str | None = frame.owner
        else:
            found = self.modules.find_expression(node, frame.scope)
        if isinstance(found, Found):
            return {name: dict(options) for name, options in self.kwargs.of(found).items()}
        return None

    def _set(self, target: ast.expr, value: ast.expr | None, frame: _Frame) -> None:
        """``entry[key] = value`` and, without a value, ``del entry[key]``."""
        if not isinstance(target, ast.Subscript):
            return
        entry = self._bound(target.value, frame)
        key = self.values.of(target.slice, frame.scope)
        if entry is None or not isinstance(key, str):
            return
        if value is None:
            entry.pop(key, None)
        else:
            entry[key] = self._option(key, value, frame)

    def _option(self, key: str, node: ast.expr, frame: _Frame) -> Any:
        if key == "type":
            return _type(node)
        if key == "action":
            text = self.values.of(node, frame.scope)
            return text if isinstance(text, str) else _action(ast.unparse(node))
        return self.values.of(node, frame.scope)

    def _spoil(self, target: ast.expr, statement: ast.stmt, frame: _Frame) -> None:
        """An option that is changed in a way that is not followed."""
        if isinstance(target, ast.Subscript):
            entry = self._bound(target.value, frame)
            key = self.values.of(target.slice, frame.scope)
            if entry is not None and isinstance(key, str) and key not in _UNREAD_OPTIONS:
                entry[key] = Computed(ast.unparse(statement))

    def _call(self, call: ast.Call, frame: _Frame) -> None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else None
        if method == "add_argument":
            self._add(call, frame)
            return
        if isinstance(call.func, ast.Attribute) and method in ("update", "remove", "append"):
            self._change(call.func, call, frame)
            return
        if any(isinstance(item, ast.Name) and item.id == frame.parser for item in call.args):
            called = self._called(call.func, frame)
            if called is not None:
                self._function(*called, None, frame.depth)

    def _change(self, function: ast.Attribute, call: ast.Call, frame: _Frame) -> None:
        """``entry.update({...})``, and ``remove`` or ``append`` on a list of choices."""
        if function.attr == "update":
            entry = self._bound(function.value, frame)
            for table in call.args:
                if entry is not None and isinstance(table, ast.Dict):
                    entry.update(self._literal_options(table, frame))
            return
        if not isinstance(function.value, ast.Subscript) or not call.args:
            return
        entry = self._bound(function.value.value, frame)
        key = self.values.of(function.value.slice, frame.scope)
        if entry is None or not isinstance(key, str) or key in _UNREAD_OPTIONS:
            return
        item = self.values.of(call.args[0], frame.scope)
        items = entry.get(key)
        if isinstance(item, Computed) or not isinstance(items, tuple | list):
            entry[key] = Computed(ast.unparse(call))
        elif function.attr == "remove":
            entry[key] = tuple(one for one in items if one != item)
        else:
            entry[key] = (*items, item)

    def _add(self, call: ast.Call, frame: _Frame) -> None:
        names = [self.values.of(item, frame.scope) for item in call.args]
        options = self._options(call, frame)
        texts = [name for name in names if isinstance(name, str)]
        if options is None or len(texts) != len(names) or not names:
            self.unread.append(Unread(frame.scope.where(call), ast.unparse(call)))
        elif texts[0].startswith("-"):
            self._keep(tuple(texts), options, frame.scope.where(call), frame)

    def _options(self, call: ast.Call, frame: _Frame) -> Options | None:
        options: Options = {}
        for item in call.keywords:
            if item.arg is not None:
                options[item.arg] = self._option(item.arg, item.value, frame)
                continue
            found = self._spread(item.value, frame)
            if found is None:
                return None
            options.update(found)
        return options

    def _spread(self, node: ast.expr, frame: _Frame) -> Options | None:
        if isinstance(node, ast.Dict):
            return self._literal_options(node, frame)
        return self._bound(node, frame)

    def _literal_options(self, node: ast.Dict, frame: _Frame) -> Options:
        options: Options = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                options.update(self._bound(value, frame) or {})
            else:
                name = self.values.of(key, frame.scope)
                if isinstance(name, str):
                    options[name] = self._option(name, value, frame)
        return options

    def _keep(self, names: tuple[str, ...], options: Options, at: str, frame: _Frame) -> None:
        kind = options.get("type")
        action = options.get("action", "store")
        flag = assemble(names, action, kind if isinstance(kind, str) else None, options, at)
        if flag is None:
            self.unread.append(Unread(at, " ".join(names)))
            return
        condition = " and ".join(frame.tests) or None
        owner = options.get("dataclass")
        flag = replace(flag, condition=condition)
        deprecated = options.get("deprecated") is True
        self.flags.append(EngineFlag(flag, owner, deprecated))

    def _all_of_a_table(self, loop: ast.For, frame: _Frame) -> bool:
        """``for key, value in table.items(): add_argument(f"--{...}", **value)``."""
        call = loop.iter
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        table = self._bound(call.func.value, frame) if call.func.attr == "items" else None
        adds = [node for node in ast.walk(loop) if _is_add(node)]
        if table is None or not adds:
            return False
        for name, options in table.items():
            if isinstance(options, dict):
                extra = options.get("flags", ())
                names = (f"--{name.replace('_', '-')}", *(extra if _texts(extra) else ()))
                self._keep(names, options, str(options.get("at")), frame)
        return True

    def _called(self, node: ast.expr, frame: _Frame) -> tuple[Found, Found | None] | None:
        """The function that a call means, and the class that it is called on."""
        if not isinstance(node, ast.Attribute):
            found = self.modules.find_expression(node, frame.scope)
            return (found, None) if isinstance(found, Found) else None
        owner = frame.owner
        if ast.unparse(node.value) == "super()":
            method = self._inherited(owner, node.attr) if owner else None
            return (method, owner) if method else None
        if ast.unparse(node.value) != "cls":
            known = self.modules.find_expression(node.value, frame.scope)
            owner = known if isinstance(known, Found) else None
        method = self._method(owner, node.attr) if owner else None
        return (method, owner) if method else None

    def _method(self, owner: Found, name: str, depth: int = _DEPTH) -> Found | None:
        if not isinstance(owner.node, ast.ClassDef) or not depth:
            return None
        for statement in owner.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return Found(statement, owner.scope)
        return self._inherited(owner, name, depth)

    def _inherited(self, owner: Found, name: str, depth: int = _DEPTH) -> Found | None:
        if isinstance(owner.node, ast.ClassDef):
            for base in self._bases(owner.node, owner.scope):
                found = self._method(base, name, depth - 1)
                if found is not None:
                    return found
        return None

    def _bases(self, node: ast.ClassDef, scope: Scope) -> Iterator[Found]:
        for base in node.bases:
            found = self.modules.find_expression(base, scope)
            if isinstance(found, Found):
                yield found


def _type(node: ast.expr) -> str:
    """The name of a converter; every one that reads JSON is :data:`JSON`."""
    text = ast.unparse(node)
    if _JSON_TYPES.search(text):
        return JSON
    return "lambda" if isinstance(node, ast.Lambda) else text.rpartition(".")[2]


def _action(text: str) -> str:
    return "boolean_optional" if text.endswith("BooleanOptionalAction") else text


def _is_add(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)

"""The functions that fill a parser: followed from the first one, as a call would go."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from precision_plan.drift.argparse_rules import Flag, argument
from precision_plan.drift.dataclass_fields import FieldReader
from precision_plan.drift.group_factory import FACTORY, generated_flag
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, Values


@dataclass(frozen=True, slots=True)
class Unread:
    """A declaration that is not understood: where, and what."""

    source: str
    text: str


class FlagReader:
    """Follows the functions that fill a parser.

    ``flags`` collects what they add, ``unread`` the calls whose names or options are built at
    run time.
    """

    def __init__(self, modules: Modules, values: Values, fields: FieldReader) -> None:
        self.modules = modules
        self.values = values
        self.fields = fields
        self.flags: list[Flag] = []
        self.unread: list[Unread] = []
        self._seen: set[int] = set()

    def read(self, function: Found) -> None:
        """Read one function that takes a parser, and those that it hands the parser to."""
        node = function.node
        if not isinstance(node, ast.FunctionDef) or id(node) in self._seen or not node.args.args:
            return
        self._seen.add(id(node))
        body = function.scope.inside(node.body)
        self._block(node.body, body, node.args.args[0].arg, ())

    def _block(
        self, body: Iterable[ast.stmt], scope: Scope, parser: str, tests: tuple[str, ...]
    ) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                test = ast.unparse(statement.test)
                self._block(statement.body, scope, parser, (*tests, test))
                self._block(statement.orelse, scope, parser, (*tests, f"not ({test})"))
            elif isinstance(statement, ast.Try):
                for block in (statement.body, statement.orelse, statement.finalbody):
                    self._block(block, scope, parser, tests)
                for handler in statement.handlers:
                    self._block(handler.body, scope, parser, (*tests, "an exception"))
            elif isinstance(statement, ast.For | ast.While | ast.With):
                self._block(statement.body, scope, parser, tests)
            elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            else:
                for call in _calls(statement):
                    self._call(call, scope, parser, " and ".join(tests) or None)

    def _call(self, call: ast.Call, scope: Scope, parser: str, condition: str | None) -> None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else None
        if method == "add_argument":
            self._add(argument(call, scope, self.values), call, scope, condition)
        elif method == "build_group" and isinstance(call.func, ast.Attribute):
            self._group(call.func.value, call, scope, condition)
        elif any(isinstance(item, ast.Name) and item.id == parser for item in call.args):
            found = self.modules.find_expression(call.func, scope)
            if isinstance(found, Found):
                self.read(found)

    def _add(self, flag: Flag | None, call: ast.Call, scope: Scope, condition: str | None) -> None:
        if flag is None:
            self.unread.append(Unread(scope.where(call), ast.unparse(call)))
        elif flag.flags:
            self.flags.append(replace(flag, condition=condition))

    def _group(
        self, factory: ast.expr, call: ast.Call, scope: Scope, condition: str | None
    ) -> None:
        if isinstance(factory, ast.Name):
            found = self.modules.find(factory.id, scope)
            if isinstance(found, Found) and isinstance(found.node, ast.expr):
                factory, scope = found.node, found.scope
        source = self._factory_class(factory, scope)
        if source is None or not isinstance(factory, ast.Call):
            self.unread.append(Unread(scope.where(call), ast.unparse(factory)))
            return
        exclude = next((item.value for item in factory.keywords if item.arg == "exclude"), None)
        excluded = [] if exclude is None else self.values.of(exclude, scope)
        if isinstance(excluded, Computed):
            self.unread.append(Unread(scope.where(call), f"exclude={excluded.text}"))
            excluded = []
        for field in self.fields.of(source):
            if field.name in (excluded or ()) or not field.init:
                continue
            flag = generated_flag(field, self.values)
            if flag is None:
                self.unread.append(Unread(field.source, f"{field.owner}.{field.name}"))
            else:
                self.flags.append(replace(flag, condition=condition))

    def _factory_class(self, factory: ast.expr, scope: Scope) -> Found | None:
        if not isinstance(factory, ast.Call) or not factory.args:
            return None
        name = ast.unparse(factory.func).rpartition(".")[2]
        found = self.modules.find_expression(factory.args[0], scope)
        return found if name == FACTORY and isinstance(found, Found) else None


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Calls of a statement, in the order of their text."""
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return iter(sorted(calls, key=lambda call: (call.lineno, call.col_offset)))

"""What a launcher's variables may hold, and the ways through it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from precision_plan.importers.jobs import Branch
from precision_plan.importers.texts import EMPTY, Piece, Source, Text


class _Open:
    """The constant of a value that is none."""

    def __repr__(self) -> str:
        return "OPEN"


OPEN: Any = _Open()


@dataclass(frozen=True, slots=True)
class Value:
    """A value as text, and what else is known of it.

    ``constant`` is the Python constant that it is, ``items`` those of a list, ``entries`` those of
    a mapping. ``default``: it is what a parameter has unless whoever starts the program sets it;
    ``name`` is then the parameter. ``made`` names the class of which an object is.
    """

    text: Text = EMPTY
    constant: Any = OPEN
    items: tuple[Value, ...] | None = None
    entries: Mapping[str, Value] | None = None
    default: bool = False
    name: str = ""
    made: str = ""

    @property
    def known(self) -> bool:
        """True for a constant."""
        return self.constant is not OPEN


def constant(value: Any, source: Source, offset: int) -> Value:
    """A number, truth value or ``None``, as it would stand in a text."""
    return Value(Text((Piece(str(value), source, offset, exact=False),)), value)


def of_text(text: Text) -> Value:
    """A text; one that is known and no default is a constant, too."""
    value = text.value
    return Value(text, OPEN if value is None else value)


def unknown(shown: str, source: Source, offset: int, name: str = "") -> Value:
    """Something that only a run could tell: a name, or the result of a call."""
    shown = " ".join(shown.split())
    text = f"${{{shown}}}" if name else f"$({shown})"
    piece = Piece(text, source, offset, False, False, split=True, name=name)
    return Value(Text((piece,)), name=name)


@dataclass(slots=True)
class World:
    """One way through a launcher.

    ``assumed`` is what parameters are on this way, ``limits`` are tests that they met with the
    outcome, ``decided`` says which conditions hold. ``apart``
    says that a parameter is not what it is by default, ``changed`` which ones; ``inside`` that the
    way is in a branch that asks for such a parameter, where others may differ as well.
    """

    variables: dict[str, Value] = field(default_factory=dict)
    env: dict[str, Text] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    decided: dict[str, bool] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    apart: int = 0
    inside: bool = False
    changed: frozenset[str] = frozenset()
    returned: Value | None = None
    ended: bool = False

    def copy(self) -> World:
        """A world that goes its own way from here."""
        return replace(
            self,
            variables=dict(self.variables),
            env=dict(self.env),
            decided=dict(self.decided),
            assumed=dict(self.assumed),
            limits=dict(self.limits),
        )

    def taking(self, branch: Branch | None, *, apart: bool = False) -> World:
        """The world in which a decision was made; one that follows a default is not told."""
        world = self.copy()
        if branch is not None and branch not in world.branches:
            world.branches = (*world.branches, branch)
        world.apart += apart and not world.inside
        return world


@dataclass(slots=True)
class Program:
    """The file that is read: its functions, and the parameters of its classes."""

    source: Source
    text: str
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, dict[str, ast.expr | None]] = field(default_factory=dict)
    prepared: dict[str, ast.FunctionDef] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def offset(self, node: ast.AST) -> int:
        """Byte offset of a node."""
        line: int = getattr(node, "lineno", 1)
        column: int = getattr(node, "col_offset", 0)
        return self.starts[line - 1] + column

    def end(self, node: ast.AST) -> int:
        """Byte offset behind a node."""
        line: int = getattr(node, "end_lineno", None) or 1
        return self.starts[line - 1] + int(getattr(node, "end_col_offset", None) or 0)

    def index(self, offset: int) -> int:
        """Index into ``text`` of a byte offset."""
        if self.text.isascii():
            return offset
        return len(self.source.data[:offset].decode("utf-8", "replace"))

    def place(self, index: int) -> int:
        """Byte offset of an index into ``text``."""
        return index if self.text.isascii() else len(self.text[:index].encode())

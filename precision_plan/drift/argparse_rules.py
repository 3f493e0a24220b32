"""Command-line flags from calls of ``add_argument``, by the rules of :mod:`argparse`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.drift.modules import Scope
from precision_plan.drift.values import Computed, EnumClass, Values, plain

ENUM_NAME = "enum name"
"""The type of a flag whose text is the name of an enumeration's member."""

_ACTION_DEFAULTS = {"store_true": False, "store_false": True}


@dataclass(frozen=True, slots=True)
class Flag:
    """One argument, in the terms of the facts.

    ``choices`` are texts; ``condition`` is the test under which the flag exists (``None``:
    always); ``source`` is ``path:line``.
    """

    flags: tuple[str, ...]
    dest: str
    action: str
    default: Any
    source: str
    type: str | None = None
    choices: tuple[str, ...] | Computed | None = None
    nargs: str | int | Computed | None = None
    required: bool = False
    condition: str | None = None


def argument(call: ast.Call, scope: Scope, values: Values) -> Flag | None:
    """The flag that one ``add_argument`` call adds.

    Returns:
        ``None`` if its names or options are built at run time; a flag without ``flags`` if the
        argument is positional.
    """
    names = [values.of(item, scope) for item in call.args]
    if not all(isinstance(name, str) for name in names) or not names:
        return None
    if any(item.arg is None for item in call.keywords):
        return None
    options = {item.arg: item.value for item in call.keywords if item.arg}
    given = {
        name: values.of(node, scope)
        for name, node in options.items()
        if name in ("dest", "default", "choices", "nargs", "required")
    }
    action = _action(options.get("action"), scope, values)
    if action is None:
        return None
    kind = _type(options.get("type"), scope, values)
    return assemble(tuple(names), action, kind, given, scope.where(call))


def assemble(
    names: tuple[str, ...], action: str, kind: str | None, given: Mapping[str, Any], source: str
) -> Flag | None:
    """The flag that :mod:`argparse` makes of names and keyword arguments."""
    flags = tuple(name for name in names if name.startswith("-"))
    if action == "boolean_optional":
        flags += tuple(f"--no-{name[2:]}" for name in names if name.startswith("--"))
    dest = given.get("dest") or _dest(names)
    if not isinstance(dest, str):
        return None
    nargs = given.get("nargs")
    return Flag(
        flags=flags,
        dest=dest,
        action=action,
        default=plain(given.get("default", _ACTION_DEFAULTS.get(action))),
        source=source,
        type=kind,
        choices=_choices(given.get("choices")),
        nargs=nargs if isinstance(nargs, str | int | Computed) else None,
        required=given.get("required") is True,
    )


def _dest(names: tuple[str, ...]) -> str:
    """The first long name, else the first one, as an identifier."""
    first = next((name for name in names if name.startswith("--")), names[0])
    return first.lstrip("-").replace("-", "_")


def _choices(value: Any) -> tuple[str, ...] | Computed | None:
    if value is None or isinstance(value, Computed):
        return value
    if isinstance(value, EnumClass):
        value = value.members
    return tuple(str(plain(item)) for item in value)


def _action(node: ast.expr | None, scope: Scope, values: Values) -> str | None:
    if node is None:
        return "store"
    found = values.of(node, scope)
    if isinstance(found, str):
        return found
    text = ast.unparse(node)
    return "boolean_optional" if text.endswith("BooleanOptionalAction") else text


def _type(node: ast.expr | None, scope: Scope, values: Values) -> str | None:
    """The name of the converter; a lambda that looks a member up by name is :data:`ENUM_NAME`."""
    if node is None:
        return None
    if not isinstance(node, ast.Lambda):
        return ast.unparse(node).rpartition(".")[2]
    looked_up = (part.value for part in ast.walk(node.body) if isinstance(part, ast.Subscript))
    if any(isinstance(values.of(part, scope), EnumClass) for part in looked_up):
        return ENUM_NAME
    return "lambda"

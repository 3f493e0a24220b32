"""Resolves ``${section.key}`` in values; a recipe may refer to itself and to nothing else.

Resolvers (``${oc.env:HOME}``) are refused: the plan of a recipe must be the same on every machine.
As for OmegaConf, a backslash makes ``\\${HOME}`` the text ``${HOME}``, and two of them are one
before an interpolation; elsewhere a backslash is a backslash.
"""

from __future__ import annotations

import re
from typing import Any

from precision_plan.compose.document import NODE_LIMIT, VALUE_LIMIT
from precision_plan.compose.merge import MISSING, Draft
from precision_plan.compose.suggest import closest
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Fix

_REFERENCE = re.compile(r"\$\{(?P<dots>\.*)(?P<key>[A-Za-z_0-9][\w-]*(?:\.[\w-]+)*)\}", re.ASCII)
_RESOLVER = re.compile(r"\$\{\s*(?P<name>[\w.]+)\s*:")
_BACKSLASHES = re.compile(r"(\\+)\$\{")
_DOLLAR = "\0"
"""Stands for a dollar sign that begins no interpolation."""

STEP_LIMIT = 50
"""Interpolations that one may lead through."""

Path = tuple[str | int, ...]


class _Unresolved(Exception):
    def __init__(self, message: str, fix: str, code: str = "PP014") -> None:
        super().__init__(message)
        self.fix = fix
        self.code = code
        self.path: Path = ()
        """The value at fault; others that refer to it fail with it."""


class _Unset(_Unresolved):
    """The key that an interpolation names is in no layer."""


def resolve(draft: Draft, *, incomplete: bool = False) -> dict[str, str]:
    """Replace every interpolation in ``draft``; one without a value is reported and set to null.

    ``incomplete`` says that layers are missing: then it is no news that keys are.

    Returns:
        The texts that were replaced, by dotted key.
    """
    found = list(_interpolations(draft.data, ()))
    if not found:
        return {}
    resolver = _Resolver(draft.data)
    reported: set[Path] = set()
    values = []
    for path in found:
        try:
            values.append((path, resolver.value(path, ())))
        except _Unresolved as error:
            values.append((path, None))
            if error.path in reported or (incomplete and isinstance(error, _Unset)):
                continue
            reported.add(error.path)
            key = ".".join(map(str, error.path))
            draft.problems.append(
                compose_diagnostic(
                    error.code,
                    f"{key}: {error}",
                    draft.origin(key),
                    field=key,
                    fix=(Fix(error.fix),),
                )
            )
    written = {}
    for path, value in values:
        parent = _parent(draft.data, path)
        written[".".join(map(str, path))] = parent[path[-1]]
        parent[path[-1]] = value
    return written


def _interpolations(node: Any, path: Path) -> Any:
    """Paths of the strings in which something is interpolated."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, (dict, list)):
            yield from _interpolations(value, (*path, key))
        elif isinstance(value, str) and "${" in value:
            yield (*path, key)


def _parent(data: Any, path: Path) -> Any:
    for part in path[:-1]:
        data = data[part]
    return data


class _Resolver:
    """Looks values up with a memory, so that the cost is linear, and with a bound on the result."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.known: dict[Path, Any] = {}
        self.failed: dict[Path, _Unresolved] = {}
        self.count = 0

    def value(self, path: Path, chain: tuple[Path, ...]) -> Any:
        """The resolved value at ``path``; ``chain`` holds the paths that wait for it."""
        if path in self.known:
            return self._counted(self.known[path])
        if path in self.failed:
            raise self.failed[path]
        if path in chain:
            cycle = " -> ".join(".".join(map(str, each)) for each in (*chain, path))
            raise _Unresolved(f"interpolations refer to each other: {cycle}", "break the circle")
        if len(chain) > STEP_LIMIT:
            raise _too_far()
        try:
            result = self._resolved(self._raw(path), path, (*chain, path))
        except _Unresolved as error:
            error.path = error.path or path
            self.failed[path] = error
            raise
        self.known[path] = result
        return result

    def _resolved(self, raw: Any, path: Path, chain: tuple[Path, ...]) -> Any:
        if isinstance(raw, dict):
            return {key: self.value((*path, key), chain) for key in raw}
        if isinstance(raw, list):
            return [self.value((*path, index), chain) for index in range(len(raw))]
        return self._text(raw, path, chain) if isinstance(raw, str) and "${" in raw else raw

    def _text(self, text: str, path: Path, chain: tuple[Path, ...]) -> Any:
        if "\\" in text:
            text = _BACKSLASHES.sub(_unescaped, text)
            if "${" not in text:
                return text.replace(_DOLLAR, "$")
        if (call := _RESOLVER.search(text)) is not None:
            raise _Unresolved(
                f"the resolver {call['name']} is refused: a plan must not depend on the machine",
                "write the value, or give it as an override",
            )
        whole = _REFERENCE.fullmatch(text)
        if whole is not None:
            return self.value(self._target(whole, path), chain)
        if "${" in _REFERENCE.sub("", text):
            raise _Unresolved(f"{_short(text)!r} cannot be read", "write ${section.key}")

        def piece(match: re.Match[str]) -> str:
            value = self.value(self._target(match, path), chain)
            if isinstance(value, (dict, list)):
                raise _Unresolved(f"{match[0]} is no single value", "name a single value")
            return str(value)

        result = _REFERENCE.sub(piece, text).replace(_DOLLAR, "$")
        if len(result) > VALUE_LIMIT:
            raise _Unresolved(
                f"the value grows to more than {VALUE_LIMIT:,} characters", "write it out", "PP012"
            )
        return result

    def _target(self, match: re.Match[str], path: Path, steps: int = 0) -> Path:
        """The path that a reference in the value at ``path`` names, through other references."""
        if steps > STEP_LIMIT:
            raise _too_far()
        dots = len(match["dots"])
        if dots > len(path):
            raise _Unresolved(f"{match[0]} leads out of the recipe", "write ${section.key}")
        base = path[: len(path) - dots] if dots else ()
        target: Path = base
        node: Any = self._raw(base)
        for part in match["key"].split("."):
            step: str | int = part
            if isinstance(node, str) and (inner := _REFERENCE.fullmatch(node)) is not None:
                target = self._target(inner, target, steps + 1)
                node = self._raw(target)
            if isinstance(node, list) and part.isdigit() and int(part) < len(node):
                step = int(part)
            elif not isinstance(node, dict) or part not in node:
                near = closest(part, map(str, node)) if isinstance(node, dict) else None
                prefix = "".join(f"{each}." for each in target)
                raise _Unset(
                    f"{match[0]} names {prefix}{part}, which no layer sets",
                    f"did you mean ${{{prefix}{near}}}?" if near else "set it, or write the value",
                )
            node = node[step]
            target = (*target, step)
        if node == MISSING:
            raise _Unresolved(f"{match[0]} has no value yet: it is {MISSING}", "set it")
        return target

    def _raw(self, path: Path) -> Any:
        node: Any = self.data
        for part in path:
            node = node[part]
        return node

    def _counted(self, value: Any) -> Any:
        """A copy of a value that is used again; the sum of all copies is bounded."""
        self.count += 1
        if self.count > NODE_LIMIT:
            raise _Unresolved(
                f"the interpolations expand to more than {NODE_LIMIT:,} values",
                "write the values out",
                "PP012",
            )
        if isinstance(value, dict):
            return {key: self._counted(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._counted(inner) for inner in value]
        return value


def _unescaped(match: re.Match[str]) -> str:
    pairs, escaped = divmod(len(match[1]), 2)
    return "\\" * pairs + (_DOLLAR if escaped else "$") + "{"


def _too_far() -> _Unresolved:
    return _Unresolved(f"it refers through more than {STEP_LIMIT} values", "write the value out")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."

"""One YAML file as data that keeps a position for every key; nothing in it is ever executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from precision_plan.compose.comments import suppressions_in
from precision_plan.compose.entries import Entry, entries_in
from precision_plan.compose.reading import Unreadable, read_text
from precision_plan.compose.scalars import STANDARD_TAG, NotAScalar, scalar
from precision_plan.compose.suggest import printable
from precision_plan.compose.syntax import DEPTH_LIMIT, compose_node, too_deep
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import Origin
from precision_plan.plan.suppression import Suppression

VALUE_LIMIT = 1 << 16
"""Characters of one scalar."""
NODE_LIMIT = 20_000
"""Keys and values after aliases are expanded; a recipe has some hundred."""

_SCALAR_TAGS = frozenset(
    STANDARD_TAG + name for name in ("str", "int", "float", "bool", "null", "value")
)
_NUMBER_TAGS = frozenset({STANDARD_TAG + "int", STANDARD_TAG + "float"})
_HEADER = re.compile(r"\s*#\s*@")


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file.

    ``file`` is its name in messages. ``data`` is the content without the defaults list, ``marks``
    maps each dotted key to ``(line, column)``, counted from 1, and ``texts`` each number to the
    digits that were written. ``package`` is the name in the ``# @package`` header, ``entries`` the
    defaults list. ``problems`` are its own faults; what they concern is left out of ``data``.
    """

    path: Path
    file: str
    data: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None
    entries: tuple[Entry, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    empty: bool = False

    def origin(self, key: str = "", layer: str = "") -> Origin:
        """Position of a dotted key of this file; of the file itself without a key."""
        return Origin(self.file, *self.marks.get(key, (0, 0)), layer)


_cache: dict[tuple[str, str], tuple[tuple[int, ...], Document]] = {}
_CACHE_LIMIT = 4096


def read_document(path: Path, shown: str) -> Document:
    """Read and parse a file; parsed once per process as long as it does not change.

    ``shown`` is its name in messages. Never raises for what the file holds or lacks: an
    unusable file gives a document without data whose ``problems`` say why.
    """
    key = (os.fspath(path), shown)
    stamp = _stamp(path)
    cached = _cache.get(key)
    if cached is not None and stamp is not None and cached[0] == stamp:
        return cached[1]
    try:
        text = read_text(path, shown)
    except Unreadable as error:
        document = Document(path, shown, problems=(error.diagnostic,))
    else:
        document = document_of(text, path, shown)
    if stamp is not None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[key] = (stamp, document)
    return document


def document_of(text: str, path: Path, shown: str) -> Document:
    """What a file with this text is; what makes it unusable is in its ``problems``."""
    try:
        return parse_document(text.removeprefix("\ufeff"), path, shown)
    except Unreadable as error:
        return Document(path, shown, problems=(error.diagnostic,))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - half the cost of Path.stat, once per file read
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def parse_document(text: str, path: Path, shown: str) -> Document:
    """Parse the text of a file.

    Raises:
        Unreadable: if the text is not YAML, or breaks a limit of this module.
    """
    node = compose_node(text, shown)
    package, problems = _package(text, shown)
    if node is None or node.tag == STANDARD_TAG + "null":
        return Document(path, shown, package=package, problems=tuple(problems), empty=True)
    if not isinstance(node, yaml.MappingNode):
        kind = "list" if isinstance(node, yaml.SequenceNode) else "single value"
        problems.append(
            compose_diagnostic(
                "PP005",
                f"the file is a {kind}; a mapping of keys belongs here",
                _origin(shown, node),
                fix=(Fix("write 'key: value' lines"),),
            )
        )
        return Document(path, shown, package=package, problems=tuple(problems))
    builder = _Builder(shown, problems)
    data = builder.mapping(node, "", 0)
    defaults = next((value for key, value in node.value if key.value == "defaults"), None)
    entries: tuple[Entry, ...] = ()
    if defaults is not None:
        data.pop("defaults", None)
        entries, refused = entries_in(defaults, shown)
        problems.extend(refused)
    suppressions = suppressions_in(text, shown, lambda: _spans(node))
    return Document(
        path,
        shown,
        data,
        builder.marks,
        builder.texts,
        package,
        entries,
        suppressions,
        tuple(problems),
    )


def _origin(shown: str, node: yaml.Node) -> Origin:
    return Origin(shown, node.start_mark.line + 1, node.start_mark.column + 1)


def _package(text: str, shown: str) -> tuple[str | None, list[Diagnostic]]:
    """The package named in the ``# @`` lines that open the file, as Hydra reads them."""
    package = None
    for number, line in enumerate(text[:512].splitlines(), start=1):
        if not line.strip():
            continue
        if not _HEADER.match(line):
            break
        words = line.strip().lstrip("#").split()
        if len(words) != 2:
            problem = compose_diagnostic(
                "PP016",
                f"a header line holds a key and one value, not {line.strip()!r}",
                Origin(shown, number, 1),
                fix=(Fix("write '# @package _global_'"),),
            )
            return package, [problem]
        if words[0] == "@package":
            package = words[1]
    return package, []


def _spans(node: yaml.Node) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end ``(line, column)`` of every scalar, counted from 0."""
    pending, seen = [node], set()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, yaml.ScalarNode):
            start, end = current.start_mark, current.end_mark
            yield (start.line, start.column), (end.line, end.column)
        elif isinstance(current, yaml.SequenceNode):
            pending.extend(current.value)
        else:
            for pair in current.value:
                pending.extend(pair)


class _Builder:
    """Turns nodes into data, collecting positions and every problem that can be passed over."""

    def __init__(self, shown: str, problems: list[Diagnostic]) -> None:
        self.shown = shown
        self.problems = problems
        self.marks: dict[str, tuple[int, int]] = {}
        self.texts: dict[str, str] = {}
        self.count = 0

    def mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in self._pairs(node):
            key = self._key(key_node)
            dotted = f"{path}.{key}" if path else str(key)
            if key == "_target_" and not dotted.startswith("hydra."):
                self._refuse("PP015", f"{dotted} asks for code to be run", key_node,
                             "remove it: a recipe is data")  # fmt: skip
                continue
            self.marks[dotted] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            try:
                data[key] = self._value(value_node, dotted, depth + 1)
            except _Skipped:
                self.marks.pop(dotted)
        return data

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Own pairs after those merged in by ``<<``; a key written twice is reported."""
        own: dict[str, yaml.Node] = {}
        pairs = []
        for key_node, value_node in node.value:
            if key_node.tag == STANDARD_TAG + "merge":
                yield from self._merged(value_node, 0)
                continue
            if not self._is_text(key_node):
                continue
            first = own.setdefault(key_node.value, key_node)
            if first is not key_node:
                self._refuse(
                    "PP008",
                    f"{key_node.value} is written twice; the first is in line "
                    f"{first.start_mark.line + 1}",
                    key_node,
                    "keep one of the two",
                )
                continue
            pairs.append((key_node, value_node))
        yield from pairs

    def _merged(self, node: yaml.Node, depth: int) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        self._spend(node)
        if depth > DEPTH_LIMIT:
            raise Unreadable(too_deep(_origin(self.shown, node)))
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if key_node.tag == STANDARD_TAG + "merge":
                    yield from self._merged(value_node, depth + 1)
            for key_node, value_node in node.value:
                if key_node.tag == STANDARD_TAG + "merge" or not self._is_text(key_node):
                    continue
                self._spend(node)
                yield key_node, value_node
        elif isinstance(node, yaml.SequenceNode):
            for item in reversed(node.value):
                yield from self._merged(item, depth + 1)
        else:
            self._refuse("PP005", "'<<' merges mappings, not a single value", node)

    def _is_text(self, key: yaml.Node) -> bool:
        if not isinstance(key, yaml.ScalarNode):
            self._refuse("PP001", "a key must be a plain text", key)
        return isinstance(key, yaml.ScalarNode)

    def _key(self, node: yaml.Node) -> Any:
        try:
            return scalar(node.tag, node.value)
        except NotAScalar:
            return node.value

    def _value(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._spend(node)
        if depth > DEPTH_LIMIT:
            raise Unreadable(too_deep(_origin(self.shown, node)))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == STANDARD_TAG + "seq":
            return [
                self._value(item, f"{path}.{index}", depth + 1)
                for index, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode) and node.tag == STANDARD_TAG + "map":
            return self.mapping(node, path, depth)
        self._refuse_tag(node)
        raise _Skipped

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        text = node.value
        if len(text) > VALUE_LIMIT:
            self._refuse(
                "PP012",
                f"{path} has a value of {len(text):,} characters; at most {VALUE_LIMIT:,} are read",
                node,
            )
            raise _Skipped
        if node.tag not in _SCALAR_TAGS:
            self._refuse_tag(node)
            raise _Skipped
        try:
            value = scalar(node.tag, text)
        except NotAScalar as error:
            self._refuse("PP001", f"{path}: {error}", node, "write it in quotes if it is a text")
            raise _Skipped from None
        if node.tag in _NUMBER_TAGS:
            self.texts[path] = text
        return value

    def _spend(self, node: yaml.Node) -> None:
        self.count += 1
        if self.count > NODE_LIMIT:
            raise Unreadable(
                compose_diagnostic(
                    "PP012",
                    f"the file expands to more than {NODE_LIMIT:,} values",
                    _origin(self.shown, node),
                    fix=(Fix("write it without aliases (*name) that repeat each other"),),
                )
            )

    def _refuse_tag(self, node: yaml.Node) -> None:
        if node.tag == STANDARD_TAG + "merge":
            self._refuse("PP001", "'<<' is a merge key, not a value", node, "write it in quotes")
            return
        tag = node.tag.replace(STANDARD_TAG, "!!")
        self._refuse(
            "PP015",
            f"the tag {tag} would construct an object; recipes hold plain values only",
            node,
            "remove the tag",
        )

    def _refuse(self, code: str, message: str, node: yaml.Node, fix: str | None = None) -> None:
        fixes = (Fix(fix),) if fix else ()
        where = _origin(self.shown, node)
        self.problems.append(compose_diagnostic(code, printable(message), where, fix=fixes))


class _Skipped(Exception):
    """The value was refused and reported; its key is left out."""

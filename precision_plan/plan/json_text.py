"""JSON with positions: what the standard parser reads, and where each key stands in the text."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from precision_plan.plan.origin import Origin

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class BrokenJson(ValueError):
    """The text is no JSON object; ``line`` and ``column`` count from 1, 0 is no position."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class Parsed(NamedTuple):
    """A JSON object, its text and whether a key stands twice in one object."""

    value: dict[str, Any]
    text: str
    repeats: bool


def parse_object(data: bytes, *, repeats: bool = True) -> Parsed:
    """Parse one JSON object as Python's own parser does, which the engines use as well.

    ``repeats`` asks for keys that stand twice (at the cost of a slower parse).

    Raises:
        BrokenJson: if it is none, with the position of what is wrong.
    """
    twice: list[bool] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.append(True)
        return found

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BrokenJson(f"byte 0x{data[error.start]:02x} is not UTF-8", line) from None
    try:
        value = json.loads(text, object_pairs_hook=build if repeats else None)
    except json.JSONDecodeError as error:
        message = error.msg[0].lower() + error.msg[1:]
        raise BrokenJson(message, error.lineno, error.colno) from None
    except RecursionError:
        raise BrokenJson("its objects are nested too deeply") from None
    except ValueError:  # a whole number of thousands of digits
        raise BrokenJson("a number has too many digits") from None
    if not isinstance(value, dict):
        raise BrokenJson("it is not a JSON object", 1, 1)
    return Parsed(value, text, bool(twice))


class Key(NamedTuple):
    """One key of a JSON text, or one element of a list, by its dotted path."""

    path: str
    offset: int
    repeated: bool = False


def keys(text: str) -> Iterator[Key]:
    """Every key and list element of a text that parses, in order of the text."""
    stack: list[_Level] = []
    level = _Level("", in_list=False)
    level.at_key = False  # around the outermost object there is no key
    path = ""
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in ",:":
            level.at_key = first == "," and not level.in_list
            continue
        if first in "]}":
            level = stack.pop()
            continue
        if level.at_key:
            name = json.loads(token[0])
            path = level.prefix + name
            yield Key(path, token.start(), name in level.seen)
            level.seen.add(name)
            level.at_key = False
            continue
        if level.in_list:
            path = f"{level.prefix}{level.count}"
            level.count += 1
            yield Key(path, token.start())
        if first in "[{":
            stack.append(level)
            prefix = f"{path}." if len(stack) > 1 else ""
            level = _Level(prefix, in_list=first == "[")


class _Level:
    """An object or a list that is open at some place of the text."""

    __slots__ = ("at_key", "count", "in_list", "prefix", "seen")

    def __init__(self, prefix: str, *, in_list: bool) -> None:
        self.prefix, self.in_list = prefix, in_list
        self.at_key = not in_list
        self.count = 0
        self.seen: set[str] = set()


class Positions(Mapping[str, Origin]):
    """Positions of the keys of JSON texts, found when one is asked for: most texts are in order.

    Of a key that stands twice the last one counts, as for the parser.
    """

    def __init__(self, *texts: tuple[str, str, str]) -> None:
        """``texts`` are ``(prefix of the keys, file as shown, text)``."""
        self._texts = texts

    @cached_property
    def _found(self) -> dict[str, Origin]:
        found: dict[str, Origin] = {}
        for prefix, file, text in self._texts:
            place = Places(text)
            for key in keys(text):
                found[prefix + key.path] = place.origin(file, key.offset)
        return found

    def __getitem__(self, key: str) -> Origin:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Places:
    """Lines and columns of offsets in one text."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def origin(self, file: str, offset: int) -> Origin:
        """The position of ``offset``, counted from 1."""
        line = bisect_right(self._starts, offset)
        return Origin(file, line, offset - self._starts[line - 1] + 1)

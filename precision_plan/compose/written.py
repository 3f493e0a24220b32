"""Values as YAML text that reads back as the same value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import yaml

from precision_plan.compose.scalars import Loader, NotAScalar, scalar


def written(value: Any, quote: str = "") -> str:
    """``value`` on one line, as it may stand in a block or between brackets.

    ``quote`` is the quote to put around a text; without one, a text has quotes if it needs them.
    """
    if isinstance(value, str):
        return _text(value, quote)
    if isinstance(value, Mapping):
        inner = (f"{written(str(key))}: {written(item)}" for key, item in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return f".{value}" if value != -math.inf else "-.inf"
    if isinstance(value, float):  # 1e-06 is a text for other readers of YAML
        mantissa, e, exponent = repr(value).partition("e")
        return mantissa + (".0" if e and "." not in mantissa else "") + e + exponent
    return "null" if value is None else str(value)


def _text(value: str, quote: str) -> str:
    if not quote and _is_plain(value):
        return value
    if quote == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(char: str) -> str:
    """A character as it may stand in double quotes; JSON's own escapes are YAML's, too."""
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


_MARKS = frozenset({"<<", "="})
"""Texts that are no values in YAML 1.1: a merge key and a default."""


def _is_plain(value: str) -> bool:
    """True if the text without quotes says itself, wherever it stands."""
    if not value.isprintable() or value != value.strip() or value in _MARKS:
        return False
    try:
        root = yaml.compose(f"{{k: {value}, l: [{value}]}}\n", Loader)
        block = yaml.compose(f"k: {value}\n", Loader)
    except yaml.YAMLError:
        return False
    if not (isinstance(root, yaml.MappingNode) and isinstance(block, yaml.MappingNode)):
        return False
    if len(root.value) != 2 or not isinstance(root.value[1][1], yaml.SequenceNode):
        return False
    nodes = (root.value[0][1], *root.value[1][1].value, block.value[0][1])
    return len(nodes) == 3 and all(_says(node, value) for node in nodes)


def _says(node: yaml.Node, value: str) -> bool:
    if not isinstance(node, yaml.ScalarNode):
        return False
    try:
        return bool(scalar(node.tag, node.value) == value)
    except NotAScalar:
        return False

"""Types of command-line values: what the programs' converters take, by the name in ``facts``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_IN_JSON = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_STRING = re.compile(r'("(?:[^"\\]|\\.)*")')
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_int(text: str) -> int:
    """``1k`` is 1000 and ``1K`` is 1024, as vLLM reads them; without a suffix, a whole number.

    Source: vllm@0.33.0:vllm/utils/argparse_utils.py:30-75.

    Raises:
        ValueError: if it is no such number.
    """
    found = _SUFFIXED.fullmatch(text.strip())
    if found is None:
        return int(text.strip())
    number, suffix = found.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    return int(number) * _BINARY[suffix]


def _human_int_or_auto(text: str) -> int:
    return -1 if text.strip() == "-1" or text.strip().lower() == "auto" else human_int(text)


def _json_object(text: str) -> dict[str, Any]:
    """An object; numbers outside of strings may have a suffix."""
    parts = _STRING.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = _IN_JSON.sub(lambda found: str(human_int(found.group())), parts[index])
    value = json.loads("".join(parts))
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _json_or_text(text: str) -> Any:
    stripped = text.strip()
    return json.loads(text) if stripped.startswith("{") and stripped.endswith("}") else text


def _lower_underscored(text: str) -> str:
    return text.lower().replace("-", "_")


CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "human_int": human_int,
    "human_int_or_auto": _human_int_or_auto,
    "json": json.loads,
    "json_object": _json_object,
    "json_or_text": _json_or_text,
    "dashed": _lower_underscored,
}

KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "human_int": "a whole number",
    "human_int_or_auto": "a whole number or auto",
    "json": "JSON",
    "json_object": "a JSON object",
    "json_or_text": "JSON or a text",
    "dashed": "a text",
}
"""What a value should have been, for the message."""

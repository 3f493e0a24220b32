"""Reads the JSON tables of this room.

JSON is the storage form by measurement (``benchmarks/facts_storage.py``): to load every table
takes 2.5 ms of processor time. YAML takes 40 times as long; a Python module 0.65 times as long
from cached bytecode, but 20 times where no cache can be written; pickle 0.8 times. Neither of
the faster two is worth giving up rows that a person can edit and a test can check one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from precision_plan.facts.versions import VersionRange

_DATA = Path(__file__).with_name("data")
Row = TypeVar("Row")


@cache
def table(name: str) -> Any:
    """Return the parsed content of ``data/NAME.json``; parsed once per process."""
    return json.loads((_DATA / f"{name}.json").read_bytes())


def freeze(value: Any) -> Any:
    """A read-only view of parsed JSON: lists become tuples, objects become mapping proxies."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    return value


def record(kind: type[Row], row: Mapping[str, Any]) -> Row:
    """Build the named tuple ``kind`` from one row of a table.

    ``since`` and ``until``, where the row has them, become the field ``versions``.
    """
    values = {key: freeze(value) for key, value in row.items()}
    if "since" in values or "until" in values:
        values["versions"] = VersionRange(values.pop("since", None), values.pop("until", None))
    return kind(**values)

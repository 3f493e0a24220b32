"""Reads the JSON tables of this room.

JSON is the storage form because it was measured to be the cheapest to load of those that
a person can edit (``benchmarks/facts_storage.py``).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).with_name("data")


@cache
def table(name: str) -> Any:
    """Return the parsed content of ``data/NAME.json``; parsed once per process."""
    return json.loads((_DATA / f"{name}.json").read_bytes())

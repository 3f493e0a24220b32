"""INT4 group sizes by model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from precision_plan.facts._load import record, table


class Int4GroupSize(NamedTuple):
    """Group size of a model's published INT4 rollout checkpoint."""

    model: str
    group_size: int
    symmetric: bool
    source: str


@lru_cache(maxsize=1)
def int4_group_sizes() -> Mapping[str, Int4GroupSize]:
    """Known INT4 group sizes by model name in lower case."""
    rows = table("int4_group_sizes")
    return MappingProxyType({row["model"]: record(Int4GroupSize, row) for row in rows})


def int4_group_size(model: str) -> Int4GroupSize | None:
    """The group size of ``model``, by name: case and a suffix such as ``-int4`` do not matter.

    ``Qwen/Qwen3-30B-A3B-Instruct-INT4`` and ``qwen3-30b`` both find ``qwen3-30b-a3b``.
    """
    name = model.rsplit("/", 1)[-1].lower().replace("_", "-")
    for known, row in int4_group_sizes().items():
        family = known.rsplit("-a", 1)[0] if "-a" in known else known
        if name == family or name.startswith((known, f"{family}-int4")):
            return row
    return None

"""Parts of module names by which a checkpoint's layers are told apart."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from precision_plan.facts._load import table

ModuleKind = Literal["linear", "encoder"]


@lru_cache(maxsize=2)
def module_names(kind: ModuleKind) -> frozenset[str]:
    """``linear``: last parts of names that every engine makes a quantizable linear layer of.

    ``encoder``: parts of names that only vision and audio parts of a wrapper have.
    """
    return frozenset(str(row["name"]) for row in table("checkpoint_modules") if row["kind"] == kind)

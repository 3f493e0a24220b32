"""Who said what of a key before the layer that was heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from precision_plan.plan.origin import Origin


@dataclass(frozen=True, slots=True)
class Word:
    """What one layer said of a key: its value, or that the key is ``removed``."""

    value: Any
    origin: Origin
    removed: bool = False

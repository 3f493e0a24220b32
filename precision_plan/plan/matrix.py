"""The support matrix: trained format x rollout format x GPU, as the rules and the facts see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from precision_plan.plan.diagnostic import Severity

Status = Literal["supported", "beta", "experimental", "undocumented", "unsupported", "refused"]

STATUSES: Mapping[Status, str] = {
    "supported": "documented as stable, and no rule objects",
    "beta": "documented as beta",
    "experimental": "documented as experimental",
    "undocumented": "runs as far as the rules know; no documentation of the framework names it",
    "unsupported": "a rule warns that the framework does not support it (lint: warning)",
    "refused": "a rule refuses it (lint: error)",
}
"""Every status with its meaning, the best first."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What one rule says of a cell."""

    id: str
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair of formats under one framework on one GPU.

    ``reasons`` are the errors and warnings that lint has for ``plan``, the refusal of the hardware
    first. ``source``, ``note`` and ``needs`` (what the pair asks for besides the two formats) are
    those of the documented pair, if there is one.
    """

    framework: str
    gpu: str
    train: str
    rollout: str
    status: Status
    reasons: tuple[Reason, ...]
    plan: Mapping[str, Mapping[str, Any]]
    source: str | None = None
    note: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        """Trained and served format."""
        return self.train, self.rollout


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule that some cell names."""

    id: str
    slug: str
    summary: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells in order of framework, trained format, rollout format and GPU."""

    frameworks: tuple[str, ...]
    gpus: tuple[str, ...]
    capabilities: Mapping[str, str]
    versions: Mapping[str, str]
    cells: tuple[Cell, ...]
    rules: tuple[RuleLine, ...]

    def rows(self, framework: str) -> Iterator[tuple[Cell, ...]]:
        """The cells of each pair under ``framework``, one for each GPU."""
        cells = [cell for cell in self.cells if cell.framework == framework]
        step = len(self.gpus)
        for start in range(0, len(cells), step):
            yield tuple(cells[start : start + step])

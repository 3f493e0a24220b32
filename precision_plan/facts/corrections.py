"""Off-policy corrections: the RL frameworks' arguments that answer a train-rollout mismatch."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table


class Correction(NamedTuple):
    """One argument.

    ``against`` is what it answers: ``rounding`` (log-probabilities differ because numbers are
    rounded differently) or ``routing`` (tokens go to other experts). ``offered`` is false for one
    that only counts when it is there, because it needs code of the user's own.
    """

    flag: str
    against: Literal["rounding", "routing"]
    offered: bool
    frameworks: tuple[str, ...]
    meaning: str
    source: str

    @property
    def spelling(self) -> str:
        """As in ``launch.extra_args``: without the dashes in front."""
        return self.flag.lstrip("-")

    @property
    def dest(self) -> str:
        """argparse's name."""
        return self.spelling.replace("-", "_")


@lru_cache(maxsize=1)
def corrections() -> tuple[Correction, ...]:
    """Every known one, the most common first."""
    return tuple(record(Correction, row) for row in table("corrections"))

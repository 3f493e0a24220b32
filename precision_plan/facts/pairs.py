"""Training format against rollout format: documented pairs, and what each side asks for.

The names are those of :mod:`precision_plan.facts.formats`; ``int4_qat`` and ``nvfp4_qat`` are BF16
training with fake quantization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import Gpu, parse_capability


class TrainRolloutPair(NamedTuple):
    """One pair of formats (names of ``facts.formats``; ``int4_qat`` and ``nvfp4_qat`` are BF16
    training with fake quantization) under the named frameworks.

    ``needs`` lists in words what the pair asks for beyond the two formats.
    """

    train: str
    rollout: str
    supported: bool
    maturity: Literal["stable", "beta", "experimental"] | None
    frameworks: tuple[str, ...]
    needs: tuple[str, ...]
    source: str
    note: str | None = None


class PairSettings(NamedTuple):
    """Plan fields that one side of a pair needs to be what it is, by section.

    A row without ``frameworks`` holds in all; ``min_cc`` and ``below_cc`` bound the compute
    capability. All rows that hold for a cell are taken together.
    """

    side: Literal["train", "rollout"]
    format: str
    settings: Mapping[str, Mapping[str, Any]]
    source: str
    frameworks: tuple[str, ...] = ()
    min_cc: str | None = None
    below_cc: str | None = None

    def holds(self, framework: str, gpu: Gpu) -> bool:
        """True if the row is about this framework and GPU; no bounded row is about ROCm."""
        if self.frameworks and framework not in self.frameworks:
            return False
        if self.min_cc is None and self.below_cc is None:
            return True
        capability = gpu.compute_capability
        if capability is None:
            return False
        if self.min_cc is not None and capability < parse_capability(self.min_cc):
            return False
        return self.below_cc is None or capability < parse_capability(self.below_cc)


class FormatHardware(NamedTuple):
    """Where a framework's documentation says that one of its low-precision formats runs.

    ``platforms`` lists them all; ``min_cc`` is the least compute capability on CUDA.
    """

    framework: str
    formats: tuple[str, ...]
    platforms: tuple[str, ...]
    min_cc: str
    source: str


@lru_cache(maxsize=1)
def train_rollout_pairs() -> tuple[TrainRolloutPair, ...]:
    """Every documented pair; one that is not listed is undocumented, not refused."""
    return tuple(record(TrainRolloutPair, row) for row in table("train_rollout_pairs"))


def train_rollout_pair(train: str, rollout: str, framework: str | None) -> TrainRolloutPair | None:
    """The row of one pair under one framework (``None``: the first framework that has it)."""
    for pair in train_rollout_pairs():
        if (pair.train, pair.rollout) == (train, rollout) and (
            framework is None or framework in pair.frameworks
        ):
            return pair
    return None


@lru_cache(maxsize=1)
def pair_settings() -> tuple[PairSettings, ...]:
    """Every row, in order of the matrix: trained formats first."""
    return tuple(record(PairSettings, row) for row in table("pair_settings"))


def formats_of(side: Literal["train", "rollout"]) -> tuple[str, ...]:
    """The formats of one side, each once."""
    return tuple(dict.fromkeys(row.format for row in pair_settings() if row.side == side))


def settings_of(
    side: Literal["train", "rollout"], format: str, framework: str, gpu: Gpu
) -> Iterator[PairSettings]:
    """The rows that hold for one side of one cell."""
    for row in pair_settings():
        if (row.side, row.format) == (side, format) and row.holds(framework, gpu):
            yield row


@lru_cache(maxsize=64)
def format_hardware(framework: str, format: str) -> FormatHardware | None:
    """The documented hardware of a format; ``None`` where nothing is documented."""
    for row in table("format_hardware"):
        if row["framework"] == framework and format in row["formats"]:
            return record(FormatHardware, row)
    return None


@lru_cache(maxsize=1)
def online_formats() -> Mapping[str, str]:
    """What vLLM makes of an unquantized checkpoint, by the value of ``--quantization``."""
    return MappingProxyType({row["flag"]: row["format"] for row in table("online_formats")})

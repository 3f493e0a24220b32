"""GPU products: architecture, compute capability, memory and native formats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import table


class Gpu(NamedTuple):
    """One product.

    ``compute_capability`` is ``(major, minor)`` on CUDA and ``None`` on ROCm, where ``gfx``
    names the target instead. Rates are dense TFLOP/s; ``None`` means no native matrix path.
    ``basis`` tells whether a figure was cited or recalled from a data sheet.
    """

    name: str
    product: str
    vendor: str
    platform: Literal["cuda", "rocm"]
    arch: str
    compute_capability: tuple[int, int] | None
    gfx: str | None
    memory_gib: tuple[int, ...]
    bf16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    fp8_encoding: Literal["ocp", "fnuz", "none"]
    native: tuple[str, ...] | None
    basis: str
    source: tuple[str, ...]
    note: str | None = None

    @property
    def capability_text(self) -> str:
        """``9.0`` on CUDA, ``gfx942`` on ROCm."""
        if self.compute_capability is None:
            return self.gfx or "unknown"
        return "{}.{}".format(*self.compute_capability)


def parse_capability(text: str) -> tuple[int, int]:
    """Turn ``"10.3"`` into ``(10, 3)``.

    Raises:
        ValueError: if ``text`` is not ``major.minor``.
    """
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


@lru_cache(maxsize=1)
def gpus() -> Mapping[str, Gpu]:
    """Every product by its name in ``hardware.gpu``."""
    rows: dict[str, Gpu] = {}
    for row in table("gpus"):
        row = dict(row)
        row.pop("torch_capability")
        capability = row["compute_capability"]
        row["compute_capability"] = parse_capability(capability) if capability else None
        for key in ("memory_gib", "native", "source"):
            row[key] = tuple(row[key]) if row[key] is not None else None
        rows[row["name"]] = Gpu(**row)
    return MappingProxyType(rows)

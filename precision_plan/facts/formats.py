"""Number formats: element encodings and the scaled formats that are built from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table

FormatKind = Literal["float", "integer", "scale", "scaled"]
ScaleKind = Literal["tensor", "channel", "block", "group"]


class NumberFormat(NamedTuple):
    """One number format.

    ``kind`` is ``float`` or ``integer`` for an element encoding, ``scale`` for one that only
    holds scales, ``scaled`` for elements plus scales; the last names its ``element`` encoding.
    ``bits`` is the stored size of one element without scales, ``max_finite`` the largest
    element value and ``min_normal`` the smallest positive normal one. A block is
    ``(rows, columns)`` of a weight ``(out, in)`` or of an activation ``(tokens, in)`` that
    share one scale of ``scale_bits`` bits.
    """

    name: str
    title: str
    kind: FormatKind
    bits: int
    exponent_bits: int
    mantissa_bits: int
    max_finite: float
    min_normal: float
    source: str
    bias: int | None = None
    min_subnormal: float | None = None
    min_value: float | None = None
    has_infinity: bool | None = None
    has_nan: bool | None = None
    torch_dtype: str | None = None
    element: str | None = None
    scale_dtype: str | None = None
    scale_kind: ScaleKind | None = None
    scale_bits: int | None = None
    global_scale_dtype: str | None = None
    weight_block: tuple[int, int] | None = None
    activation_block: tuple[int, int] | None = None
    scale_tensors: tuple[str, ...] = ()
    note: str | None = None

    @property
    def bytes_per_element(self) -> float:
        """Bytes of one weight element with its share of the block scales.

        Scales per tensor and per channel are left out: their share depends on the shape and
        is below 0.2 % from 2048 columns on.
        """
        return self.bytes_with_block(self.weight_block)

    @property
    def activation_bytes_per_element(self) -> float:
        """Bytes of one activation element with its share of the block scales."""
        return self.bytes_with_block(self.activation_block)

    def bytes_with_block(self, block: tuple[int, int] | None) -> float:
        """Bytes of one element where ``block`` (rows, columns) shares one scale."""
        if block is None or self.scale_bits is None:
            return self.bits / 8
        return (self.bits + self.scale_bits / (block[0] * block[1])) / 8


@lru_cache(maxsize=1)
def formats() -> Mapping[str, NumberFormat]:
    """Every number format by name."""
    return MappingProxyType({row["name"]: record(NumberFormat, row) for row in table("formats")})

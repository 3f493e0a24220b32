"""What MXFP8 and MXFP4 share: 32 values along the row and one UE8M0 exponent.

With ``amax = m * 2^e``, ``1 <= m < 2``, the exponent of the scale is ``e - emax``, plus one where
the rule says so; emax is 8 for E4M3 (448 = 1.75 * 2^8) and 2 for E2M1 (6 = 1.5 * 2^2). All rules
work on the bits of amax: a carry added to the mantissa moves the exponent. ``log2`` in float32 is
wrong by one just above 1.75 * 2^k, and a cast to ``float8_e8m0fnu`` rounds to nearest.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import exponent_byte, from_ue8m0

BLOCK: Final = 32


class Rule(NamedTuple):
    """When the exponent goes up: ``carry`` is added to the 23 bits of the mantissa.

    ``saturates``: the greatest values of a block may then be above the element's maximum.
    ``inf_byte``: what an infinite amax gives with ``on_nonfinite="propagate"``.
    """

    does: str
    source: str
    carry: int
    saturates: bool = False
    inf_byte: int = 254


def up_if_above(mantissa: float) -> int:
    """The carry for ``m > mantissa``."""
    return 0x7FFFFF - _bits(mantissa)


def up_from(mantissa: float) -> int:
    """The carry for ``m >= mantissa``."""
    return 0x800000 - _bits(mantissa)


def _bits(mantissa: float) -> int:
    return int((mantissa - 1.0) * (1 << 23))


def scale_bytes(amax: Tensor, rule: Rule, emax: int) -> Tensor:
    """UE8M0 bytes (uint8) of float32 block maxima.

    The exponent is cut to -127..127: a block of zeros and one too small for any scale get byte 0.
    NaN gives 255.
    """
    byte = (exponent_byte(amax, rule.carry) - emax).clamp_(0, 254)
    byte = torch.where(torch.isinf(amax), rule.inf_byte, byte)
    return torch.where(torch.isnan(amax), 255, byte).to(torch.uint8)


def range_of(byte: Tensor, greatest: float) -> Tensor:
    """The greatest magnitude that a block with this scale holds, float32."""
    return from_ue8m0(byte) * greatest

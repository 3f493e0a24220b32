"""A slow second opinion in exact fractions: rounding to a small float format, one value a time."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isinf, isnan


@cache
def magnitudes(exponent_bits: int, mantissa_bits: int, bias: int, count: int) -> list[Fraction]:
    """The first ``count`` magnitudes, in the order of their codes."""
    found = []
    for code in range(count):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        whole = Fraction(mantissa, 1 << mantissa_bits) + (1 if exponent else 0)
        found.append(whole * Fraction(2) ** (max(exponent, 1) - bias))
    assert count <= 1 << (exponent_bits + mantissa_bits)
    return found


E4M3 = magnitudes(4, 3, 7, 127)
E2M1 = magnitudes(2, 1, 1, 8)


def nearest(value: Fraction, among: list[Fraction]) -> int:
    """The code of the nearest magnitude, the even code of two; beyond the last one, the last."""
    low, high = 0, len(among) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if among[middle] <= value else (low, middle)
    below, above = value - among[low], among[high] - value
    if below == above:
        return low if low % 2 == 0 else high
    return low if below < above else high


def e4m3(value: float) -> int:
    """The byte of a finite value, saturating; a negative zero keeps its sign."""
    sign = 0x80 if str(value).startswith("-") else 0
    return sign | nearest(Fraction(abs(value)), E4M3)


def e2m1(value: float) -> int:
    """The nibble of a finite value, saturating; -0.0 is 0, a negative that rounds to zero 8."""
    return (8 if value < 0 else 0) | nearest(Fraction(abs(value)), E2M1)


def exponent_ceil(amax: float, greatest: Fraction) -> int:
    """The byte of the least power of two times ``greatest`` that is not below ``amax``."""
    assert not isnan(amax) and not isinf(amax)
    byte = 0
    while byte < 254 and Fraction(amax) > greatest * Fraction(2) ** (byte - 127):
        byte += 1
    return byte if amax else 0

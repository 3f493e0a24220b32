"""Four over six: each NVFP4 block maps its maximum to 6 or to 4, whichever errs less.

Mapping to 4 makes the block scale 1.5 times as large and avoids the wide step between 4 and 6.
Transformer Engine decides per block (per 16x16 tile when weights are tiled), in this order:

    base = (amax_block / 6) * G                      float32, division first
    s6   = E4M3(min(base, 448));  s4 = E4M3(min(base * 1.5, 448))
    q    = the codes of each candidate by the usual formula
    err  = sum over the 16 elements, in order, of |v - x| (MAE) or (v - x)^2 (MSE), float32
    s4 is taken only if err4 < err6; a tie keeps s6

with v = ((q * s) * A) / (6 * E), or in the FP16 mode v = q * s against x * G (the product of an
E2M1 and an E4M3 value is exact in FP16). Tiles add the sixteen row errors as a tree: 8+8, 4+4,
2+2, 1+1.

Source: NVIDIA/TransformerEngine@d0067d0da:transformer_engine/pytorch/custom_recipes/
reference_nvfp4.py (``_quantize_blockwise_4over6_reference``) and
radixark/miles@0208b9a7:miles/utils/fused_nvfp4_qdq.py (``_candidate_error``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import E2M1_MAX, expand_blocks, from_e2m1, to_e4m3

ErrorMode = Literal["MAE", "MSE"]
E4M3_BOUNDS: Final = (448, 256)
ERROR_MODES: Final[tuple[ErrorMode, ...]] = ("MAE", "MSE")


@dataclass(frozen=True)
class FourOverSix:
    """The knobs of Transformer Engine: ``NVTE_NVFP4_4OVER6_E4M3_USE_256``, ``_ERR_MODE`` and
    ``_ERR_USE_FAST_MATH``.

    ``e4m3_max`` = 256 leaves room for the factor 1.5; Transformer Engine uses it unless its
    variable is ``none``, and then decodes with amax/(6 * 256).
    """

    e4m3_max: int = 256
    error: ErrorMode = "MAE"
    fp16_error: bool = False

    def __post_init__(self) -> None:
        if self.e4m3_max not in E4M3_BOUNDS:
            raise ValueError(f"e4m3_max is {self.e4m3_max}; known: 448, 256")
        if self.error not in ERROR_MODES:
            raise ValueError(f"unknown error mode {self.error!r}; known: MAE, MSE")


class Global(NamedTuple):
    """The float32 scalars of one tensor: amax A, encode scale G and decode scale 1/G."""

    amax: Tensor
    encode: Tensor
    decode: Tensor


Encode = Callable[[Tensor, Tensor], Tensor]
"""Blocks ``[n, k, 16]`` and float8_e4m3fn scales ``[n, k]`` to E2M1 codes ``[n, k, 16]``."""


def choose(
    blocks: Tensor,
    amax: Tensor,
    scalars: Global,
    knobs: FourOverSix,
    tile_rows: int,
    encode: Encode,
) -> tuple[Tensor, Tensor]:
    """E4M3 scales ``[n, k]`` and codes ``[n, k, 16]`` (uint8) of one strip.

    ``blocks`` float32 ``[n, k, 16]``; ``amax`` float32 ``[n, k]``, for tiles repeated in each row.
    """
    base = (amax / E2M1_MAX) * scalars.encode
    four, six = to_e4m3(base * 1.5), to_e4m3(base)
    codes_four, codes_six = encode(blocks, four), encode(blocks, six)
    smaller = _error(blocks, codes_four, four, scalars, knobs, tile_rows) < _error(
        blocks, codes_six, six, scalars, knobs, tile_rows
    )
    scale = torch.where(smaller, four.view(torch.uint8), six.view(torch.uint8))
    codes = torch.where(smaller.unsqueeze(-1), codes_four, codes_six)
    return scale.view(torch.float8_e4m3fn), codes


def _error(
    blocks: Tensor,
    codes: Tensor,
    scale: Tensor,
    scalars: Global,
    knobs: FourOverSix,
    tile_rows: int,
) -> Tensor:
    """Float32 error ``[n, k]`` of a candidate; of the whole tile in each of its rows."""
    wide = scale.to(torch.float32)
    total = torch.zeros_like(wide)
    for i in range(blocks.shape[-1]):  # the order of the sum is part of the result
        value = from_e2m1(codes[..., i]) * wide
        if knobs.fp16_error:
            off = value - blocks[..., i] * scalars.encode
        else:
            off = value * scalars.amax / (E2M1_MAX * knobs.e4m3_max) - blocks[..., i]
        total += off * off if knobs.error == "MSE" else off.abs()
    return total if tile_rows == 1 else _tile_sum(total, tile_rows)


def _tile_sum(error: Tensor, tile_rows: int) -> Tensor:
    rows, across = error.shape
    missing = -rows % tile_rows
    padded = torch.nn.functional.pad(error, (0, 0, 0, missing))
    tree = padded.view(-1, tile_rows, across)
    while tree.shape[1] > 1:
        half = tree.shape[1] // 2
        tree = tree[:, :half] + tree[:, half:]
    return expand_blocks(tree[:, 0], tile_rows, 1, rows, across)

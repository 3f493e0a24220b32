"""Block FP8: E4M3 weights with one scale per block of rows and columns (128x128 by default).

Formula, for each block of the weight ``[N, K]``; at a ragged edge a block is what exists of it::

    amax      = max |x|                     exact, as float32
    scale_inv = max(amax, floor) / 448      float32; despite its name the factor of dequantization
    q         = E4M3(clamp(x / scale_inv))  float32 arithmetic, RNE, saturating at ±448
    x'        = float32(q) * scale_inv      rounded once to the asked dtype

How the last bits are computed is the ``method`` (:data:`METHODS`). With a power-of-two scale
(``te_pow2``, ``ue8m0_eps1e-4``) the division is exact and the scale fits a UE8M0 byte.

Edge cases: a block of zeros has codes 0 (-0.0 stays -0.0) and a finite scale: 1e-12/448 for
``div_fp32``, 1 for ``te_*``; ``div_fp32_nofloor`` gives scale 0 and NaN codes as the libraries it
reproduces do. Subnormal results round like any other. Ties go to the even code. With
``on_nonfinite="propagate"`` a NaN makes its block NaN; an Inf makes the scale Inf, itself NaN and
the rest of its block 0.

Layout on disk: ``weight`` and ``weight_scale_inv``, vllm@0.33.0:vllm/model_executor/layers/
quantization/fp8.py and utils/fp8_utils.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _fp8
from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    blocks_of,
    exponent_byte,
    require_matrix,
    straight_through,
)

BLOCK: Final = (128, 128)
METHODS: Final = (
    "div_fp32",
    "div_fp32_nofloor",
    "recip_fp32_eps1e-4",
    "recip_fp32_eps1e-10",
    "ue8m0_eps1e-4",
    "te_fp32",
    "te_pow2",
    "ct_cpu",
)


class BlockFP8(NamedTuple):
    """``q`` float8_e4m3fn ``[N, K]``; ``scale_inv`` float32 ``[ceil(N/bn), ceil(K/bk)]``.

    ``ct_cpu`` stores the scale in the dtype of the input.
    """

    q: Tensor
    scale_inv: Tensor


def quantize(
    x: Tensor,
    *,
    block: tuple[int, int] = BLOCK,
    method: str = "div_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> BlockFP8:
    """Quantize a float32, bfloat16 or float16 matrix; ``name`` is for the error."""
    require_matrix(x, name)
    _require_block(block)
    chosen = _fp8.method_of(method, METHODS)
    return BlockFP8(*_fp8.quantize_blocks(x, *block, chosen, name, on_nonfinite))


def dequantize(
    stored: BlockFP8,
    *,
    block: tuple[int, int] = BLOCK,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``q * scale_inv`` in float32, rounded once to ``dtype``."""
    _require_block(block)
    grid = _grid(stored.q.shape, block)
    if stored.scale_inv.shape != grid:
        raise ValueError(
            f"scale_inv has shape {list(stored.scale_inv.shape)}; "
            f"{list(stored.q.shape)} in blocks of {list(block)} needs {list(grid)}"
        )
    return _fp8.dequantize_blocks(*stored, *block, dtype)


def fake_quantize(
    x: Tensor,
    *,
    block: tuple[int, int] = BLOCK,
    method: str = "te_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``; the gradient is the identity.

    Scaling by the maximum saturates nothing, so every element is inside the range.
    """
    stored = quantize(x.detach(), block=block, method=method, name=name, on_nonfinite=on_nonfinite)
    return straight_through(x, dequantize(stored, block=block, dtype=x.dtype))


def storage(shape: tuple[int, int], *, block: tuple[int, int] = BLOCK) -> tuple[Storage, ...]:
    """The tensors of a weight of ``shape`` on disk."""
    _require_block(block)
    return (
        Storage("weight", torch.float8_e4m3fn, tuple(shape)),
        Storage("weight_scale_inv", torch.float32, _grid(shape, block)),
    )


def scale_bytes(scale_inv: Tensor) -> Tensor | None:
    """The UE8M0 bytes of float32 power-of-two scales, exact; None when some scale is none."""
    bits = scale_inv.to(torch.float32).contiguous().view(torch.int32)
    if bool(((bits & 0x7FFFFF) != 0).any() | (bits <= 0).any() | (bits >= 0x7F800000).any()):
        return None
    return exponent_byte(scale_inv.to(torch.float32)).to(torch.uint8)


def _grid(shape: tuple[int, ...], block: tuple[int, int]) -> tuple[int, int]:
    rows, columns = shape
    return blocks_of(rows, block[0]), blocks_of(columns, block[1])


def _require_block(block: tuple[int, int]) -> None:
    if min(block) < 1:
        raise ValueError(f"block {list(block)}: both sizes must be at least 1")

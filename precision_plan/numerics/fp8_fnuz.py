"""E4M3 as MI300 reads it (FNUZ): the bytes of block FP8 seen with another exponent bias.

The bias is 8 instead of 7, so the same byte means half the value: the scales double, nothing is
rounded. FNUZ has one zero and its only NaN is 0x80, the byte of -0.0 elsewhere::

    byte  = 0x00 where q is -0.0, 0x80 where q is NaN, else the byte of q
    scale = 2 * scale_inv               float32, exact

All finite magnitudes up to 448 have a byte below 0x7F, so the greatest value in use is 224 and not
the 240 that FNUZ could hold. Checkpoints keep the OCP bytes; an engine converts at load.

Source: vllm@0.33.0:vllm/model_executor/layers/quantization/utils/w8a8_utils.py
(``normalize_e4m3fn_to_e4m3fnuz``), which leaves NaN bytes alone: 0x7F would then read as 240.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _fp8, fp8_block
from precision_plan.numerics._common import OnNonFinite, Storage, straight_through


class FnuzFP8(NamedTuple):
    """``q`` float8_e4m3fnuz ``[N, K]``; ``scale`` float32, twice the OCP scale."""

    q: Tensor
    scale: Tensor


def from_ocp(q: Tensor, scale: Tensor) -> FnuzFP8:
    """OCP bytes and scales of any granularity as FNUZ; every value stays what it is."""
    if q.dtype != torch.float8_e4m3fn:
        raise TypeError(f"q has dtype {q.dtype}; expected torch.float8_e4m3fn")
    byte = q.view(torch.uint8)
    byte = torch.where((byte & 0x7F) == 0x7F, 0x80, torch.where(byte == 0x80, 0, byte))
    return FnuzFP8(byte.view(torch.float8_e4m3fnuz), scale * 2.0)


def quantize(
    x: Tensor,
    *,
    block: tuple[int, int] = fp8_block.BLOCK,
    method: str = "div_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> FnuzFP8:
    """Block FP8 by ``method``, then the FNUZ view of it."""
    stored = fp8_block.quantize(x, block=block, method=method, name=name, on_nonfinite=on_nonfinite)
    return from_ocp(*stored)


def dequantize(
    stored: FnuzFP8,
    *,
    block: tuple[int, int] = fp8_block.BLOCK,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``q * scale`` in float32, rounded once to ``dtype``."""
    return _fp8.dequantize_blocks(*stored, *block, dtype)


def fake_quantize(
    x: Tensor,
    *,
    block: tuple[int, int] = fp8_block.BLOCK,
    method: str = "div_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``; the gradient is the identity."""
    stored = quantize(x.detach(), block=block, method=method, name=name, on_nonfinite=on_nonfinite)
    return straight_through(x, dequantize(stored, block=block, dtype=x.dtype))


def storage(
    shape: tuple[int, int], *, block: tuple[int, int] = fp8_block.BLOCK
) -> tuple[Storage, ...]:
    """The tensors in memory; on disk they are those of block FP8."""
    q, scale = fp8_block.storage(shape, block=block)
    return q._replace(dtype=torch.float8_e4m3fnuz), scale

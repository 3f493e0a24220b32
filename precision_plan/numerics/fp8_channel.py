"""FP8 with one scale per output channel: E4M3 ``[N, K]`` and a float32 scale ``[N, 1]``.

Formula, for each row::

    amax  = max |x| of the row          exact, as float32
    scale = max(amax, floor) / 448      float32
    q     = E4M3(clamp(x / scale))      float32 arithmetic, RNE, saturating at ±448
    x'    = float32(q) * scale          rounded once to the asked dtype

Methods: ``div_fp32`` (default, slime and vime), ``div_fp32_nofloor`` (a row of zeros has scale 0
and NaN codes, as in torchao and ModelOpt) and ``ct_cpu`` (arithmetic in the dtype of the input,
compressed-tensors on a CPU). Edge cases: as in block FP8.

Layout on disk: ``weight`` and ``weight_scale`` of a compressed-tensors ``float-quantized``
checkpoint with strategy ``channel``, vllm@0.33.0:vllm/model_executor/layers/quantization/
compressed_tensors/schemes/compressed_tensors_w8a8_fp8.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _fp8
from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    require_matrix,
    straight_through,
)

METHODS: Final = ("div_fp32", "div_fp32_nofloor", "ct_cpu")


class ChannelFP8(NamedTuple):
    """``q`` float8_e4m3fn ``[N, K]``; ``scale`` float32 ``[N, 1]``.

    ``ct_cpu`` stores the scale in the dtype of the input.
    """

    q: Tensor
    scale: Tensor


def quantize(
    x: Tensor,
    *,
    method: str = "div_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> ChannelFP8:
    """Quantize a float32, bfloat16 or float16 matrix; ``name`` is for the error."""
    require_matrix(x, name)
    chosen = _fp8.method_of(method, METHODS)
    width = max(x.shape[1], 1)
    return ChannelFP8(*_fp8.quantize_blocks(x, 1, width, chosen, name, on_nonfinite))


def dequantize(stored: ChannelFP8, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``q * scale`` in float32, rounded once to ``dtype``."""
    width = max(stored.q.shape[1], 1)
    return _fp8.dequantize_blocks(*stored, 1, width, dtype)


def fake_quantize(
    x: Tensor,
    *,
    method: str = "div_fp32",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``; the gradient is the identity."""
    stored = quantize(x.detach(), method=method, name=name, on_nonfinite=on_nonfinite)
    return straight_through(x, dequantize(stored, dtype=x.dtype))


def storage(shape: tuple[int, int]) -> tuple[Storage, ...]:
    """The tensors of a weight of ``shape`` on disk."""
    return (
        Storage("weight", torch.float8_e4m3fn, tuple(shape)),
        Storage("weight_scale", torch.float32, (shape[0], 1)),
    )

"""FP8 activations: E4M3 with one float32 scale per row and group of columns (1x128 by default).

Formula as in block FP8 with blocks of 1x128::

    amax      = max |x| of the group        exact, as float32
    scale_inv = amax / 448                  float32, by the method
    q         = E4M3(clamp(x * (448/amax))) float32 arithmetic, RNE, saturating at ±448

Methods: ``te_fp32`` and ``te_pow2`` are Transformer Engine's for activations and gradients in
training (the power of two is its default); ``mul_fp32_eps1e-10`` and ``mul_ue8m0_eps1e-10`` are
vLLM's at run time, ``recip_fp32_eps1e-10`` the kernel of slime. Zero groups, ties, -0.0 and values
that are not finite: as in block FP8. The last group of a row may be ragged.

Layout: scales row-major ``[M, ceil(K/128)]``. Transformer Engine keeps them transposed and padded
in memory; they are never on disk.

Source: NVIDIA/TransformerEngine@d0067d0da, vllm@0.33.0:vllm/model_executor/layers/quantization/
utils/fp8_utils.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _fp8
from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    as_rows,
    blocks_of,
    require_float,
    straight_through,
)

GROUP: Final = 128
METHODS: Final = (
    "te_fp32",
    "te_pow2",
    "mul_fp32_eps1e-10",
    "mul_ue8m0_eps1e-10",
    "recip_fp32_eps1e-10",
    "div_fp32",
)


class GroupFP8(NamedTuple):
    """``q`` float8_e4m3fn ``[..., K]``; ``scale_inv`` float32 ``[..., ceil(K/group)]``."""

    q: Tensor
    scale_inv: Tensor


def quantize(
    x: Tensor,
    *,
    group: int = GROUP,
    method: str = "te_fp32",
    name: str = "activation",
    on_nonfinite: OnNonFinite = "raise",
) -> GroupFP8:
    """Quantize along the last dimension of a float32, bfloat16 or float16 tensor."""
    require_float(x, name)
    _require_group(group)
    chosen = _fp8.method_of(method, METHODS)
    q, scale = _fp8.quantize_blocks(as_rows(x), 1, group, chosen, name, on_nonfinite)
    return GroupFP8(q.view(x.shape), scale.view(*x.shape[:-1], scale.shape[-1]))


def dequantize(
    stored: GroupFP8, *, group: int = GROUP, dtype: torch.dtype = torch.float32
) -> Tensor:
    """``q * scale_inv`` in float32, rounded once to ``dtype``."""
    _require_group(group)
    out = _fp8.dequantize_blocks(as_rows(stored.q), as_rows(stored.scale_inv), 1, group, dtype)
    return out.view(stored.q.shape)


def fake_quantize(
    x: Tensor,
    *,
    group: int = GROUP,
    method: str = "te_fp32",
    name: str = "activation",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``; the gradient is the identity."""
    stored = quantize(x.detach(), group=group, method=method, name=name, on_nonfinite=on_nonfinite)
    return straight_through(x, dequantize(stored, group=group, dtype=x.dtype))


def storage(shape: tuple[int, ...], *, group: int = GROUP) -> tuple[Storage, ...]:
    """The tensors of an activation of ``shape`` in memory."""
    _require_group(group)
    grid = (*shape[:-1], blocks_of(shape[-1], group))
    return (
        Storage("q", torch.float8_e4m3fn, tuple(shape)),
        Storage("scale_inv", torch.float32, grid),
    )


def _require_group(group: int) -> None:
    if group < 1:
        raise ValueError(f"group {group}: must be at least 1")

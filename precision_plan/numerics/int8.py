"""INT8 weights with one scale per output channel (W8A8).

    s = amax_row / d                         stored as ``weight_scale`` [N, 1]
    q = RNE(clamp(x / s, -128, 127))         stored as ``weight`` int8 [N, K]

Rounding is to nearest even. Variants:

| variant    | d     | zero row                | x / s in                          | stored scale |
|------------|-------|-------------------------|-----------------------------------|--------------|
| ct_fp32div | 127.5 | s becomes eps of dtype  | float32, by the stored s          | dtype of x   |
| ct_cpu     | 127.5 | s becomes eps of dtype  | dtype of x (bfloat16 loses 0.45 dB) | dtype of x |
| modelopt   | 127   | s stays 0, codes 0      | float32                           | float32      |

With 127.5 the code -128 is used, with 127 it is not. ``scale_dtype`` stores another dtype
(vLLM allocates float32); codes then follow the scale as stored. -0.0 gives 0.

Sources: compressed-tensors@0.20.1:quantization/utils/helpers.py, lifecycle/forward_helpers.py;
nvidia-modelopt@0.47.0:modelopt/torch/quantization/qtensor/int8_tensor.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    amax_rows,
    as_rows,
    require_choice,
    require_finite,
    require_float,
    straight_through,
    strips,
)

_LOW, _HIGH = -128, 127


@dataclass(frozen=True)
class Variant:
    """How a library computes scales and codes; see the table of this module."""

    divisor: float = 127.5
    narrow: bool = False
    """Divide in the dtype of the input instead of float32."""
    eps_for_zero: bool = True
    scale_dtype: torch.dtype | None = None
    """None: the dtype of the input."""


VARIANTS: Final[dict[str, Variant]] = {
    "ct_fp32div": Variant(),
    "ct_cpu": Variant(narrow=True),
    "modelopt": Variant(127.0, eps_for_zero=False, scale_dtype=torch.float32),
}


class INT8(NamedTuple):
    """A quantized weight ``[..., K]``."""

    weight: Tensor
    """int8, the shape of the input."""
    weight_scale: Tensor
    """``[..., 1]``."""

    def stored(self) -> dict[str, Tensor]:
        """The tensors under the names that :func:`storage` lists."""
        return dict(self._asdict())


def storage(
    shape: Sequence[int], *, scale_dtype: torch.dtype = torch.bfloat16
) -> tuple[Storage, ...]:
    """What a weight ``[..., N, K]`` becomes on disk."""
    return (
        Storage("weight", torch.int8, tuple(shape)),
        Storage("weight_scale", scale_dtype, (*shape[:-1], 1)),
    )


def quantize(
    x: Tensor,
    *,
    variant: str | Variant = "ct_fp32div",
    scale_dtype: torch.dtype | None = None,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> INT8:
    """Quantize ``[..., K]`` with one scale per row; ``scale_dtype`` overrides the variant's."""
    if not isinstance(variant, Variant):
        require_choice(variant, tuple(VARIANTS), "variant of INT8")
        variant = VARIANTS[variant]
    require_float(x, name)
    rows = as_rows(x)
    dtype = scale_dtype or variant.scale_dtype or x.dtype
    codes = torch.empty(rows.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty((rows.shape[0], 1), dtype=dtype, device=x.device)
    for strip in strips(rows):
        amax = amax_rows(rows[strip])
        require_finite(x, name, on_nonfinite, amax)
        codes[strip], scales[strip] = _rows(rows[strip], amax.unsqueeze(-1), variant, dtype)
    return INT8(codes.view(x.shape), scales.view(*x.shape[:-1], 1))


def _rows(rows: Tensor, amax: Tensor, how: Variant, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    wide = rows if how.narrow else rows.to(torch.float32)
    # compressed-tensors divides in the dtype of the input
    scale = (amax.to(rows.dtype) if how.eps_for_zero else amax) / how.divisor
    scale = scale.to(dtype)
    zero = scale == 0
    by = torch.where(zero, torch.finfo(dtype).eps, scale)
    codes = (wide / by.to(wide.dtype)).clamp_(_LOW, _HIGH).round_().to(torch.int8)
    return codes, by if how.eps_for_zero else scale


def dequantize(stored: INT8, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``q * s`` in float32, rounded once to ``dtype``; exact in float32 for 16-bit scales."""
    rows = as_rows(stored.weight)
    scales = stored.weight_scale.reshape(-1, 1)
    out = torch.empty(rows.shape, dtype=dtype, device=rows.device)
    for strip in strips(rows):
        out[strip] = rows[strip].to(torch.float32) * scales[strip].to(torch.float32)
    return out.view(stored.weight.shape)


def fake_quantize(
    x: Tensor,
    *,
    variant: str | Variant = "ct_fp32div",
    scale_dtype: torch.dtype | None = None,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> Tensor:
    """Quantize and dequantize in the dtype of ``x``; the gradient is the identity."""
    with torch.no_grad():
        stored = quantize(
            x.detach(),
            variant=variant,
            scale_dtype=scale_dtype,
            on_nonfinite=on_nonfinite,
            name=name,
        )
        fake = dequantize(stored, dtype=x.dtype)
    return straight_through(x, fake)

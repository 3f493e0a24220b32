"""FP8 with one scale per tensor: E4M3 and a float32 scale of shape [1].

Formula::

    amax  = max |x|                     exact, as float32
    scale = max(amax, floor) / 448      float32
    q     = E4M3(clamp(x / scale))      float32 arithmetic, RNE, saturating at ±448
    x'    = float32(q) * scale          rounded once to the asked dtype

Weights that an engine fuses (q/k/v, gate/up) share one scale, or the engine quantizes a second
time at load: pass the greatest :func:`amax` of the group. A scale that is given (``scale=``, a
calibrated activation) may be too small for a value; that value saturates.

Methods: ``div_fp32`` (default), ``div_fp32_nofloor``, ``te_current_scaling`` (x * (448/amax)), and
two that compute in the dtype of the input: ``slime_native_dtype`` (a 0-dim float32 scale does not
promote bfloat16, so 3 % of the codes of a bfloat16 weight differ) and ``ct_cpu``. Edge cases: as in
block FP8.

Layout on disk: ``weight`` and ``weight_scale``, vllm@0.33.0:vllm/model_executor/layers/
quantization/fp8.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _fp8
from precision_plan.numerics._common import (
    E4M3_MAX,
    OnNonFinite,
    Storage,
    amax_rows,
    as_rows,
    require_finite,
    require_float,
    straight_through,
    strips,
)

METHODS: Final = (
    "div_fp32",
    "div_fp32_nofloor",
    "te_current_scaling",
    "slime_native_dtype",
    "ct_cpu",
)


class TensorFP8(NamedTuple):
    """``q`` float8_e4m3fn in the shape of the input; ``scale`` float32 ``[1]``.

    ``ct_cpu`` stores the scale in the dtype of the input.
    """

    q: Tensor
    scale: Tensor


def amax(x: Tensor, *, name: str = "weight", on_nonfinite: OnNonFinite = "raise") -> Tensor:
    """``max |x|`` as a float32 tensor of shape [1], exact."""
    require_float(x, name)
    rows = as_rows(x)
    highest = torch.zeros(1, device=x.device)
    for strip in strips(rows):
        highest = torch.maximum(highest, amax_rows(rows[strip]).amax())
    require_finite(x, name, on_nonfinite, highest)
    return highest


def quantize(
    x: Tensor,
    *,
    method: str = "div_fp32",
    amax: Tensor | None = None,
    scale: Tensor | None = None,
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> TensorFP8:
    """Quantize a tensor of any shape.

    ``amax`` (float32, one element) stands for the tensor's own maximum; ``scale`` (float32, one
    element) is used as it is.
    """
    chosen = _fp8.method_of(method, METHODS)
    if scale is not None:
        require_float(x, name)
        require_finite(x, name, on_nonfinite)
        factors = _fp8.Scales(scale.to(x.device).reshape(1), scale.to(x.device), True, None)
    else:
        highest = _amax(x, name=name, on_nonfinite=on_nonfinite) if amax is None else amax
        if amax is not None:
            require_finite(x, name, on_nonfinite)
        factors = _fp8.scales(highest.to(x.device).reshape(1), chosen, x.dtype)
    rows = as_rows(x)
    q = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=x.device)
    for strip in strips(rows):
        q[strip] = _fp8.encode(rows[strip].to(torch.float32, copy=True), factors)
    return TensorFP8(q.view(x.shape), factors.stored)


def dequantize(stored: TensorFP8, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``q * scale`` in float32, rounded once to ``dtype``."""
    rows = as_rows(stored.q)
    out = torch.empty(rows.shape, dtype=dtype, device=rows.device)
    scale = stored.scale.to(torch.float32)
    for strip in strips(rows):
        out[strip] = rows[strip].to(torch.float32) * scale
    return out.view(stored.q.shape)


def fake_quantize(
    x: Tensor,
    *,
    method: str = "div_fp32",
    amax: Tensor | None = None,
    scale: Tensor | None = None,
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``.

    The gradient is the identity; with an ``amax`` or ``scale`` from outside it is 0 where
    ``|x| > 448 * scale``.
    """
    stored = quantize(
        x.detach(), method=method, amax=amax, scale=scale, name=name, on_nonfinite=on_nonfinite
    )
    inside = None
    if amax is not None or scale is not None:
        inside = x.detach().abs().to(torch.float32) <= E4M3_MAX * stored.scale.to(torch.float32)
    return straight_through(x, dequantize(stored, dtype=x.dtype), inside)


def storage(shape: tuple[int, ...]) -> tuple[Storage, ...]:
    """The tensors of a weight of ``shape`` on disk."""
    return (
        Storage("weight", torch.float8_e4m3fn, tuple(shape)),
        Storage("weight_scale", torch.float32, (1,)),
    )


_amax = amax  # the parameter of the same name hides it

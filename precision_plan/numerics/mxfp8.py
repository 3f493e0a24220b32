"""MXFP8: E4M3 elements with a UE8M0 exponent for each 32 values along the row.

Formula, for each block of 32 of the tensor ``[..., K]``, K a multiple of 32::

    amax  = max |x| = m * 2^e           exact, as float32; 1 <= m < 2
    byte  = 127 + e - 8 (+1)            +1 by the rule; cut to 0..254; 0 for a block of zeros
    q     = E4M3(clamp(x * 2^(127-byte)))   exact product (tiny ones are 0); RNE, saturating at ±448
    x'    = float32(q) * 2^(byte-127)   exact in float32, rounded once to the asked dtype

The rules (:data:`RULES`) say when the exponent goes up. ``ceil`` (default) never saturates: it is
what Transformer Engine, ModelOpt, vLLM and torchao RCEIL do. ``floor`` is the text of the OCP MX
specification v1.0, section 6.3; ``even`` is torchao's EVEN; ``ct`` that of compressed-tensors.

Edge cases: a block of zeros has byte 0 and codes 0 (-0.0 stays -0.0); byte 0 means 2^-127, and
elements are multiplied by 2^127 there. With ``on_nonfinite="propagate"`` a NaN gives byte 255; an
Inf gives byte 254 (``floor``: 247).

Layout on disk: ``weight`` and ``weight_scale`` uint8 row-major, not swizzled, vllm@0.33.0:
vllm/model_executor/layers/quantization/modelopt.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _mx, fp8_block
from precision_plan.numerics._common import (
    E4M3_MAX,
    OnNonFinite,
    Storage,
    amax_blocks,
    as_rows,
    from_ue8m0,
    inverse_ue8m0,
    require_choice,
    require_finite,
    require_float,
    require_multiple,
    straight_through,
    strips,
    to_e4m3,
)

BLOCK: Final = _mx.BLOCK
_EMAX: Final = 8

RULES: Final[dict[str, _mx.Rule]] = {
    "ceil": _mx.Rule(
        "up if m > 1.75: the least scale that saturates nothing",
        "NVIDIA/TransformerEngine@d0067d0da:transformer_engine/common/util/ptx_arch_spec.cuh",
        _mx.up_if_above(1.75),
    ),
    "floor": _mx.Rule(
        "never up: maxima with m > 1.75 saturate",
        "OCP Microscaling Formats (MX) v1.0, section 6.3; torchao@0.18.0 FLOOR",
        0,
        saturates=True,
        inf_byte=247,
    ),
    "even": _mx.Rule(
        "up if m >= 1.9375: as the maximum itself would round to E4M3",
        "torchao@0.18.0 EVEN",
        _mx.up_from(1.9375),
        saturates=True,
    ),
    "ct": _mx.Rule(
        "up if m >= 1.75",
        "compressed-tensors@0.20.1:quantization/utils/mxfp_utils.py",
        _mx.up_from(1.75),
    ),
    "ceil_pow2": _mx.Rule(
        "up unless amax is a power of two",
        "torchao@0.18.0 CEIL",
        _mx.up_if_above(1.0),
    ),
}


class MXFP8(NamedTuple):
    """``q`` float8_e4m3fn ``[..., K]``; ``scale`` uint8 ``[..., K/32]``, the UE8M0 byte."""

    q: Tensor
    scale: Tensor


def quantize(
    x: Tensor,
    *,
    rule: str = "ceil",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> MXFP8:
    """Quantize a float32, bfloat16 or float16 tensor along its last dimension."""
    require_float(x, name)
    require_choice(rule, tuple(RULES), "rule")
    rows = as_rows(x)
    require_multiple(rows.shape[1], BLOCK, name)
    q = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((rows.shape[0], rows.shape[1] // BLOCK), dtype=torch.uint8, device=x.device)
    for strip in strips(rows):
        part = rows[strip]
        amax = amax_blocks(part, 1, BLOCK)
        require_finite(x, name, on_nonfinite, amax)
        byte = _mx.scale_bytes(amax, RULES[rule], _EMAX)
        values = part.to(torch.float32, copy=True).view(*byte.shape, BLOCK)
        q[strip] = to_e4m3(values.mul_(inverse_ue8m0(byte)[..., None])).view(part.shape)
        scale[strip] = byte
    return MXFP8(q.view(x.shape), scale.view(*x.shape[:-1], scale.shape[1]))


def dequantize(stored: MXFP8, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``q * 2^(scale - 127)`` in float32, rounded once to ``dtype``."""
    rows, scale = as_rows(stored.q), as_rows(stored.scale)
    out = torch.empty(rows.shape, dtype=dtype, device=rows.device)
    for strip in strips(rows):
        factor = from_ue8m0(scale[strip])
        values = rows[strip].to(torch.float32).view(*factor.shape, BLOCK)
        out[strip] = values.mul_(factor[..., None]).view(-1, rows.shape[1])
    return out.view(stored.q.shape)


def fake_quantize(
    x: Tensor,
    *,
    rule: str = "ceil",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``.

    The gradient is the identity; with a rule that saturates it is 0 where ``|x|`` is above
    448 times the scale.
    """
    detached = x.detach()
    stored = quantize(detached, rule=rule, name=name, on_nonfinite=on_nonfinite)
    inside = None
    if RULES[rule].saturates:
        limit = _mx.range_of(stored.scale, E4M3_MAX)
        inside = detached.abs().to(torch.float32) <= limit.repeat_interleave(BLOCK, dim=-1)
    return straight_through(x, dequantize(stored, dtype=x.dtype), inside)


def storage(shape: tuple[int, ...]) -> tuple[Storage, ...]:
    """The tensors of a weight of ``shape`` on disk."""
    require_multiple(shape[-1], BLOCK, "shape")
    return (
        Storage("weight", torch.float8_e4m3fn, tuple(shape)),
        Storage("weight_scale", torch.uint8, (*shape[:-1], shape[-1] // BLOCK)),
    )


def from_block_fp8(
    stored: fp8_block.BlockFP8, *, block: tuple[int, int] = fp8_block.BLOCK
) -> MXFP8 | None:
    """The same values as MXFP8, no code changed; None unless all scales are powers of two.

    The width of a block must be a multiple of 32, and so must K. The result keeps the coarse
    scales: it is exact, but not what quantizing the original weight would give.
    Source: radixark/miles@31f1ca961:tools/convert_hf_to_mxfp8.py.
    """
    rows, columns = stored.q.shape
    require_multiple(columns, BLOCK, "weight")
    require_multiple(block[1], BLOCK, "block", "width")
    byte = fp8_block.scale_bytes(stored.scale_inv)
    if byte is None:
        return None
    across = byte.repeat_interleave(block[1] // BLOCK, dim=1)[:, : columns // BLOCK]
    return MXFP8(stored.q, across.repeat_interleave(block[0], dim=0)[:rows].contiguous())

"""MXFP4: E2M1 elements, two in a byte, with a UE8M0 exponent for each 32 values along the row.

Formula, for each block of 32 of the tensor ``[..., K]``, K a multiple of 32::

    amax  = max |x| = m * 2^e           exact, as float32; 1 <= m < 2
    byte  = 127 + e - 2 (+1)            +1 by the rule; cut to 0..254; 0 for a block of zeros
    q     = E2M1(x * 2^(127-byte))      exact product (tiny ones are 0); RNE, saturating at ±6
    packed[i] = q[2i] | q[2i+1] << 4    nibble = sign << 3 | magnitude code
    x'    = E2M1 value * 2^(byte-127)   exact in float32, rounded once to the asked dtype

Magnitudes are 0, .5, 1, 1.5, 2, 3, 4, 6; ties go to the even code (.25 to 0, .75 and 1.25 to 1,
1.75 and 2.5 to 2, 3.5 and 5 to 4). A negative value that rounds to zero keeps its sign (8).

The rules (:data:`RULES`) say when the exponent goes up, and what -0.0 becomes. ``even`` is the
default. ``modelopt`` reproduces ModelOpt's MXFP4: ties toward zero, and every zero gets the sign.

E2M1 has no NaN: with ``on_nonfinite="propagate"`` a NaN gives byte 255, its block decodes to NaN.

Layout on disk: ``weight_packed`` and ``weight_scale`` of ``mxfp4-pack-quantized``,
compressed-tensors@0.20.1; OCP Microscaling Formats (MX) v1.0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _mx
from precision_plan.numerics._common import (
    E2M1_MAX,
    OnNonFinite,
    Storage,
    amax_blocks,
    as_rows,
    from_e2m1,
    from_ue8m0,
    inverse_ue8m0,
    pack_nibbles,
    require_choice,
    require_finite,
    require_float,
    require_multiple,
    straight_through,
    strips,
    to_e2m1,
    unpack_nibbles,
)

BLOCK: Final = _mx.BLOCK
_EMAX: Final = 2

RULES: Final[dict[str, _mx.Rule]] = {
    "even": _mx.Rule(
        "up if m >= 1.75: as the maximum itself would round to E2M1; -0.0 keeps its sign",
        "torchao@0.18.0 EVEN",
        _mx.up_from(1.75),
        saturates=True,
    ),
    "ct": _mx.Rule(
        "as even; -0.0 becomes 0",
        "compressed-tensors@0.20.1:quantization/utils/mxfp_utils.py",
        _mx.up_from(1.75),
        saturates=True,
    ),
    "floor": _mx.Rule(
        "never up: maxima with m > 1.5 saturate",
        "OCP Microscaling Formats (MX) v1.0, section 6.3; torchao@0.18.0 FLOOR",
        0,
        saturates=True,
        inf_byte=253,
    ),
    "rceil": _mx.Rule(
        "up if m > 1.5: the least scale that saturates nothing",
        "torchao@0.18.0 RCEIL",
        _mx.up_if_above(1.5),
    ),
    "ceil_pow2": _mx.Rule(
        "up unless amax is a power of two",
        "torchao@0.18.0 CEIL",
        _mx.up_if_above(1.0),
    ),
    "modelopt": _mx.Rule(
        "as rceil; ties toward zero, zeros get the sign bit",
        "modelopt@0.47.0:modelopt/torch/quantization/qtensor/mxfp4_tensor.py",
        _mx.up_if_above(1.5),
    ),
}


class MXFP4(NamedTuple):
    """``packed`` uint8 ``[..., K/2]``, first element low; ``scale`` uint8 ``[..., K/32]``."""

    packed: Tensor
    scale: Tensor


def quantize(
    x: Tensor,
    *,
    rule: str = "even",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> MXFP4:
    """Quantize a float32, bfloat16 or float16 tensor along its last dimension."""
    require_float(x, name)
    require_choice(rule, tuple(RULES), "rule")
    rows = as_rows(x)
    columns = rows.shape[1]
    require_multiple(columns, BLOCK, name)
    packed = torch.empty((rows.shape[0], columns // 2), dtype=torch.uint8, device=x.device)
    scale = torch.empty((rows.shape[0], columns // BLOCK), dtype=torch.uint8, device=x.device)
    for strip in strips(rows):
        part = rows[strip]
        amax = amax_blocks(part, 1, BLOCK)
        require_finite(x, name, on_nonfinite, amax)
        byte = _mx.scale_bytes(amax, RULES[rule], _EMAX)
        values = part.to(torch.float32, copy=True).view(*byte.shape, BLOCK)
        codes = _codes(values.mul_(inverse_ue8m0(byte)[..., None]), rule)
        packed[strip] = pack_nibbles(codes.view(part.shape))
        scale[strip] = byte
    return MXFP4(
        packed.view(*x.shape[:-1], packed.shape[1]), scale.view(*x.shape[:-1], scale.shape[1])
    )


def _codes(values: Tensor, rule: str) -> Tensor:
    if rule != "modelopt":
        return to_e2m1(values, keep_negative_zero=rule != "ct")
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=values.device)
    code = torch.bucketize(values.abs(), ties, out_int32=True).to(torch.uint8)
    return code | ((values <= 0).to(torch.uint8) << 3)


def dequantize(stored: MXFP4, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The E2M1 values times ``2^(scale - 127)`` in float32, rounded once to ``dtype``."""
    packed, scale = as_rows(stored.packed), as_rows(stored.scale)
    shape = (packed.shape[0], packed.shape[1] * 2)
    out = torch.empty(shape, dtype=dtype, device=packed.device)
    for strip in strips(out):
        factor = from_ue8m0(scale[strip])
        values = from_e2m1(unpack_nibbles(packed[strip])).view(*factor.shape, BLOCK)
        out[strip] = values.mul_(factor[..., None]).view(-1, shape[1])
    return out.view(*stored.packed.shape[:-1], shape[1])


def fake_quantize(
    x: Tensor,
    *,
    rule: str = "even",
    name: str = "weight",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Quantized and dequantized in the dtype of ``x``.

    The gradient is the identity; with a rule that saturates it is 0 where ``|x|`` is above
    6 times the scale.
    """
    detached = x.detach()
    stored = quantize(detached, rule=rule, name=name, on_nonfinite=on_nonfinite)
    inside = None
    if RULES[rule].saturates:
        limit = _mx.range_of(stored.scale, E2M1_MAX)
        inside = detached.abs().to(torch.float32) <= limit.repeat_interleave(BLOCK, dim=-1)
    return straight_through(x, dequantize(stored, dtype=x.dtype), inside)


def storage(shape: tuple[int, ...]) -> tuple[Storage, ...]:
    """The tensors of a weight of ``shape`` on disk."""
    require_multiple(shape[-1], BLOCK, "shape")
    return (
        Storage("weight_packed", torch.uint8, (*shape[:-1], shape[-1] // 2)),
        Storage("weight_scale", torch.uint8, (*shape[:-1], shape[-1] // BLOCK)),
    )

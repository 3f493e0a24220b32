"""INT4 by groups along K, as compressed-tensors packs it (``pack-quantized``).

Symmetric, with d the divisor and g the group size:

    s = amax_group / d                       stored as ``weight_scale`` [N, K/g]
    q = clamp(RNE(x / s), -8, 7)             stored as q + 8, eight to an int32

Asymmetric, with lo = min(x, 0) and hi = max(x, 0) of the group, in the dtype of the input:

    s = (hi - lo) / 15
    z = RNE(clamp(-8 - lo / s, -8, 7))       stored as z + 8, eight rows to an int32
    q = RNE(clamp(x / s + z, -8, 7))
    dequantized: (q - z) * s

Rounding is to nearest even. Variants, by the library that computes so:

| variant         | d    | floor of s             | x / s in                   | stored scale |
|-----------------|------|------------------------|----------------------------|--------------|
| ct_sym_fp32div  | 7.5  | 0 becomes eps of dtype | float32, by the stored s   | dtype of x   |
| ct_sym_cpu      | 7.5  | 0 becomes eps of dtype | dtype of x, by the stored s | dtype of x  |
| slime           | 7    | 1e-5                   | float32, by s in float32   | dtype of x   |
| vime            | 7    | amax at least 1e-8     | float32, by the stored s   | float32      |
| ct_asym_fp32div | (15) | 0 becomes eps of dtype | float32, by the stored s   | dtype of x   |
| ct_asym_cpu     | (15) | 0 becomes eps of dtype | dtype of x, by the stored s | dtype of x  |

``ct_*_fp32div`` is what compressed-tensors gives on a GPU; ``ct_*_cpu`` rounds twice on bfloat16
weights. ``slime`` (also miles and vime's kernel) multiplies amax by fl32(1/7), quantizes by that
float32 scale and stores a rounded one. ``divisor`` overrides 7.5 or 7.

Edge cases. A zero group: code 0, its scale the floor. Codes saturate at -8 and 7: with d = 7.5
the maximum itself rounds to 7 (7.5 saturates) and its negative to -8. Ties go to even. -0.0 and
negative values that round to 0 give 0. Groups so small that s underflows count as zero groups.

Sources: compressed-tensors@0.20.1:quantization/utils/helpers.py, lifecycle/forward_helpers.py;
THUDM/slime@624b824a:slime/backends/megatron_utils/kernels/int4_qat/fake_int4_quant_cuda.cu;
vllm-project/vime@221386b9:quantizer_compressed_tensors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    amax_rows,
    as_rows,
    blocks_of,
    require_choice,
    require_finite,
    require_float,
    require_multiple,
    straight_through,
    strips,
    with_main_grad,
)
from precision_plan.numerics._int4_pack import PER_WORD, pack_words, unpack_words

GROUP: Final = 128
Floor = Literal["eps", "scale", "amax"]
_ZERO: Final = 8  # what a stored nibble adds to its value
_LOW, _HIGH = -8, 7
_SCALE_FLOOR: Final = 1e-5
_AMAX_FLOOR: Final = 1e-8


@dataclass(frozen=True)
class Variant:
    """How a library computes scales and codes; see the table of this module."""

    divisor: float = 7.5
    symmetric: bool = True
    floor: Floor = "eps"
    narrow: bool = False
    """Divide in the dtype of the input instead of float32."""
    reciprocal: bool = False
    """Multiply the maximum by the float32 next to 1/divisor."""
    rounded_scale: bool = True
    """Codes come from the scale as it is stored."""
    scale_dtype: torch.dtype | None = None
    """None: the dtype of the input."""


VARIANTS: Final[dict[str, Variant]] = {
    "ct_sym_fp32div": Variant(),
    "ct_sym_cpu": Variant(narrow=True),
    "ct_asym_fp32div": Variant(symmetric=False),
    "ct_asym_cpu": Variant(symmetric=False, narrow=True),
    "slime": Variant(7.0, floor="scale", reciprocal=True, rounded_scale=False),
    "vime": Variant(7.0, floor="amax", scale_dtype=torch.float32),
}


class INT4(NamedTuple):
    """A quantized weight ``[..., N, K]`` as compressed-tensors stores it."""

    weight_packed: Tensor
    """int32 ``[..., N, ceil(K/8)]``: column 8i+j at bits 4j, value + 8; a ragged tail is 0."""
    weight_scale: Tensor
    """``[..., N, K/g]``."""
    weight_shape: Tensor
    """int64 ``[dimensions]``: the shape before packing."""
    weight_zero_point: Tensor | None
    """int32 ``[..., ceil(N/8), K/g]``: row 8i+j at bits 4j, value + 8; None when symmetric."""

    def stored(self) -> dict[str, Tensor]:
        """The tensors under the names that :func:`storage` lists."""
        return {name: each for name, each in self._asdict().items() if each is not None}


def storage(
    shape: Sequence[int],
    *,
    group_size: int = GROUP,
    symmetric: bool = True,
    scale_dtype: torch.dtype = torch.bfloat16,
) -> tuple[Storage, ...]:
    """What a weight ``[..., N, K]`` becomes on disk."""
    *lead, n, k = shape
    groups = k // _group(k, group_size, f"shape {list(shape)}")
    found = (
        Storage("weight_packed", torch.int32, (*lead, n, blocks_of(k, PER_WORD))),
        Storage("weight_scale", scale_dtype, (*lead, n, groups)),
        Storage("weight_shape", torch.int64, (len(shape),)),
    )
    if symmetric:
        return found
    packed = (*lead, blocks_of(n, PER_WORD), groups)
    return *found, Storage("weight_zero_point", torch.int32, packed)


def quantize(
    x: Tensor,
    *,
    group_size: int = GROUP,
    variant: str | Variant = "ct_sym_fp32div",
    divisor: float | None = None,
    scale_dtype: torch.dtype | None = None,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> INT4:
    """Quantize ``[..., N, K]``; ``group_size`` -1 is one group per row.

    ``divisor`` and ``scale_dtype`` override those of the variant.
    """
    how = _variant(variant)
    require_float(x, name)
    if x.dim() < 2:
        raise ValueError(f"{name} has shape {list(x.shape)}; expected [..., N, K]")
    k = x.shape[-1]
    group = _group(k, group_size, name)
    rows = as_rows(x)
    dtype = scale_dtype or how.scale_dtype or x.dtype
    packed = torch.empty(
        (rows.shape[0], blocks_of(k, PER_WORD)), dtype=torch.int32, device=x.device
    )
    scale = torch.empty((rows.shape[0], k // group), dtype=dtype, device=x.device)
    zero = None if how.symmetric else torch.empty_like(scale, dtype=torch.uint8)
    for strip in strips(rows):
        groups = rows[strip].reshape(-1, k // group, group)
        amax = amax_rows(groups.flatten(0, 1)).view(groups.shape[:-1])
        require_finite(x, name, on_nonfinite, amax)
        codes, scale[strip], zeros = _groups(groups, amax, how, divisor or how.divisor, dtype)
        packed[strip] = pack_words(codes.flatten(-2))
        if zero is not None and zeros is not None:
            zero[strip] = zeros
    lead = x.shape[:-1]
    zero_point = None
    if zero is not None:
        zero_point = (
            pack_words(zero.view(*lead, -1).transpose(-1, -2)).transpose(-1, -2).contiguous()
        )
    shape = torch.tensor(x.shape, dtype=torch.int64)
    return INT4(packed.view(*lead, -1), scale.view(*lead, -1), shape, zero_point)


def _groups(
    groups: Tensor, amax: Tensor, how: Variant, divisor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Stored nibbles ``[n, k/g, g]``, stored scales and (asymmetric) stored zero points."""
    wide = groups if how.narrow else groups.to(torch.float32)
    if not how.symmetric:
        scale, zero = _asymmetric(groups, dtype)
        by = scale.to(wide.dtype).unsqueeze(-1)
        codes = wide / by + zero.to(wide.dtype).unsqueeze(-1)
        return _stored(codes), scale, _stored(zero)
    exact = _symmetric(amax.to(groups.dtype), how, divisor)
    scale = exact.to(dtype)
    if how.floor == "eps":
        scale = _eps_for_zero(scale)
    by = (scale if how.rounded_scale else exact).to(wide.dtype)
    return _stored(wide / by.unsqueeze(-1)), scale, None


def _symmetric(amax: Tensor, how: Variant, divisor: float) -> Tensor:
    if how.floor == "eps":
        return amax / divisor  # in the dtype of the input, as compressed-tensors does
    amax = amax.to(torch.float32)
    if how.floor == "amax":
        amax = amax.clamp(min=_AMAX_FLOOR)
    scale = amax * (1.0 / divisor) if how.reciprocal else amax / divisor
    return scale.clamp(min=_SCALE_FLOOR) if how.floor == "scale" else scale


def _asymmetric(groups: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scales in ``dtype`` and zero points -8..7 in the dtype of the input."""
    low, high = groups.amin(dim=-1).clamp_(max=0), groups.amax(dim=-1).clamp_(min=0)
    scale = (high - low) / float(_HIGH - _LOW)
    zero = (_LOW - low / scale).clamp_(_LOW, _HIGH).round_()
    zero = torch.where(scale == 0, torch.zeros_like(zero), zero)
    return _eps_for_zero(scale.to(dtype)), zero


def _eps_for_zero(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, torch.finfo(scale.dtype).eps, scale)


def _stored(values: Tensor) -> Tensor:
    """Values rounded into -8..7 as nibbles 0..15 (uint8)."""
    return values.clamp(_LOW, _HIGH).round_().add_(_ZERO).to(torch.uint8)


def dequantize(stored: INT4, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``(q - z) * s`` in float32, rounded once to ``dtype``; exact in float32 for 16-bit scales."""
    *lead, n, k = (int(each) for each in stored.weight_shape)
    scale = stored.weight_scale.reshape(-1, stored.weight_scale.shape[-1])
    packed = stored.weight_packed.reshape(-1, stored.weight_packed.shape[-1])
    groups = scale.shape[-1]
    zero = torch.full_like(scale, _ZERO, dtype=torch.uint8)
    if stored.weight_zero_point is not None:
        columns = stored.weight_zero_point.transpose(-1, -2)
        zero = unpack_words(columns, n).transpose(-1, -2).reshape(scale.shape)
    out = torch.empty((packed.shape[0], k), dtype=dtype, device=packed.device)
    for strip in strips(out):
        values = unpack_words(packed[strip], k).view(-1, groups, k // groups)
        steps = values.to(torch.float32) - zero[strip].to(torch.float32).unsqueeze(-1)
        out[strip] = (steps * scale[strip].to(torch.float32).unsqueeze(-1)).flatten(-2)
    return out.view(*lead, n, k)


def fake_quantize(
    x: Tensor,
    *,
    group_size: int = GROUP,
    divisor: float = 7.0,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> Tensor:
    """The fake quantization that slime and vime train with; the gradient is the identity.

    Groups of 1 x ``group_size`` along K (a ragged tail counts as padded with zeros), in float32:
    ``s = max(amax / d, 1e-5)``, ``q = clamp(RNE(x / s), -7, 7)``, result ``q * s`` rounded once to
    the dtype of ``x``. Unlike a checkpoint the scale is not rounded to 16 bits: the decoded
    checkpoint of variant ``slime`` differs by up to 2^-9 of a value, and by a step at ties, where
    it multiplies by fl32(1/7) instead of dividing. The bound of q is floor(d). Any shape
    ``[..., K]``; ``main_grad`` is carried over.

    Sources: THUDM/slime@624b824a:docker/patch/latest/megatron.patch:225-276;
    vllm-project/vime@8c1c944:vime/backends/megatron_utils/transformer_engine.py.
    """
    require_float(x, name)
    bound = float(int(divisor))
    with torch.no_grad():
        rows = as_rows(x.detach())
        k = rows.shape[-1]
        group = k if group_size == -1 else group_size
        fake = torch.empty_like(rows)
        for strip in strips(rows):
            wide = rows[strip].to(torch.float32)
            if k % group:
                wide = torch.nn.functional.pad(wide, (0, -k % group))
            groups = wide.view(len(wide), -1, group)
            amax = groups.abs().amax(dim=-1, keepdim=True)
            require_finite(x.detach(), name, on_nonfinite, amax)
            scale = (amax / divisor).clamp_(min=_SCALE_FLOOR)
            codes = (groups / scale).round_().clamp_(-bound, bound)
            fake[strip] = (codes * scale).flatten(-2)[:, :k]
    return with_main_grad(x, straight_through(x, fake.view(x.shape)))


def _variant(variant: str | Variant) -> Variant:
    if isinstance(variant, Variant):
        return variant
    require_choice(variant, tuple(VARIANTS), "variant of INT4")
    return VARIANTS[variant]


def _group(k: int, group_size: int, name: str) -> int:
    if group_size == -1 and k:
        return k
    require_multiple(k, group_size, name)
    return group_size

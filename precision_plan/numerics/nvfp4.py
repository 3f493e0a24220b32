"""NVFP4: E2M1 elements, an E4M3 scale per 16 along K, one float32 scale for the whole tensor.

With A = max |W| over the tensor (over gate and up, or q, k and v, together: they share it) and
E = 448 (256 with four over six where asked), Transformer Engine's order, all in float32:

    G     = min(6 * E / A, FLT_MAX); 1 if A is 0          encode scale
    s_hp  = amax_block * (G * fl32(1/6))                  this association decides E4M3 ties
    s     = E4M3(min(s_hp, 448))                          stored
    q     = E2M1(clamp(x * min(1 / (float(s) * (1/G)), FLT_MAX), -6, 6))

All rounding is to nearest even. The tensor scale has two conventions on disk: ``weight_scale_2``
= 1/G, multiplied (ModelOpt, vLLM modelopt, SGLang), and ``weight_global_scale`` = G, divided
(compressed-tensors). ``quantize`` returns both and ``NVFP4.stored`` picks one.

Orders of other libraries (``Variant.order``); A, amax_block and x in float32 unless said:

| order     | block scale before E4M3        | clamp           | element before E2M1           |
|-----------|--------------------------------|-----------------|-------------------------------|
| te        | amax * (G * fl32(1/6))         | 448             | x * min(1/(s * (1/G)), FLT_MAX) |
| vllm      | G * (amax * fl32(1/6))         | 448             | x * (1/(s * (1/G))), 0 if s = 0 |
| modelopt  | amax / (6 * (A/2688)), 0 to 1  | [2^-9, 448]     | x / (s * (A/2688))            |
| torchao   | (amax / 6) / (A/2688)          | [2^-6, 448]     | x * ((1/(A/2688)) / s)        |
| ct        | G * (amax / 6), both factors in the input dtype | 448, 0 to 0.125 | x / (s / G)  |

Edge cases. An all-zero tensor: G = 1, scales 0 (ModelOpt 1, torchao 2^-6, compressed-tensors
0.125 by their own floors), codes 0; ModelOpt and torchao themselves store NaN. A zero block: codes
0. A block with s_hp <= 2^-10 beside a large A: scale 0, codes ±6, decoded 0 (te). -0.0: code 0;
torchao and the hardware conversion keep the sign (``keep_negative_zero``). A negative value that
rounds to 0: code 8. A given amax that is too small saturates at ±6 * 448. K must be a multiple of
16; rows need not be (tiles are padded with zeros for the maximum).

Sources: NVIDIA/TransformerEngine@d0067d0da:transformer_engine/pytorch/custom_recipes/
reference_nvfp4.py; vllm@0.33.0:vllm/model_executor/layers/quantization/utils/
nvfp4_emulation_utils.py; nvidia-modelopt@0.47.0:modelopt/torch/quantization/qtensor/
nvfp4_tensor.py; torchao@0.18.0:torchao/prototype/mx_formats/nvfp4_tensor.py;
compressed-tensors@0.20.1:quantization/utils/helpers.py (``calculate_qparams``,
``generate_gparam``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import _four_over_six
from precision_plan.numerics._common import (
    E2M1_MAX,
    OnNonFinite,
    Storage,
    amax_blocks,
    amax_rows,
    expand_blocks,
    from_e2m1,
    pack_nibbles,
    require_choice,
    require_finite,
    require_float,
    require_multiple,
    straight_through,
    strips,
    to_e2m1,
    to_e4m3,
    unpack_nibbles,
    with_main_grad,
)
from precision_plan.numerics._four_over_six import FourOverSix, Global

BLOCK: Final = 16
Order = Literal["te", "vllm", "modelopt", "torchao", "ct"]
Layout = Literal["modelopt", "compressed-tensors"]
Decode = Literal["scale_2", "global_scale", "amax", "qat"]

_ORDERS: Final = ("te", "vllm", "modelopt", "torchao", "ct")
_LAYOUTS: Final = ("modelopt", "compressed-tensors")
_DECODES: Final = ("scale_2", "global_scale", "amax", "qat")
_DECODE_OF: Final[dict[Order, Decode]] = {
    "te": "qat",
    "vllm": "scale_2",
    "modelopt": "scale_2",
    "torchao": "scale_2",
    "ct": "global_scale",
}
_FLT_MAX: Final = torch.finfo(torch.float32).max
_SIXTH: Final = 0.16666667163372040  # the float32 next to 1/6
_E4M3_TINY: Final = 2.0**-9
_E4M3_NORMAL: Final = 2.0**-6
_CT_ZERO_SCALE: Final = 0.125


@dataclass(frozen=True)
class Variant:
    """How a library computes scales and codes; ``tile_rows`` 16 is a 16x16 tile per scale."""

    order: Order = "te"
    tile_rows: int = 1
    four_over_six: FourOverSix | None = None
    upcast: bool = False
    """Convert the input to float32 first (the order ``ct`` otherwise rounds in its dtype)."""

    def __post_init__(self) -> None:
        require_choice(self.order, _ORDERS, "order of NVFP4")
        if self.tile_rows not in (1, BLOCK):
            raise ValueError(f"tile_rows is {self.tile_rows}; known: 1, {BLOCK}")
        if self.order != "te" and (self.four_over_six or self.tile_rows != 1):
            raise ValueError("tiles and four over six are defined for Transformer Engine's order")

    @property
    def e4m3_max(self) -> int:
        return self.four_over_six.e4m3_max if self.four_over_six else 448


def _te_variants() -> dict[str, Variant]:
    found = {}
    for tile in (1, BLOCK):
        found[f"te_{tile}x16"] = Variant(tile_rows=tile)
        for bound in _four_over_six.E4M3_BOUNDS:
            for error in _four_over_six.ERROR_MODES:
                for fp16 in (False, True):
                    name = "te_4over6" if tile == 1 else "te_16x16_4over6"
                    name = f"{name}_{bound}_{error}{'_fp16' if fp16 else ''}"
                    knobs = FourOverSix(bound, error, fp16)
                    found[name] = Variant(tile_rows=tile, four_over_six=knobs)
    return found


VARIANTS: Final[dict[str, Variant]] = {
    **_te_variants(),
    "vllm": Variant("vllm"),
    "modelopt": Variant("modelopt"),
    "torchao": Variant("torchao"),
    "ct": Variant("ct"),
    "ct_fp32in": Variant("ct", upcast=True),
}
"""Names of the variants; :class:`Variant` combines the knobs freely."""


class NVFP4(NamedTuple):
    """One quantized matrix ``[N, K]``, or one per expert ``[experts, N, K]``."""

    packed: Tensor
    """uint8 ``[..., N, K/2]``: element 2i in the low nibble, 2i+1 in the high one."""
    scale: Tensor
    """float8_e4m3fn ``[..., N, K/16]``; tiles repeat theirs in each of their rows."""
    scale_2: Tensor
    """float32 ``[...]``: decode scale, multiplied."""
    global_scale: Tensor
    """float32 ``[..., 1]``: encode scale, divided."""
    amax: Tensor
    """float32 ``[..., 1]``: the maximum that both come from."""

    def stored(self, layout: Layout = "modelopt") -> dict[str, Tensor]:
        """The tensors under the names that :func:`storage` lists for ``layout``."""
        require_choice(layout, _LAYOUTS, "layout of NVFP4")
        if layout == "modelopt":
            return {
                "weight": self.packed,
                "weight_scale": self.scale,
                "weight_scale_2": self.scale_2,
            }
        return {
            "weight_packed": self.packed,
            "weight_scale": self.scale,
            "weight_global_scale": self.global_scale,
        }


def storage(shape: Sequence[int], *, layout: Layout = "modelopt") -> tuple[Storage, ...]:
    """What a weight ``[N, K]`` (or ``[experts, N, K]``) becomes on disk."""
    require_choice(layout, _LAYOUTS, "layout of NVFP4")
    *lead, n, k = shape
    require_multiple(k, BLOCK, f"shape {list(shape)}")
    scales = Storage("weight_scale", torch.float8_e4m3fn, (*lead, n, k // BLOCK))
    packed = (*lead, n, k // 2)
    if layout == "modelopt":
        last = Storage("weight_scale_2", torch.float32, tuple(lead))
        return Storage("weight", torch.uint8, packed), scales, last
    last = Storage("weight_global_scale", torch.float32, (*lead, 1))
    return Storage("weight_packed", torch.uint8, packed), scales, last


def tensor_amax(
    *weights: Tensor, name: str = "weight", on_nonfinite: OnNonFinite = "raise"
) -> Tensor:
    """The maximum |x| over all ``weights`` as float32 ``[]``: pass it as ``amax`` to each of them.

    Of weights ``[experts, N, K]`` one maximum per expert, ``[experts]``. Exact in every dtype.
    """
    found = [_amax(each, name, on_nonfinite) for each in weights]
    return found[0] if len(found) == 1 else torch.stack(found).amax(dim=0)


def _amax(x: Tensor, name: str, on_nonfinite: OnNonFinite) -> Tensor:
    require_float(x, name)
    if not x.numel():
        return torch.zeros(x.shape[:-2], dtype=torch.float32, device=x.device)
    found = []
    for matrix in x.reshape(-1, *x.shape[-2:]):
        parts = [amax_rows(matrix[rows]).amax() for rows in strips(matrix)]
        found.append(torch.stack(parts).amax())
    amax = torch.stack(found).reshape(x.shape[:-2])
    require_finite(x, name, on_nonfinite, amax)
    return amax


def quantize(
    x: Tensor,
    *,
    variant: str | Variant = "te_1x16",
    amax: Tensor | None = None,
    keep_negative_zero: bool | None = None,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> NVFP4:
    """Quantize a matrix ``[N, K]``, or matrices ``[experts, N, K]`` each with its own maximum.

    ``amax``: a shared maximum (see :func:`tensor_amax`), float32 of one value or ``[experts]``.
    ``keep_negative_zero``: -0.0 becomes code 8; by default only in the order torchao.
    """
    how = _variant(variant)
    _require_shape(x, name)
    own = _amax(x, name, on_nonfinite)  # finds NaN and Inf too
    if amax is None:
        amax = own
    else:
        amax = amax.to(device=x.device, dtype=torch.float32).reshape(-1)
        amax = amax.expand(x.shape[:-2].numel()).reshape(x.shape[:-2])
    keep = how.order == "torchao" if keep_negative_zero is None else keep_negative_zero
    if x.dim() == 2:
        return _quantize(x, how, amax, keep)
    each = [_quantize(w, how, a, keep) for w, a in zip(x, amax, strict=True)]
    return NVFP4(*(torch.stack(part) for part in zip(*each, strict=True)))


def _quantize(x: Tensor, how: Variant, amax: Tensor, keep_negative_zero: bool) -> NVFP4:
    n, k = x.shape
    packed = torch.empty((n, k // 2), dtype=torch.uint8, device=x.device)
    scale = torch.empty((n, k // BLOCK), dtype=torch.float8_e4m3fn, device=x.device)
    scalars = _global(amax, x.dtype, how)
    for rows in strips(x, how.tile_rows):
        scale[rows], codes = _strip(x[rows].contiguous(), scalars, how, keep_negative_zero)
        packed[rows] = pack_nibbles(codes.flatten(-2))
    return NVFP4(packed, scale, scalars.decode, scalars.encode.reshape(1), amax.reshape(1))


def _global(amax: Tensor, dtype: torch.dtype, how: Variant) -> Global:
    """The tensor's scalars as float32 ``[]``, in the order of the library."""
    top = E2M1_MAX * how.e4m3_max
    if how.order in ("modelopt", "torchao"):
        decode = torch.where(amax == 0, torch.ones_like(amax), amax / top)
        return Global(amax, 1.0 / decode, decode)
    if how.order == "ct":
        narrow = amax.to(torch.float32 if how.upcast else dtype)
        floor = torch.finfo(narrow.dtype).tiny
        # compressed-tensors divides a Python float by a tensor: reciprocal, then product
        encode = torch.nan_to_num(top / narrow.clamp(min=floor), nan=1.0, posinf=1.0)
        encode = encode.to(torch.float32)
        return Global(amax, encode, 1.0 / encode)
    encode = torch.full_like(amax, top).div_(amax).clamp_(max=_FLT_MAX)  # one rounding
    encode = torch.where((amax == 0) | (encode == 0), torch.ones_like(encode), encode)
    return Global(amax, encode, 1.0 / encode)


def _strip(
    strip: Tensor, scalars: Global, how: Variant, keep_negative_zero: bool
) -> tuple[Tensor, Tensor]:
    """E4M3 scales ``[n, k/16]`` and codes ``[n, k/16, 16]`` of whole rows."""
    n, k = strip.shape
    blocks = strip.to(torch.float32).view(n, k // BLOCK, BLOCK)
    amax = amax_blocks(strip, how.tile_rows, BLOCK)
    if how.tile_rows > 1:
        amax = expand_blocks(amax, how.tile_rows, 1, n, k // BLOCK)

    def encode(values: Tensor, scale: Tensor) -> Tensor:
        scaled = _scaled(values, scale.to(torch.float32).unsqueeze(-1), scalars, how.order)
        return to_e2m1(scaled, keep_negative_zero=keep_negative_zero)

    if how.four_over_six:
        return _four_over_six.choose(
            blocks, amax, scalars, how.four_over_six, how.tile_rows, encode
        )
    scale = _block_scale(amax, strip.dtype, scalars, how)
    return scale, encode(blocks, scale)


def _block_scale(amax: Tensor, dtype: torch.dtype, scalars: Global, how: Variant) -> Tensor:
    """float8_e4m3fn scales of block maxima (float32), in the order of the library."""
    if how.order == "modelopt":
        scale = amax / (E2M1_MAX * scalars.decode)
        return to_e4m3(torch.where(scale == 0, 1.0, scale).clamp_(min=_E4M3_TINY))
    if how.order == "torchao":
        return to_e4m3((amax / E2M1_MAX / scalars.decode).clamp_(min=_E4M3_NORMAL))
    if how.order == "vllm":
        return to_e4m3(scalars.encode * (amax * _SIXTH))
    if how.order == "ct":
        narrow = amax.to(torch.float32 if how.upcast else dtype) / E2M1_MAX
        scale = to_e4m3(scalars.encode * narrow.to(torch.float32))
        zero = scale.to(torch.float32) == 0
        return torch.where(
            zero,
            to_e4m3(amax.new_tensor(_CT_ZERO_SCALE)).view(torch.uint8),
            scale.view(torch.uint8),
        ).view(torch.float8_e4m3fn)
    return to_e4m3((amax * (scalars.encode * _SIXTH)).clamp_(max=_FLT_MAX))


def _scaled(values: Tensor, scale: Tensor, scalars: Global, order: Order) -> Tensor:
    """Elements divided by their scale, float32, in the order of the library."""
    if order == "modelopt":
        return values / (scale * scalars.decode)
    if order == "torchao":
        return values * (scalars.encode / scale)
    if order == "ct":
        return values / (scale / scalars.encode)
    product = scale * scalars.decode
    inverse = (1.0 / product).clamp_(max=_FLT_MAX)
    if order == "vllm":
        inverse = torch.where(product == 0, 0.0, inverse)
    return values * inverse


def dequantize(
    stored: NVFP4,
    *,
    decode: Decode = "scale_2",
    e4m3_max: int = 448,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Values in float32, rounded once to ``dtype``. With q the element and s the block scale:

    ``scale_2``: q * (s * scale_2), the engines' order; ``global_scale``: q * (s / global_scale),
    compressed-tensors; ``amax``: q * (s * (A / (6 * E))), where 1/G may be an ulp off;
    ``qat``: q * ((s * A) * fl32(1/(6 * E))), the fake-QAT kernel. ``e4m3_max`` is the E of both.
    """
    require_choice(decode, _DECODES, "decode of NVFP4")
    packed = stored.packed.reshape(-1, *stored.packed.shape[-2:])
    scale = stored.scale.reshape(-1, *stored.scale.shape[-2:])
    count, n, half = packed.shape
    out = torch.empty((count, n, half * 2), dtype=dtype, device=packed.device)
    for i in range(count):
        scalars = Global(
            *(each.reshape(-1)[i] for each in (stored.amax, stored.global_scale, stored.scale_2))
        )
        for rows in strips(out[i]):
            factor = _factor(scale[i, rows].to(torch.float32), scalars, decode, e4m3_max)
            codes = unpack_nibbles(packed[i, rows]).view(-1, half * 2 // BLOCK, BLOCK)
            out[i, rows] = (from_e2m1(codes) * factor.unsqueeze(-1)).flatten(-2)
    return out.reshape(*stored.packed.shape[:-1], half * 2)


def _factor(scale: Tensor, scalars: Global, decode: Decode, e4m3_max: int) -> Tensor:
    """What one code of a block is worth, float32."""
    top = E2M1_MAX * e4m3_max
    if decode == "scale_2":
        return scale * scalars.decode
    if decode == "global_scale":
        return scale / scalars.encode
    if decode == "amax":
        return scale * (scalars.amax / top)
    return scale * scalars.amax * (1.0 / top)


def fake_quantize(
    x: Tensor,
    *,
    variant: str | Variant = "te_1x16",
    amax: Tensor | None = None,
    keep_negative_zero: bool = True,
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> Tensor:
    """Quantize and dequantize in the dtype of ``x``; the gradient is the identity.

    As the fake-QAT kernel of miles computes it: codes of ``variant`` with the sign of -0.0 kept,
    decoded with ``qat`` (the orders of other libraries with their own decode), one rounding to the
    dtype of ``x``. ``[experts, N, K]``: one maximum per expert. ``main_grad`` is carried over.

    Source: radixark/miles@0208b9a7:miles/utils/fused_nvfp4_qdq.py.
    """
    how = _variant(variant)
    with torch.no_grad():
        stored = quantize(
            x.detach(),
            variant=how,
            amax=amax,
            keep_negative_zero=keep_negative_zero,
            on_nonfinite=on_nonfinite,
            name=name,
        )
        fake = dequantize(
            stored, decode=_DECODE_OF[how.order], e4m3_max=how.e4m3_max, dtype=x.dtype
        )
    return with_main_grad(x, straight_through(x, fake))


def _variant(variant: str | Variant) -> Variant:
    if isinstance(variant, Variant):
        return variant
    require_choice(variant, tuple(VARIANTS), "variant of NVFP4")
    return VARIANTS[variant]


def _require_shape(x: Tensor, name: str) -> None:
    require_float(x, name)
    if x.dim() not in (2, 3):
        raise ValueError(f"{name} has shape {list(x.shape)}; expected [N, K] or [experts, N, K]")
    require_multiple(x.shape[-1], BLOCK, name)

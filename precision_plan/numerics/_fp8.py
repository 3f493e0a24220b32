"""The arithmetic that the E4M3 formats with float32 scales share: one table of methods.

Libraries agree on the idea (scale = amax / 448, code = x / scale) and differ in its last bit and
in what they do with a unit of zeros. Each way has a name here; :data:`METHODS` says what it is.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import (
    E4M3_MAX,
    OnNonFinite,
    amax_blocks,
    block_view,
    blocks_of,
    exponent_byte,
    from_ue8m0,
    require_choice,
    require_finite,
    strips,
    to_e4m3,
)


class Method(NamedTuple):
    """How an amax becomes a scale, and how a value becomes a code.

    ``scale`` (all float32 unless said otherwise; a unit's amax is exact):

    - ``amax/448``, ``amax*(1/448)``: after ``floor``, the least amax (rounded to the
      input's dtype if ``floor_in_input_dtype``).
    - ``1/(448/amax)``: through the encode scale 448/amax. Where that overflows it becomes the
      greatest finite value (of the input's dtype if ``limit_of_input``); amax 0 gives scale 1.
    - ``amax/448 in the input's dtype``: a zero scale becomes the dtype's epsilon.

    ``code``, then clamped to ±448 and rounded to the nearest even E4M3 value:

    - ``x/scale``, ``x*(1/scale)``, ``x*(448/amax)``.
    - ``x/scale in the input's dtype``: rounded once to that dtype before E4M3.

    ``power_of_two``: the scale is rounded up to a power of two (of ``1/(448/amax)`` the encode
    scale is rounded down, which is the same).
    """

    does: str
    source: str
    scale: Literal["amax/448", "amax*(1/448)", "1/(448/amax)", "amax/448 in the input's dtype"]
    code: Literal["x/scale", "x*(1/scale)", "x*(448/amax)", "x/scale in the input's dtype"]
    floor: float = 0.0
    floor_in_input_dtype: bool = False
    power_of_two: bool = False
    limit_of_input: bool = True

    def scale_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the stored scale for an input of ``dtype``."""
        return dtype if self.scale == "amax/448 in the input's dtype" else torch.float32


METHODS: Final[dict[str, Method]] = {
    "div_fp32": Method(
        "amax floored at 1e-12 (as the input's dtype rounds it), float32 division",
        "THUDM/slime@624b824a8:tools/convert_hf_to_fp8.py",
        scale="amax/448",
        code="x/scale",
        floor=1e-12,
        floor_in_input_dtype=True,
    ),
    "div_fp32_nofloor": Method(
        "float32 division without a floor: a unit of zeros has scale 0 and NaN codes",
        "radixark/miles@31f1ca961:tools/convert_hf_to_fp8.py",
        scale="amax/448",
        code="x/scale",
    ),
    "recip_fp32_eps1e-4": Method(
        "amax floored at 1e-4, multiplication by the reciprocal of the scale",
        "vllm@0.33.0:vllm/utils/deep_gemm.py",
        scale="amax/448",
        code="x*(1/scale)",
        floor=1e-4,
    ),
    "recip_fp32_eps1e-10": Method(
        "amax floored at 1e-10, multiplication by the reciprocal: the weight-sync kernel",
        "THUDM/slime@624b824a8:slime/backends/megatron_utils/kernels/fp8_kernel.py",
        scale="amax/448",
        code="x*(1/scale)",
        floor=1e-10,
    ),
    "ue8m0_eps1e-4": Method(
        "as recip_fp32_eps1e-4 with the scale rounded up to a power of two",
        "vllm@0.33.0:vllm/utils/deep_gemm.py",
        scale="amax/448",
        code="x*(1/scale)",
        floor=1e-4,
        power_of_two=True,
    ),
    "te_fp32": Method(
        "through the encode scale 448/amax; a unit of zeros has scale 1",
        "NVIDIA/TransformerEngine@d0067d0da:transformer_engine/common/recipe/recipe_common.cuh",
        scale="1/(448/amax)",
        code="x*(448/amax)",
    ),
    "te_pow2": Method(
        "as te_fp32 with the encode scale rounded down to a power of two",
        "NVIDIA/TransformerEngine@d0067d0da:transformer_engine/common/recipe/recipe_common.cuh",
        scale="1/(448/amax)",
        code="x*(448/amax)",
        power_of_two=True,
    ),
    "te_current_scaling": Method(
        "as te_fp32; an encode scale that overflows becomes the greatest float32",
        "NVIDIA/TransformerEngine@d0067d0da:tests/pytorch/references/ref_per_tensor_cs.py",
        scale="1/(448/amax)",
        code="x*(448/amax)",
        limit_of_input=False,
    ),
    "mul_fp32_eps1e-10": Method(
        "amax floored at 1e-10, scale = amax * (1/448), float32 division",
        "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py",
        scale="amax*(1/448)",
        code="x/scale",
        floor=1e-10,
    ),
    "mul_ue8m0_eps1e-10": Method(
        "as mul_fp32_eps1e-10 with the scale rounded up to a power of two",
        "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py",
        scale="amax*(1/448)",
        code="x/scale",
        floor=1e-10,
        power_of_two=True,
    ),
    "slime_native_dtype": Method(
        "float32 scale and division, but the quotient rounded to the input's dtype",
        "THUDM/slime@624b824a8:tools/convert_hf_to_fp8.py",
        scale="amax/448",
        code="x/scale in the input's dtype",
        floor=1e-12,
        floor_in_input_dtype=True,
    ),
    "ct_cpu": Method(
        "scale and division in the input's dtype; a zero scale becomes its epsilon",
        "vllm-project/compressed-tensors@0.20.1:quantization/lifecycle/forward_helpers.py",
        scale="amax/448 in the input's dtype",
        code="x/scale in the input's dtype",
    ),
}


class Scales(NamedTuple):
    """The scale that is stored, and the float32 operand that turns values into codes."""

    stored: Tensor
    operand: Tensor
    divide: bool
    rounded_to: torch.dtype | None


def method_of(name: str, allowed: tuple[str, ...]) -> Method:
    require_choice(name, allowed, "method")
    return METHODS[name]


def scales(amax: Tensor, method: Method, dtype: torch.dtype) -> Scales:
    """Scales for float32 maxima of units whose values have ``dtype``; any shape."""
    rounded_to = dtype if method.code == "x/scale in the input's dtype" else None
    if method.scale == "1/(448/amax)":
        encode = _encode_scale(amax, method, dtype)
        return Scales(encode.reciprocal(), encode, False, rounded_to)
    if method.scale == "amax/448 in the input's dtype":
        stored = amax.to(dtype) / E4M3_MAX
        stored = stored.masked_fill(stored == 0, torch.finfo(dtype).eps)
        return Scales(stored, stored.to(torch.float32), True, rounded_to)
    amax = amax.clamp(min=_floor(method, dtype))
    stored = amax / E4M3_MAX if method.scale == "amax/448" else amax * (1.0 / E4M3_MAX)
    if method.power_of_two:
        up = from_ue8m0(exponent_byte(stored, 0x7FFFFF))
        stored = torch.where(torch.isfinite(stored), up, stored)
    if method.code == "x*(1/scale)":
        return Scales(stored, stored.reciprocal(), False, rounded_to)
    return Scales(stored, stored, True, rounded_to)


def _encode_scale(amax: Tensor, method: Method, dtype: torch.dtype) -> Tensor:
    encode = torch.full_like(amax, E4M3_MAX) / amax  # a Python number would be times 1/amax
    limit = torch.finfo(dtype if method.limit_of_input else torch.float32).max
    encode = torch.where(torch.isinf(encode), limit, encode)
    encode = torch.where(amax == 0, 1.0, encode)
    if method.power_of_two:  # clearing the mantissa would turn a NaN into Inf
        down = (encode.view(torch.int32) & 0x7F800000).view(torch.float32)
        encode = torch.where(torch.isnan(encode), encode, down)
    return encode


def _floor(method: Method, dtype: torch.dtype) -> float:
    """The least amax; float16 would round 1e-12 to 0, so there it stays what it is."""
    if not method.floor_in_input_dtype:
        return method.floor
    return float(torch.tensor(method.floor, dtype=dtype)) or method.floor


def encode(values: Tensor, factors: Scales, operand: Tensor | None = None) -> Tensor:
    """E4M3 codes of float32 ``values``, which are overwritten; the operand must broadcast."""
    operand = factors.operand if operand is None else operand
    values = values.div_(operand) if factors.divide else values.mul_(operand)
    if factors.rounded_to is not None and factors.rounded_to != torch.float32:
        values = values.to(factors.rounded_to).to(torch.float32)
    return to_e4m3(values)


def quantize_blocks(
    x: Tensor, height: int, width: int, method: Method, name: str, on_nonfinite: OnNonFinite
) -> tuple[Tensor, Tensor]:
    """Codes ``[N, K]`` and scales ``[ceil(N/height), ceil(K/width)]`` of a matrix, in one pass.

    Ragged edges: the maximum is that of the elements that exist, and only those get codes.
    """
    rows, columns = x.shape
    grid = (blocks_of(rows, height), blocks_of(columns, width))
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    stored = torch.empty(grid, dtype=method.scale_dtype(x.dtype), device=x.device)
    for strip in strips(x, height):
        part = x[strip]
        amax = amax_blocks(part, height, width)
        require_finite(x, name, on_nonfinite, amax)
        factors = scales(amax, method, x.dtype)
        first = strip.start // height
        stored[first : first + amax.shape[0]] = factors.stored
        blocks = block_view(part, height, width).to(torch.float32, copy=True)
        codes = encode(blocks, factors, factors.operand[:, None, :, None])
        padded = codes.view(torch.uint8).reshape(amax.shape[0] * height, grid[1] * width)
        q[strip].view(torch.uint8).copy_(padded[: part.shape[0], :columns])
    return q, stored


def dequantize_blocks(
    q: Tensor, scale: Tensor, height: int, width: int, dtype: torch.dtype
) -> Tensor:
    """``float32(q) * float32(scale)`` rounded once to ``dtype``, strip by strip."""
    columns = q.shape[1]
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    for strip in strips(q, height):
        first = strip.start // height
        part = scale[first : first + blocks_of(strip.stop - strip.start, height)]
        spread = part.to(torch.float32).repeat_interleave(width, dim=1)[:, :columns]
        values = q[strip].to(torch.float32)
        if height == 1:
            values.mul_(spread)
        else:
            values.mul_(spread.repeat_interleave(height, dim=0)[: values.shape[0]])
        out[strip] = values
    return out

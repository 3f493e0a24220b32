"""INT4 in the layout of AWQ (GEMM): ``qweight``, ``qzeros``, ``scales``.

Asymmetric by groups of g along K, in float32, with lo = min(x, 0) and hi = max(x, 0) of a group:

    s = fp16(max(hi - lo, 1e-5) / 15)        stored as ``scales`` float16 [K/g, N]
    z = clamp(-RNE(lo / s), 0, 15)           stored in ``qzeros`` int32 [K/g, N/8]
    q = clamp(RNE(x / s) + z, 0, 15)         stored in ``qweight`` int32 [K, N/8]
    dequantized: (q - z) * s

Eight neighbouring output columns share a word, column j at bits 4 * (0, 4, 1, 5, 2, 6, 3, 7)[j].
Rounding is to nearest even. Variant ``autoawq`` takes lo and hi as they are: a group without a
change of sign then has its zero point cut at 0 or 15 and saturates (32 values from 10 to 11 come
back as 1); ``awq`` keeps zero in the range and gives the same bytes for every other group.

A zero group: codes and zero points 0, scale fp16(1e-5 / 15). N must be a multiple of 8, K of g.
A scale beyond float16 (range above about 982000) is an error.

Sources: casper-hansen/AutoAWQ:awq/quantize/quantizer.py (``pseudo_quantize_tensor``),
awq/modules/linear/gemm.py; vllm@0.33.0:vllm/model_executor/layers/quantization/awq.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics._common import (
    OnNonFinite,
    Storage,
    require_choice,
    require_finite,
    require_matrix,
    require_multiple,
    straight_through,
    strips,
)
from precision_plan.numerics._int4_pack import AWQ_ORDER, PER_WORD, pack_words, unpack_words

GROUP: Final = 128
VARIANTS: Final = ("awq", "autoawq")
_TOP: Final = 15.0
_RANGE_FLOOR: Final = 1e-5


class AWQ(NamedTuple):
    """A quantized weight ``[N, K]``; AWQ stores it transposed."""

    qweight: Tensor
    """int32 ``[K, N/8]``."""
    qzeros: Tensor
    """int32 ``[K/g, N/8]``."""
    scales: Tensor
    """float16 ``[K/g, N]``."""

    def stored(self) -> dict[str, Tensor]:
        """The tensors under the names that :func:`storage` lists."""
        return dict(self._asdict())


def storage(shape: Sequence[int], *, group_size: int = GROUP) -> tuple[Storage, ...]:
    """What a weight ``[N, K]`` becomes on disk."""
    n, k = shape
    _require_shape(n, k, group_size, f"shape {list(shape)}")
    return (
        Storage("qweight", torch.int32, (k, n // PER_WORD)),
        Storage("qzeros", torch.int32, (k // group_size, n // PER_WORD)),
        Storage("scales", torch.float16, (k // group_size, n)),
    )


def quantize(
    x: Tensor,
    *,
    group_size: int = GROUP,
    variant: str = "awq",
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> AWQ:
    """Quantize a matrix ``[N, K]``."""
    require_choice(variant, VARIANTS, "variant of AWQ")
    require_matrix(x, name)
    n, k = x.shape
    _require_shape(n, k, group_size, name)
    qweight = torch.empty((k, n // PER_WORD), dtype=torch.int32, device=x.device)
    qzeros = torch.empty((k // group_size, n // PER_WORD), dtype=torch.int32, device=x.device)
    scales = torch.empty((k // group_size, n), dtype=torch.float16, device=x.device)
    for rows in strips(x, PER_WORD):
        groups = x[rows].to(torch.float32).view(-1, k // group_size, group_size)
        low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        require_finite(x, name, on_nonfinite, torch.maximum(-low, high))
        scale, zero = _scales(low, high, variant, name)
        codes = (groups / scale.to(torch.float32).unsqueeze(-1)).round_() + zero.unsqueeze(-1)
        words = slice(rows.start // PER_WORD, rows.stop // PER_WORD)
        qweight[:, words] = _pack_columns(codes.clamp_(0, _TOP).flatten(-2))
        qzeros[:, words] = _pack_columns(zero)
        scales[:, rows] = scale.t()
    return AWQ(qweight, qzeros, scales)


def _scales(low: Tensor, high: Tensor, variant: str, name: str) -> tuple[Tensor, Tensor]:
    """float16 scales and float32 zero points 0..15, both ``[n, k/g]``, of float32 ranges."""
    if variant == "awq":
        low, high = low.clamp_(max=0), high.clamp_(min=0)
    scale = ((high - low).clamp_(min=_RANGE_FLOOR) / _TOP).to(torch.float16)
    if bool((torch.isinf(scale) & torch.isfinite(low) & torch.isfinite(high)).any()):
        raise ValueError(f"{name}: a group spans more than float16 scales can hold")
    return scale, (-(low / scale.to(torch.float32)).round_()).clamp_(0, _TOP)


def _pack_columns(values: Tensor) -> Tensor:
    return pack_words(values.to(torch.uint8).t(), AWQ_ORDER)


def dequantize(stored: AWQ, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``(q - z) * s`` in float32 as ``[N, K]``, rounded once to ``dtype``."""
    groups, n = stored.scales.shape
    k = stored.qweight.shape[0]
    out = torch.empty((n, k), dtype=dtype, device=stored.qweight.device)
    for rows in strips(out, PER_WORD):
        words = slice(rows.start // PER_WORD, rows.stop // PER_WORD)
        columns = rows.stop - rows.start
        codes = unpack_words(stored.qweight[:, words], columns, AWQ_ORDER)
        zeros = unpack_words(stored.qzeros[:, words], columns, AWQ_ORDER)
        steps = codes.to(torch.float32).view(groups, -1, columns)
        steps = steps - zeros.to(torch.float32).unsqueeze(1)
        values = steps * stored.scales[:, rows].to(torch.float32).unsqueeze(1)
        out[rows] = values.view(k, columns).t()
    return out


def fake_quantize(
    x: Tensor,
    *,
    group_size: int = GROUP,
    variant: str = "awq",
    on_nonfinite: OnNonFinite = "raise",
    name: str = "weight",
) -> Tensor:
    """Quantize and dequantize in the dtype of ``x``; the gradient is the identity."""
    with torch.no_grad():
        stored = quantize(
            x.detach(),
            group_size=group_size,
            variant=variant,
            on_nonfinite=on_nonfinite,
            name=name,
        )
        fake = dequantize(stored, dtype=x.dtype)
    return straight_through(x, fake)


def _require_shape(n: int, k: int, group_size: int, name: str) -> None:
    require_multiple(n, PER_WORD, name, "first dimension")
    require_multiple(k, group_size, name)

"""Tensors for the property tests: shapes from 1x1 to ragged, several kinds of data."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS = ("normal", "wide", "tiny", "huge", "zeros", "signed_zeros", "outlier", "bits")


def make(kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Finite data of a kind; ``bits`` draws from all finite patterns of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(shape, generator=generator)
    greatest = torch.finfo(dtype).max
    if kind == "bits":
        integer = torch.int32 if dtype == torch.float32 else torch.int16
        limits = torch.iinfo(integer)
        drawn = torch.randint(limits.min, limits.max, shape, generator=generator)
        return torch.nan_to_num(drawn.to(integer).view(dtype), 0.0, greatest, -greatest)
    if kind == "wide":
        power = torch.randint(-20, 15, shape, generator=generator)
        normal = torch.ldexp(normal, power)
    elif kind == "tiny":
        normal = normal * torch.finfo(dtype).tiny
    elif kind == "huge":
        normal = normal.clamp(-1, 1) * greatest
    elif kind == "zeros":
        normal = torch.zeros(shape)
    elif kind == "signed_zeros":
        normal = torch.where(normal > 0.5, normal, torch.copysign(torch.zeros(()), normal))
    elif kind == "outlier":
        normal.view(-1)[0] = 1000.0
    return normal.clamp(-greatest, greatest).to(dtype)


@st.composite
def tensors(
    draw: st.DrawFn, *, rows: int = 40, columns: int = 70, multiple: int = 1, kinds=KINDS
) -> Tensor:
    """A matrix with at most ``rows`` rows and ``columns`` columns in steps of ``multiple``."""
    n = draw(st.integers(1, rows))
    k = multiple * draw(st.integers(1, max(columns // multiple, 1)))
    dtype, kind = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(kinds))
    return make(kind, (n, k), dtype, draw(st.integers(0, 2**31)))

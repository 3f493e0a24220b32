"""Matrices that stress quantizers: magnitudes over many binades, zeros, zero runs, outliers."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def matrix(rows: int, columns: int, dtype: torch.dtype, seed: int, spread: int = 6) -> torch.Tensor:
    """Normal values times a power of two of each row and of each run of eight columns."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=made)
    if spread:
        runs = -(-columns // 8)
        power = torch.randint(-spread, spread // 2 + 1, (rows, runs), generator=made)
        x = x * torch.exp2(power.float()).repeat_interleave(8, dim=1)[:, :columns]
        x[torch.rand(rows, columns, generator=made) < 0.05] = 0.0
        x[torch.rand(rows, generator=made) < 0.1] = 0.0
    return x.to(dtype)


@st.composite
def matrices(
    draw: st.DrawFn, multiple: int = 1, most: int = 12, rows: int = 40, row_multiple: int = 1
) -> torch.Tensor:
    """A matrix whose columns are a multiple of ``multiple`` and rows of ``row_multiple``."""
    return matrix(
        draw(st.integers(1, rows)) * row_multiple,
        draw(st.integers(1, most)) * multiple,
        draw(st.sampled_from(DTYPES)),
        draw(st.integers(0, 2**16)),
        draw(st.sampled_from([0, 6])),
    )


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal dtype, shape and bytes; NaN and the sign of zero count."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    raw = [each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b)]
    return torch.equal(*raw)

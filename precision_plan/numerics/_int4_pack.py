"""INT4 values in int32 words: the orders of compressed-tensors and of AWQ.

Both put eight values into a word, value j at bits ``4 * position[j]``. compressed-tensors keeps
the order (0 1 2 3 4 5 6 7); AWQ interleaves (0 4 1 5 2 6 3 7).

Sources: compressed-tensors@0.20.1:compressors/pack_quantized/helpers.py; casper-hansen/AutoAWQ:
awq/modules/linear/gemm.py (``order_map``, the inverse permutation).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from precision_plan.numerics._common import blocks_of

PER_WORD: Final = 8
PLAIN_ORDER: Final = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)


def pack_words(values: Tensor, order: tuple[int, ...] = PLAIN_ORDER) -> Tensor:
    """Values 0..15 (uint8 or int) ``[..., K]`` to int32 ``[..., ceil(K/8)]``.

    A ragged tail leaves the upper nibbles of its last word 0.
    """
    k = values.shape[-1]
    words = blocks_of(k, PER_WORD)
    if words * PER_WORD != k:
        values = torch.nn.functional.pad(values, (0, words * PER_WORD - k))
    nibbles = values.to(torch.int32).reshape(*values.shape[:-1], words, PER_WORD)
    packed = torch.zeros(nibbles.shape[:-1], dtype=torch.int32, device=values.device)
    for j, position in enumerate(order):  # eight vectorised steps
        packed |= nibbles[..., j] << (4 * position)
    return packed


def unpack_words(packed: Tensor, k: int, order: tuple[int, ...] = PLAIN_ORDER) -> Tensor:
    """The inverse of :func:`pack_words`: uint8 values 0..15 ``[..., K]``."""
    shifts = torch.tensor([4 * each for each in order], dtype=torch.int32, device=packed.device)
    nibbles = (packed.unsqueeze(-1) >> shifts) & 15
    return nibbles.flatten(-2)[..., :k].to(torch.uint8)

"""Tensors that a quantized Hugging Face checkpoint holds beside or instead of a weight."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table


class CheckpointTensor(NamedTuple):
    """One tensor of a quantized linear layer of ``N`` outputs and ``K`` inputs.

    ``name`` is the suffix after the layer's name. ``shape`` may hold ``{rows}`` and
    ``{columns}`` of a weight block or ``{group}``. ``when`` restricts it to ``static``
    activation scales, quantized ``activations`` or ``asymmetric`` groups; ``engines`` to the
    engines that expect this name (``None``: every engine).
    """

    format: str
    name: str
    dtype: str
    shape: str
    source: str
    when: Literal["static", "activations", "asymmetric"] | None = None
    engines: tuple[str, ...] | None = None


@lru_cache(maxsize=16)
def checkpoint_tensors(format: str) -> tuple[CheckpointTensor, ...]:
    """The tensors of one weight format, in file order; empty for an unquantized one."""
    rows = table("checkpoint_tensors")
    return tuple(record(CheckpointTensor, row) for row in rows if row["format"] == format)

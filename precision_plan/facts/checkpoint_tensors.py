"""Tensors that a quantized Hugging Face checkpoint holds beside or instead of a weight."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table


class CheckpointTensor(NamedTuple):
    """One tensor of a quantized linear layer of ``N`` outputs and ``K`` inputs.

    ``name`` is the suffix after the layer's name. ``shape`` may hold ``{rows}`` and
    ``{columns}`` of a weight block or ``{group}``. ``when`` restricts it to ``static``
    activation scales, quantized ``activations``, ``asymmetric`` groups or ``activation_order``;
    ``engines`` to the engines that expect this name (``None``: every engine). ``takes`` are the
    dtypes, in safetensors' spelling, that the engine converts without loss of meaning.
    """

    format: str
    name: str
    dtype: str
    shape: str
    source: str
    when: Literal["static", "activations", "asymmetric", "activation_order"] | None = None
    engines: tuple[str, ...] | None = None
    takes: tuple[str, ...] = ()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Every dtype that may be stored, in safetensors' spelling; the usual one first."""
        return (_STORED[self.dtype], *self.takes)


_STORED: Mapping[str, str] = MappingProxyType(
    {
        "float8_e4m3fn": "F8_E4M3",
        "float32": "F32",
        "float16": "F16",
        "bfloat16": "BF16",
        "uint8": "U8",
        "int8": "I8",
        "int32": "I32",
        "int64": "I64",
    }
)


@lru_cache(maxsize=16)
def checkpoint_tensors(format: str) -> tuple[CheckpointTensor, ...]:
    """The tensors of one weight format, in file order; empty for an unquantized one."""
    rows = table("checkpoint_tensors")
    return tuple(record(CheckpointTensor, row) for row in rows if row["format"] == format)

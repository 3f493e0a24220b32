"""What lies in a Hugging Face checkpoint folder, as rules read it. No weights, only headers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from precision_plan.plan.origin import UNKNOWN, Origin


class TensorHeader(NamedTuple):
    """One tensor as a safetensors header names it.

    ``dtype`` is safetensors' spelling (``BF16``, ``F8_E4M3``, ``U8``, ``F32``, ``I32``), ``shape``
    in elements as stored (packed formats store fewer), ``shard`` the file's name in the folder.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of the folder that could not be read: which fault (a rule's slug), where, and why."""

    fault: str
    message: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A checkpoint folder, or a model configuration that was given without one.

    ``config`` is ``config.json`` as it stands; ``quantization_config`` the raw mapping that the
    engine finds, ``quantization_key`` the place where it stands (``quantization_config``,
    ``text_config.quantization_config``, ``compression_config`` or ``hf_quant_config.json``).
    ``tensors`` maps every name of every shard header; ``None`` means that headers were not read
    (a configuration alone), an empty mapping that there are none. ``weight_map`` is that of
    ``model.safetensors.index.json``, ``None`` without an index. ``scales`` holds the values of
    small scale tensors that were read. ``positions`` maps a dotted key of ``config.json`` (or of
    ``hf_quant_config.json``, prefixed with that name and a colon) to its position.
    """

    folder: str
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    quantization_config: Mapping[str, Any] | None = None
    quantization_key: str | None = None
    tensors: Mapping[str, TensorHeader] | None = None
    weight_map: Mapping[str, str] | None = None
    shards: tuple[str, ...] = ()
    scales: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
    positions: Mapping[str, Origin] = dataclasses.field(default_factory=dict)

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's configuration: nested in multimodal wrappers, else the whole."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    def position(self, key: str) -> Origin:
        """Position of a dotted key of ``config.json``; the folder's file without one."""
        return self.positions.get(key, Origin(self.folder) if self.folder else UNKNOWN)

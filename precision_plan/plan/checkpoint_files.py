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
    ``compression_config``, either of them below ``text_config.``, or ``hf_quant_config.json``).
    ``hf_quant_config`` is that file as it stands, whether or not the engine reads it.

    ``tensors`` maps every name in the headers of the shards that the engine loads; ``None`` means
    that headers were not read (a configuration alone, or weights in another container), an empty
    mapping that there are none. ``weight_map`` is that of ``model.safetensors.index.json``,
    ``None`` without an index, and ``index_size`` its ``total_size``. ``shards`` are the files that
    the engine loads and that exist, read or not; ``left_out`` the tensors of shards that the index
    does not name, and ``others`` weight files in other containers. ``data_bytes`` is the size of
    all ``tensors``. ``scales`` holds the values of small scale tensors that were read.

    ``read_model`` and ``read_quantization`` are what ``config`` and ``quantization_config`` say, as
    values of the plan's ``model`` and ``checkpoint.quantization_config``.

    ``positions`` maps a dotted key of ``config.json`` (or of ``hf_quant_config.json``, prefixed
    with that name and a colon) to its position; an element of a list is named by its index.
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
    hf_quant_config: Mapping[str, Any] | None = None
    left_out: Mapping[str, TensorHeader] = dataclasses.field(default_factory=dict)
    others: tuple[str, ...] = ()
    index_size: int | None = None
    data_bytes: int | None = None
    read_model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read_quantization: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's configuration: nested in multimodal wrappers, else the whole."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    @property
    def unread(self) -> frozenset[str]:
        """Names of the files in the folder of which something is unreadable."""
        return frozenset(each.origin.file.rpartition("/")[2] for each in self.unreadable)

    @property
    def complete(self) -> bool:
        """True if ``tensors`` names every tensor that the engine would load.

        A rule that speaks of a tensor which is *not* there asks this first.
        """
        if self.tensors is None or any(name.endswith(".safetensors") for name in self.unread):
            return False
        return self.weight_map is None or set(self.weight_map.values()) <= set(self.shards)

    def position(self, key: str) -> Origin:
        """Position of a dotted key; of the nearest key around it, or of the file, without one."""
        while key:
            found = self.positions.get(key)
            if found is not None:
                return found
            key = key.rpartition(".")[0]
        return Origin(self.folder) if self.folder else UNKNOWN

    def config_position(self, *names: str) -> Origin:
        """Position of the first of ``names`` in the language model's configuration or around it.

        That of ``config.json`` itself if it holds none of them.
        """
        for prefix in ("text_config.", ""):
            for name in names:
                found = self.positions.get(prefix + name)
                if found is not None:
                    return found
        return self._file("config.json")

    def quantization_position(self, name: str = "") -> Origin:
        """Position of a key of the quantization config, or of the whole."""
        key = self.quantization_key or ""
        separate = key.endswith(".json")
        prefixes = (f"{key}:", f"{key}:quantization.") if separate else (f"{key}.",)
        for prefix in prefixes if name else ():
            found = self.positions.get(prefix + name)
            if found is not None:
                return found
        whole = self.positions.get(f"{key}:quantization" if separate else key)
        return whole or self._file(key if separate else "config.json")

    def _file(self, name: str) -> Origin:
        return Origin(f"{self.folder}/{name}") if self.folder else UNKNOWN

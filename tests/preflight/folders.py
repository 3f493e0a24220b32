"""Checkpoint folders on disk, written byte by byte so that they can be wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from precision_plan.facts.safetensors import dtype_bits

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 1}


def header_of(tensors: Mapping[str, tuple[str, list[int]]]) -> dict[str, Any]:
    """Entries side by side, in the order given."""
    found, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = offset + prod(shape) * dtype_bits()[dtype] // 8
        found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    return found


def blob(header: Any, data: int | bytes, length: int | None = None) -> bytes:
    """A file: ``header`` as JSON (or as it is, if bytes) and ``data`` bytes behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = data if isinstance(data, bytes) else bytes(data)
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def shard(path: Path, **tensors: tuple[str, list[int]]) -> Path:
    """A sound shard of zeros."""
    header = header_of(tensors)
    size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    path.write_bytes(blob(header, size))
    return path


def folder(path: Path, config: Any = CONFIG, **files: bytes | str) -> Path:
    """A folder with a ``config.json`` and whatever else is given."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config, indent=2))
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (path / name).write_bytes(data)
    return path


def index(path: Path, weight_map: Mapping[str, str], **metadata: Any) -> None:
    """``model.safetensors.index.json``."""
    content = {"metadata": metadata, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(content))

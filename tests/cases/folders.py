"""Checkpoint folders on disk, from the short description of ``tests.checkpoints``.

Headers are written in full and data as a hole in the file, except for FP32 scales and the
``weight_shape`` of packed INT4 weights.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from precision_plan.plan import CheckpointFiles, TensorHeader
from tests.checkpoints import described

ORDINARY = 2.0**-11
"""Value of a scale that is not given: any number that a real one could be."""

_INT4_IN_A_WORD = 8
_BITS = {"BF16": 16, "F16": 16, "F32": 32, "F8_E4M3": 8, "U8": 8, "I8": 8, "I32": 32, "I64": 64}


def write(description: Mapping[str, Any], folder: Path) -> None:
    """Lay the folder down; a shard that is listed and holds no tensor becomes an empty file."""
    files = described(description)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(files.config, indent=2), encoding="utf-8")
    for name in files.shards:
        here = {key: each for key, each in (files.tensors or {}).items() if each.shard == name}
        _write_shard(folder / name, here, files)
    if files.weight_map is not None:
        index = {"metadata": {}, "weight_map": dict(files.weight_map)}
        text = json.dumps(index)
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _write_shard(path: Path, tensors: Mapping[str, TensorHeader], files: CheckpointFiles) -> None:
    if not tensors:
        path.touch()
        return
    header, places, end = {}, {}, 0
    for name, each in sorted(tensors.items()):
        start, end = end, end + prod(each.shape) * _BITS[each.dtype] // 8
        places[name] = start
        header[name] = {
            "dtype": each.dtype,
            "shape": list(each.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, each in tensors.items():
            if each.dtype == "F32" and "scale" in name:
                values = files.scales.get(name) or (ORDINARY,) * prod(each.shape)
                file.seek(8 + len(text) + places[name])
                file.write(struct.pack(f"<{len(values)}f", *values))
            elif name.endswith(".weight_shape"):
                rows, words = tensors[name.replace("weight_shape", "weight_packed")].shape
                file.seek(8 + len(text) + places[name])
                file.write(struct.pack("<2q", rows, words * _INT4_IN_A_WORD))
        file.truncate(8 + len(text) + end)

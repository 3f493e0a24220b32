"""Checkpoint folders for tests, described in a few lines of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_plan.importers.hf_config import model_of, quantization_of
from precision_plan.plan import CheckpointFiles, Origin, TensorHeader, Unreadable

_TENSOR = re.compile(r"(?P<dtype>\w+) *\[(?P<shape>[\d, ]*)\](?: in (?P<shard>\S+))?")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
SHARD = "model.safetensors"
MORE = {
    "hf_quant_config",
    "shards",
    "scales",
    "unreadable",
    "left_out",
    "others",
    "index_size",
    "data_bytes",
}


def described(files: Mapping[str, Any]) -> CheckpointFiles:
    """A checkpoint folder from ``{config, quantization_config, tensors, weight_map, ...}``.

    ``tensors`` maps names to ``BF16 [4, 8]`` or ``BF16 [4, 8] in model-00001.safetensors``;
    ``{0..3}`` in a name stands for each number. ``quantization_config`` is taken from ``config``
    (also nested) if it is not given.
    """
    known = {"folder", "config", "quantization_config", "quantization_key", "tensors", "weight_map"}
    assert files.keys() <= known | MORE, files.keys()
    config = files.get("config") or {}
    key, quantization = files.get("quantization_key"), files.get("quantization_config")
    if quantization is None:
        nested = config.get("text_config") or {}
        for place, holder in (("", config), ("text_config.", nested)):
            if quantization is None and "quantization_config" in holder:
                quantization = holder["quantization_config"]
                key = key or f"{place}quantization_config"
    tensors = files.get("tensors")
    headers = None if tensors is None else dict(_headers(tensors))
    shards = files.get("shards")
    if shards is None:
        shards = dict.fromkeys(header.shard for header in (headers or {}).values())
    return CheckpointFiles(
        folder=files.get("folder", "checkpoint"),
        config=config,
        quantization_config=quantization,
        quantization_key=key or ("quantization_config" if quantization is not None else None),
        tensors=headers,
        weight_map=files.get("weight_map"),
        shards=tuple(shards),
        scales={name: tuple(values) for name, values in files.get("scales", {}).items()},
        unreadable=tuple(
            Unreadable(each["fault"], each["message"], Origin(each.get("file", SHARD)))
            for each in files.get("unreadable", ())
        ),
        hf_quant_config=files.get("hf_quant_config"),
        left_out=dict(_headers(files.get("left_out", {}))),
        others=tuple(files.get("others", ())),
        index_size=files.get("index_size"),
        data_bytes=files.get("data_bytes"),
        read_model=model_of(config),
        read_quantization=quantization_of(quantization) if quantization else {},
    )


def _headers(tensors: Mapping[str, str]) -> list[tuple[str, TensorHeader]]:
    found = []
    for pattern, text in tensors.items():
        match = _TENSOR.fullmatch(text)
        assert match, text
        shape = tuple(int(size) for size in match["shape"].replace(" ", "").split(",") if size)
        header = TensorHeader(match["dtype"], shape, match["shard"] or SHARD)
        found += [(name, header) for name in expanded(pattern)]
    return found


def expanded(pattern: str) -> list[str]:
    """Every name that a pattern with ``{0..3}`` stands for."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = int(match[1]), int(match[2])
    return [
        name
        for number in range(first, last + 1)
        for name in expanded(f"{pattern[: match.start()]}{number}{pattern[match.end() :]}")
    ]

"""What compressed-tensors writes is judged rightly: nothing is wrong with its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from precision_plan.api import lint
from precision_plan.facts.checkpoint_contracts import contract_of
from tests.conformance.compressed_models import FAMILIES, saved

_INT4 = {"num_bits": 4, "type": "int", "strategy": "group"}
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
_INPUT8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": True}
SCHEMES: dict[str, tuple[str | dict[str, Any], str, str | None, str]] = {
    "int4 groups of 32": (
        {"weights": {**_INT4, "group_size": 32}},
        "pack-quantized",
        "int4",
        "h100",
    ),
    "int4 groups of 128": ("W4A16", "pack-quantized", "int4", "h100"),
    "int4 asymmetric": ("W4A16_ASYM", "pack-quantized", "int4", "h100"),
    "int8 packed": ("W8A16", "pack-quantized", "ct_int8_packed", "h100"),
    "int8": ("W8A8", "int-quantized", "int8", "h100"),
    "fp8 static": ("FP8", "float-quantized", "ct_fp8_tensor", "h100"),
    "fp8 dynamic": ("FP8_DYNAMIC", "float-quantized", "ct_fp8_channel", "h100"),
    "fp8 block": ("FP8_BLOCK", "float-quantized", "ct_fp8_block", "h100"),
    "fp8 tensor, dynamic": (
        {"weights": {**_FP8, "strategy": "tensor"}, "input_activations": _INPUT8},
        "float-quantized",
        "ct_fp8_tensor",
        "h100",
    ),
    "int4 weights, int8 inputs": ("W4A8", "int-quantized", None, "h100"),
    "nvfp4": ("NVFP4", "nvfp4-pack-quantized", "ct_nvfp4", "b200"),
    "nvfp4 weights": ("NVFP4A16", "nvfp4-pack-quantized", "ct_nvfp4", "b200"),
    "mxfp4": ("MXFP4", "mxfp4-pack-quantized", "ct_mxfp4", "b200"),
    "mxfp4 weights": ("MXFP4A16", "mxfp4-pack-quantized", "ct_mxfp4", "b200"),
    "mxfp8": ("MXFP8", "mxfp8-quantized", "ct_mxfp8", "b200"),
    "mxfp8 weights": ("MXFP8A16", "mxfp8-quantized", "ct_mxfp8", "b200"),
}
CASES = [("qwen3_moe", name) for name in SCHEMES] + [
    (family, name)
    for family in FAMILIES
    for name in ("int4 groups of 32", "fp8 static", "fp8 block", "nvfp4")
    if family != "qwen3_moe"
]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_compressed_model(family: str, name: str, tmp_path: Path) -> None:
    scheme, container, form, gpu = SCHEMES[name]
    saved(tmp_path, family, scheme)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert (config["format"], config["quantization_status"]) == (container, "compressed")
    contract = contract_of(config)
    assert (contract.format if contract else None) == form  # without one, scales are not judged
    report = lint([tmp_path], target={"gpu": gpu, "vllm": "0.33.0"})
    assert report.files == (str(tmp_path),)
    found = [(each.id, each.message) for each in report.diagnostics]
    assert found == []


@pytest.mark.parametrize("name", [name for name in SCHEMES if SCHEMES[name][2]])
def test_a_lost_scale_is_seen(name: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    scheme, _, _, gpu = SCHEMES[name]
    file = saved(tmp_path, "qwen3", scheme) / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.down_proj.weight_scale"]
    save_file(tensors, file)
    report = lint([tmp_path], target={"gpu": gpu, "vllm": "0.33.0"})
    assert [found.id for found in report.diagnostics] == ["PP746"]
    assert "model.layers.1.mlp.down_proj" in report.diagnostics[0].message

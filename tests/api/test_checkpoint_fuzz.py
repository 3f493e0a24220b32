"""Whatever config.json and headers say, lint answers with findings, never an exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.api import lint
from precision_plan.facts.hf_config import config_keys
from precision_plan.facts.safetensors import dtype_bits
from precision_plan.render import render_lint
from tests._hypothesis import examples
from tests.preflight.folders import blob, folder, header_of

TARGET = {"gpu": "h100", "vllm": "0.33.0", "tensor_parallel_size": "4"}
KEYS = sorted({key for row in config_keys() for key in row.keys})
QUANTIZATION = [
    *["quant_method", "quant_algo", "format", "fmt", "bits", "group_size", "sym", "desc_act"],
    *["weight_block_size", "activation_scheme", "scale_fmt", "ignore", "modules_to_not_convert"],
    *["config_groups", "group_0", "weights", "input_activations", "targets", "num_bits", "type"],
    *[
        "strategy",
        "symmetric",
        "block_structure",
        "dynamic",
        "actorder",
        "quantization",
        "producer",
    ],
    *["quantized_layers", "exclude_modules", "kv_cache_scheme", "kv_cache_quant_algo", "name"],
]
WORDS = [
    *["fp8", "compressed-tensors", "modelopt", "NVFP4", "MIXED_PRECISION", "awq", "mxfp4", "int"],
    *["float", "pack-quantized", "nvfp4-pack-quantized", "float-quantized", "group", "tensor"],
    *["dynamic", "static", "Linear", "lm_head", "re:.*gate$", "re:[", "*", "ue8m0", "", "e4m3"],
]
leaves = st.one_of(
    st.sampled_from([None, True, False, 2**70, [128, 128], [], *WORDS]),
    st.integers(-2, 300),
    st.floats(),
    st.text(max_size=3),
)


def objects(keys: list[str]) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(keys), inner, max_size=6)
        ),
        max_leaves=25,
    )


quantization = st.dictionaries(st.sampled_from(QUANTIZATION), objects(QUANTIZATION), max_size=8)
configs = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, leaves),
        "architectures": st.one_of(leaves, st.just(["Qwen3MoeForCausalLM"])),
        "layer_types": st.one_of(leaves, st.lists(st.sampled_from(WORDS), max_size=3)),
        "quantization_config": st.one_of(leaves, quantization),
        "compression_config": st.one_of(leaves, quantization),
        "text_config": st.one_of(
            leaves, st.fixed_dictionaries({"quantization_config": quantization})
        ),
    },
)
MODULES = [
    *["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "lm_head", "mtp.fc"],
    *["model.layers.0.mlp.experts.0.gate_proj", "model.layers.0.mlp.experts.0.up_proj", "x"],
    *["model.layers.0.mlp.experts", "model.layers.99.mlp.gate"],
]
SUFFIXES = [
    *["weight", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_packed", "qzeros"],
    *["weight_shape", "input_scale", "weight_global_scale", "qweight", "gate_up_proj"],
]
names = st.builds("{}.{}".format, st.sampled_from(MODULES), st.sampled_from(SUFFIXES))
tensors = st.dictionaries(
    names,
    st.tuples(st.sampled_from(sorted(dtype_bits())), st.lists(st.sampled_from([0, 1, 2, 16]))),
    max_size=12,
)


@examples(300)
@given(config=configs, found=tensors, zero=st.booleans())
def test_any_folder(
    config: dict[str, Any],
    found: dict[str, Any],
    zero: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "any"
    folder(path, config)
    header = header_of({name: (dtype, shape[:3]) for name, (dtype, shape) in found.items()})
    size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    (path / "model.safetensors").write_bytes(blob(header, bytes(size) if zero else b"\xff" * size))
    report = lint([path], target=TARGET)
    shown = json.loads(render_lint(report, "json"))
    assert len(shown["diagnostics"]) == len(report.diagnostics)
    assert render_lint(report, "text").endswith(" s\n")
    assert "PP710" not in {each.id for each in report.diagnostics}

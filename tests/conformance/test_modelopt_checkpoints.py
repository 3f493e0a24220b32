"""What ModelOpt exports is judged rightly: by headers that it wrote, kept in ``layouts/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import lint
from precision_plan.facts.checkpoint_contracts import contract_of
from tests.conformance.layout_files import headers, layout, save, values, written
from tests.conformance.write_layouts import MODELOPT

# what vLLM has no method for is refused by its name; the rest of the folder is not judged
REFUSED = {
    "modelopt_nvfp4_fp8": "W4A8_NVFP4_FP8",
    "modelopt_mxfp4": "mxfp4",
    "modelopt_int4_awq": "W4A16_AWQ",
    "modelopt_int4_awq_fp8": "W4A8_AWQ",
    "modelopt_int8": "W8A8_SQ_PER_CHANNEL",
}
# ModelOpt 0.47 writes a mark of its own into the names that it excludes: the list names nothing
WRONG = {"modelopt_fp8_mamba": ["PP781"]}
FORMATS = {
    "fp8": "fp8_per_tensor",
    "fp8_channel": "modelopt_fp8_channel",
    "fp8_block": "modelopt_fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
# vLLM takes hf_quant_config.json alone for FP8, NVFP4 and mixed precision only
UNKNOWN_ALONE = {"modelopt_mxfp8", "modelopt_mxfp8_experts", "modelopt_nvfp4_weights"}
SERVED = [name for name in MODELOPT if name not in {*REFUSED, *WRONG, "modelopt_mixed"}]


def found(path: Path, **target: str) -> list[tuple[str, str]]:
    """``[(id, message)]`` of everything above advice."""
    report = lint([path], target={"gpu": "b200", "vllm": "0.33.0", **target})
    return [(each.id, each.message) for each in report.diagnostics if each.severity != "advice"]


def form_of(name: str) -> str:
    stem = name.removeprefix("modelopt_")
    return FORMATS[stem] if stem in FORMATS else FORMATS[stem.partition("_")[0]]


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("place", ["both files", "hf_quant_config.json"])
def test_an_exported_model(name: str, place: str, tmp_path: Path) -> None:
    described = layout(name)
    assert described["written_by"].startswith("nvidia-modelopt 0.47")
    contract = contract_of(described["config"]["quantization_config"])
    assert contract is not None and contract.format == form_of(name)
    if place != "both files":
        del described["config"]["quantization_config"]
    expected = ["PP413"] if place != "both files" and name in UNKNOWN_ALONE else []
    assert [rule_id for rule_id, _ in found(written(tmp_path, described))] == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_format_that_vllm_does_not_have(name: str, tmp_path: Path) -> None:
    ((rule_id, message),) = found(written(tmp_path, layout(name)))
    assert rule_id == "PP413" and f"quant_algo {REFUSED[name]} is none of" in message


@pytest.mark.parametrize("name", WRONG)
def test_what_modelopt_itself_gets_wrong(name: str, tmp_path: Path) -> None:
    described = layout(name)
    (head,) = [
        each
        for each in described["config"]["quantization_config"]["ignore"]
        if each.startswith("lm_head")
    ]
    assert head != "lm_head"
    assert [rule_id for rule_id, _ in found(written(tmp_path, described))] == WRONG[name]
    names = described["config"]["quantization_config"]["ignore"]
    names[names.index(head)] = "lm_head"
    assert found(written(tmp_path, described)) == []


@pytest.mark.parametrize("name", SERVED)
def test_a_lost_scale_is_seen(name: str, tmp_path: Path) -> None:
    described = layout(name)
    tensors = headers(described)
    part = "down_proj" if "only" in name else "o_proj"  # attention stays in BF16
    lost = next(each for each in tensors if each.endswith(f"{part}.weight_scale"))
    del tensors[lost]
    written(tmp_path, described)
    save(tmp_path, tensors, values(described))
    ((rule_id, message),) = found(tmp_path)
    assert (rule_id, message) == (
        "PP746",
        f"no weight_scale (1 layer): {lost.removesuffix('.weight_scale')}",
    )


@pytest.mark.parametrize("name", [name for name in SERVED if "fused" in name or "biased" in name])
def test_a_lost_scale_of_fused_experts(name: str, tmp_path: Path) -> None:
    described = layout(name)
    tensors = headers(described)
    lost = next(each for each in tensors if each.endswith("experts.gate_up_proj_weight_scale"))
    del tensors[lost]
    written(tmp_path, described)
    save(tmp_path, tensors, values(described))
    assert [rule_id for rule_id, _ in found(tmp_path)] == ["PP776"]


def test_a_lost_calibration(tmp_path: Path) -> None:
    described = layout("modelopt_nvfp4")
    tensors = headers(described)
    lost = [each for each in tensors if each.endswith("mlp.down_proj.input_scale")]
    written(tmp_path, described)
    save(tmp_path, {name: tensors[name] for name in tensors if name not in lost}, {})
    ids = {rule_id for rule_id, _ in found(tmp_path)}
    assert "PP751" in ids


def test_a_cache_without_its_scales(tmp_path: Path) -> None:
    described = layout("modelopt_fp8_kv")
    tensors = headers(described)
    kept = {name: tensors[name] for name in tensors if not name.endswith((".k_scale", ".v_scale"))}
    assert len(kept) < len(tensors)
    written(tmp_path, described)
    save(tmp_path, kept, values(described))
    assert [rule_id for rule_id, _ in found(tmp_path)] == ["PP765"]


@pytest.mark.parametrize("name", ["modelopt_nvfp4", "modelopt_fp8"])
def test_a_list_that_forgets_the_head(name: str, tmp_path: Path) -> None:
    described = layout(name)
    described["config"]["quantization_config"]["ignore"].remove("lm_head")
    described["hf_quant_config"] = None
    assert [rule_id for rule_id, _ in found(written(tmp_path, described))] == ["PP781"]
    assert found(tmp_path, vllm="0.22.0") == []  # heads are quantized from 0.23 on


def test_formats_by_layer(tmp_path: Path) -> None:
    described = layout("modelopt_mixed")
    config = described["config"]["quantization_config"]
    assert config["quant_algo"] == "MIXED_PRECISION"
    path = written(tmp_path, described)
    assert found(path) == []
    tensors = headers(described)
    for lost, message in {
        "model.layers.1.self_attn.o_proj.weight_scale": "no weight_scale in F32 of FP8 (1 layer)",
        "model.layers.1.mlp.down_proj.weight_scale_2": "no weight_scale_2 in F32 of NVFP4",
        "model.layers.1.mlp.down_proj.input_scale": "no input_scale in F32 of NVFP4",
    }.items():
        kept = {name: each for name, each in tensors.items() if name != lost}
        save(path, kept, values(described))
        ((rule_id, said),) = found(path)
        assert rule_id == "PP785" and said.startswith(message)
    config["quantized_layers"].pop("model.layers.1.self_attn.o_proj")
    assert [rule_id for rule_id, _ in found(written(tmp_path, described))] == ["PP786"]

"""Fine-grained FP8 as transformers saves it: by headers that it wrote, kept in ``layouts/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import lint
from tests.conformance.layout_files import headers, layout, save, values, written
from tests.conformance.write_layouts import FP8


def found(path: Path, vllm: str = "0.33.0") -> list[tuple[str, str]]:
    report = lint([path], target={"gpu": "h100", "vllm": vllm})
    return [(each.id, each.message) for each in report.diagnostics]


@pytest.mark.parametrize("name", FP8)
def test_a_saved_model(name: str, tmp_path: Path) -> None:
    described = layout(name)
    assert described["written_by"] == "transformers 5.24.0"
    assert described["config"]["quantization_config"]["quant_method"] == "fp8"
    assert found(written(tmp_path, described)) == []


@pytest.mark.parametrize(
    ("vllm", "expected"), [("0.24.0", ["PP784"]), ("0.26.0", ["PP784"]), ("0.27.0", [])]
)
def test_the_experts_scales_by_release(vllm: str, expected: list[str], tmp_path: Path) -> None:
    written(tmp_path, layout("transformers_fp8_experts"))
    assert [rule_id for rule_id, _ in found(tmp_path, vllm)] == expected


LOST = {
    "model.layers.1.self_attn.o_proj.weight_scale_inv": "1 layer",
    "model.layers.1.mlp.experts.down_proj_scale_inv": "4 layers",
    "model.layers.1.mlp.experts.gate_up_proj_scale_inv": "8 layers",
}


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_scale_is_seen(lost: str, tmp_path: Path) -> None:
    described = layout("transformers_fp8_experts")
    tensors = headers(described)
    del tensors[lost]
    written(tmp_path, described)
    save(tmp_path, tensors, values(described))
    ((rule_id, message),) = found(tmp_path)
    assert rule_id == "PP746" and f"no weight_scale_inv ({LOST[lost]})" in message

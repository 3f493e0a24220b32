"""Layouts of published checkpoints give no false alarm, and miss nothing that is taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import lint
from tests.conformance.layout_files import headers, layout, save, written

PUBLISHED: dict[str, tuple[str, str]] = {
    "published_awq": ("qweight", ".scales"),
    "published_gptq_int4": ("qweight", ".scales"),
    "published_gptq_int8": ("qweight", ".scales"),
    "published_gpt_oss": ("blocks", "_scales"),
    "published_deepseek_fp8": ("weight", ".weight_scale_inv"),
}


def found(path: Path, **target: str) -> set[str]:
    """Ids of what is found about the checkpoint itself."""
    report = lint([path], target=target)
    return {each.id for each in report.diagnostics if each.id.startswith(("PP4", "PP7", "PP8"))}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_by_vllm(name: str, gpu: str, tmp_path: Path) -> None:
    written(tmp_path, layout(name))
    assert found(tmp_path, gpu=gpu, vllm="0.33.0") == set()


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("framework", ["slime", "miles"])
def test_by_sglang(name: str, framework: str, tmp_path: Path) -> None:
    written(tmp_path, layout(name))
    assert found(tmp_path, gpu="h100", framework=framework) == set()


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_without_the_order_of_columns(bits: int, tmp_path: Path) -> None:
    described = layout(f"published_gptq_int{bits}")
    described["tensors"] = {
        name: text for name, text in described["tensors"].items() if not name.endswith(".g_idx")
    }
    written(tmp_path, described)
    assert found(tmp_path, gpu="h100", vllm="0.33.0") == set()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_lost_scale_is_seen(name: str, tmp_path: Path) -> None:
    weight, scale = PUBLISHED[name]
    described = layout(name)
    assert any(each.endswith(weight) for each in described["tensors"])
    tensors = headers(described)
    lost = next(each for each in tensors if each.endswith(f"down_proj{scale}"))
    del tensors[lost]
    written(tmp_path, described)
    save(tmp_path, tensors, {})
    assert "PP746" in found(tmp_path, gpu="h100", vllm="0.33.0")

"""What the matrix and the pairing rules are built from."""

import pytest

from precision_plan.facts.corrections import corrections
from precision_plan.facts.formats import formats
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.gpus import gpus
from precision_plan.facts.pairs import (
    format_hardware,
    formats_of,
    online_formats,
    pair_settings,
    settings_of,
)
from precision_plan.facts.vllm import quant_names
from precision_plan.facts.vllm_routers import fp32_router
from precision_plan.facts.weight_sync import engine_update

QAT = {"int4_qat", "nvfp4_qat"}


def test_formats_are_known() -> None:
    assert set(formats_of("rollout")) <= set(formats())
    assert set(formats_of("train")) - QAT <= set(formats())
    assert set(online_formats().values()) <= set(formats())


def test_online_flags_are_vllm_s() -> None:
    assert set(online_formats()) <= set(quant_names())
    online = {name for name, row in quant_names().items() if row.kind == "online"} - {"online"}
    assert online <= set(online_formats())


@pytest.mark.parametrize(
    ("framework", "gpu", "fp32"),
    [("vime", "h100", True), ("vime", "b200", False), ("slime", "h200", True)],
)
def test_block_scales_follow_the_gpu(framework: str, gpu: str, fp32: bool) -> None:
    found: dict[str, object] = {}
    for row in settings_of("train", "fp8_block", framework, gpus()[gpu]):
        for section, values in row.settings.items():
            found |= {f"{section}.{key}": value for key, value in values.items()}
    assert found["training.fp8_block_scaling_fp32_scales"] is fp32
    assert ("env.rollout_engine" in found) == (framework == "vime" and fp32)


def test_bounded_rows_are_not_about_rocm() -> None:
    bounded = [row for row in pair_settings() if row.min_cc or row.below_cc]
    assert bounded and not any(row.holds("vime", gpus()["mi300x"]) for row in bounded)


def test_documented_hardware() -> None:
    row = format_hardware("miles", "nvfp4")
    assert row is not None and row.min_cc == "10.0" and row.platforms == ("cuda",)
    assert format_hardware("miles", "bf16") is None and format_hardware("vime", "nvfp4") is None


def test_what_the_engine_can_do_and_since_when() -> None:
    assert "0.15.0" not in engine_update("weight_transfer").versions
    assert "0.16.0" in engine_update("layerwise_reload").versions
    assert "0.16.0" not in engine_update("ipc_transfer").versions
    with pytest.raises(KeyError):
        engine_update("teleport")


def test_routers() -> None:
    row = fp32_router("glm_moe_dsa")
    assert row is not None and row.versions.since == "0.25.0"
    assert fp32_router("qwen3_moe") is None


def test_corrections() -> None:
    by_flag = {row.flag: row for row in corrections()}
    assert by_flag["--use-tis"].dest == "use_tis" and by_flag["--use-tis"].spelling == "use-tis"
    assert by_flag["--use-rollout-routing-replay"].against == "routing"
    assert all(set(row.frameworks) <= set(RL_FRAMEWORKS) for row in corrections())

"""``explain`` of environment variables: readers, spellings, ways, releases."""

from __future__ import annotations

import pytest

from precision_plan.__main__ import main
from precision_plan.cli._knowledge import cards
from precision_plan.facts.env_vars import env_vars
from precision_plan.facts.vllm_env_names import vllm_env_names


def rows(name: str) -> list[tuple[str, str]]:
    return [row for card in cards(name, ()) for row in card.rows]


def test_every_known_variable_can_be_explained() -> None:
    for name in {*env_vars(), *vllm_env_names()}:
        assert rows(name), name


def test_deep_gemm_scales() -> None:
    found = rows("VLLM_USE_DEEP_GEMM_E8M0")
    spellings = "1: on, 0: off, true: error, false: error, yes: error, 2: on, empty: error"
    assert ("spellings", spellings) in found
    assert ("unset is", "'1'") in found
    assert any(
        label == "reader" and "bool(int(x))" in text and "vllm/envs.py:1606" in text
        for label, text in found
    )
    assert ("way to vllm_worker", "raylet < job_runtime_env < engine") in found


def test_block_scales_are_compared_with_the_text_1() -> None:
    found = dict(rows("NVTE_FP8_BLOCK_SCALING_FP32_SCALES"))
    assert found["spellings"].startswith("1: on, 0: off, true: off, false: off")
    assert found["vime"] == "sets 1 (default) in train_actor"
    assert "import of the package" in found["reader"]


def test_a_name_that_only_the_engine_declares() -> None:
    found = dict(rows("VLLM_REQUEST_BODY_LOG_LEVEL"))
    assert found["read by"] == "vllm" and "envs.py" in found["source"]


def test_a_name_that_is_only_listed() -> None:
    found = dict(rows("NCCL_IB_RETRY_CNT"))
    assert found["read by"] == "nccl" and found["takes"] == "int" and found["default"] == "7"
    assert found["in"] == "train_actor, rollout_engine, vllm_worker"
    assert found["spellings"] == "1: 1, 0: 0, true: 0, false: 0, yes: 0, 2: 2, empty: unset"
    assert found["way to vllm_worker"] == "raylet < job_runtime_env < engine"


def test_further_roles_by_framework() -> None:
    assert ("in vime", "train_actor, too") in rows("VLLM_USE_DEEP_GEMM_E8M0")


@pytest.mark.parametrize("name", ["VLLM_ENGINE_READY_TIMEOUT", "VLLM_REQUEST_BODY_LOGLEVEL"])
def test_near_miss(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 2
    assert f"did you mean {name[:20]}" in capsys.readouterr().err

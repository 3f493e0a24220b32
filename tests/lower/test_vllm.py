"""vLLM: engine arguments, command line, passthrough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from precision_plan.facts.vllm import engine_args
from precision_plan.lower import lower
from precision_plan.plan.lowering import VllmLowering
from tests.lower.plans import plan


def _vllm(framework: str | None = "vllm", **sections: Any) -> VllmLowering:
    software = {"framework": framework, **sections.pop("software", {})}
    return lower(plan(software=software, **sections)).vllm


def test_kv_cache_and_recurrent_state_are_two_arguments() -> None:
    found = _vllm(
        rollout={"kv_cache_dtype": "fp8_e4m3", "mamba_ssm_cache_dtype": "float32"},
        checkpoint={"hf_checkpoint": "model"},
    )
    assert found.args == {"kv_cache_dtype": "fp8_e4m3", "mamba_ssm_cache_dtype": "float32"}
    assert found.argv == (
        *("model", "--kv-cache-dtype", "fp8_e4m3", "--mamba-ssm-cache-dtype", "float32"),
    )
    assert found.passthrough == ()


def test_json_arguments() -> None:
    found = _vllm(
        rollout={
            "head_dtype": "float32",
            "weight_transfer_backend": "nccl",
            "quantization_config": {"linear": "fp8_per_block", "ignore": ["lm_head"]},
        }
    )
    assert found.args["hf_overrides"] == {"head_dtype": "float32"}
    assert found.args["weight_transfer_config"] == {"backend": "nccl"}
    words = dict(zip(found.argv[::2], found.argv[1::2], strict=True))
    assert json.loads(words["--hf-overrides"]) == {"head_dtype": "float32"}
    assert json.loads(words["--quantization-config"])["ignore"] == ["lm_head"]


def test_switches_and_lists() -> None:
    found = _vllm(
        rollout={
            "enable_expert_parallel": True,
            "enforce_eager": False,
            "cudagraph_capture_sizes": (1, 2, 4),
            "gpu_memory_utilization": 0.6,
        }
    )
    assert " ".join(found.argv) == (
        "--enable-expert-parallel --no-enforce-eager --gpu-memory-utilization 0.6 "
        "--cudagraph-capture-sizes 1 2 4"
    )


def test_every_argument_can_be_said() -> None:
    values: dict[str, Any] = {
        "boolean": True,
        "list": ("1",),
        "json": {"linear": "mxfp8"},
    }
    for field, argument in engine_args().items():
        name = field.partition(".")[2]
        for value in (values.get(argument.kind), *(argument.choices or ()), (1,), 1, 0.5, "auto"):
            try:
                found = _vllm(software={"vllm": "0.22.1"}, rollout={name: value})
            except ValueError:
                continue
            if value is not None:
                assert argument.flag in found.argv, field
                break
        else:
            raise AssertionError(field)


@pytest.mark.parametrize(
    ("version", "there"), [("0.12.0", False), ("0.17.1", True), ("0.33.0", True)]
)
def test_an_argument_needs_a_version_that_has_it(version: str, there: bool) -> None:
    found = _vllm(software={"vllm": version}, rollout={"moe_backend": "triton"})
    assert ("--moe-backend" in found.argv) is there


def test_a_deployment_fact_is_no_argument() -> None:
    assert _vllm(rollout={"nvfp4_inloop_patch": True}) == VllmLowering()


# Under a framework ----------------------------------------------------------------------------
def test_vime_adds_what_its_engines_need() -> None:
    found = _vllm(
        "vime",
        training={"fp16": True},
        rollout={"pipeline_parallel_size": 2, "enforce_eager": True},
        launch={"rollout_num_gpus_per_engine": 8, "colocate": True},
    )
    assert found.args["tensor_parallel_size"] == 4
    assert found.args["dtype"] == "float16"
    assert found.args["enable_sleep_mode"] is True
    assert found.args["logprobs_mode"] == "processed_logprobs"
    assert found.args["weight_transfer_config"] == {"backend": "ipc"}
    assert found.passthrough == (*("--vllm-enforce-eager", "--vllm-pipeline-parallel-size", "2"),)


def test_vime_leaves_alone_what_the_plan_sets() -> None:
    found = _vllm(
        "vime", rollout={"logprobs_mode": "raw_logprobs", "weight_transfer_backend": "sharded_rdt"}
    )
    assert found.args["logprobs_mode"] == "raw_logprobs"
    assert found.args["weight_transfer_config"] == {"backend": "sharded_rdt"}


def test_vime_gets_no_argument_that_it_would_drop() -> None:
    found = _vllm(
        "vime",
        rollout={"dtype": "bfloat16", "tensor_parallel_size": 8, "kv_cache_dtype": "fp8"},
    )
    assert found.passthrough == ("--vllm-kv-cache-dtype", "fp8")


def test_a_prefixed_negative_switch_keeps_the_no_in_front() -> None:
    found = _vllm("vime", rollout={"enable_expert_parallel": False})
    assert found.passthrough == ("--no-vllm-enable-expert-parallel",)


@pytest.mark.parametrize("framework", ["slime", "miles"])
def test_other_engines_get_no_vllm_argument(framework: str) -> None:
    assert _vllm(framework, rollout={"kv_cache_dtype": "fp8"}) == VllmLowering()


def test_a_plan_without_an_engine() -> None:
    assert _vllm("megatron-lm", training={"bf16": True}) == VllmLowering()


def test_extra_arguments_of_a_serving_plan() -> None:
    found = _vllm(launch={"extra_args": {"max-num-seqs": 64, "--trust-remote-code": True}})
    assert found.argv == ("--max-num-seqs", "64", "--trust-remote-code")

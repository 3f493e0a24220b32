"""The recipes under the rules: clean as shipped, refused when an override breaks them."""

from __future__ import annotations

import pytest

from precision_plan import api

REFUSED = [
    ("qwen3-30b-fp8", ["training.fp16=true"], "training.fp16"),
    (
        "qwen3-30b-fp8",
        ["training.fp8_param_gather=true", "optimizer.optimizer_cpu_offload=true"],
        "training.fp8_param_gather",
    ),
    ("qwen3-30b-fp8", ["training.fp8_recipe=mxfp8"], "training.fp8_recipe"),
    ("qwen3-30b-fp8", ["training.fp8_format=e5m2"], "training.fp8_format"),
    ("qwen3-30b-fp8", ["hardware=a100"], "training.fp8_recipe"),
    ("qwen3-30b-mxfp8", ["hardware=mi300x"], "training.fp8_recipe"),
    ("qwen3-30b-mxfp8", ["hardware=rtx5090"], "training.fp8_recipe"),
    ("qwen3-30b-nvfp4-qat", ["hardware=h100"], "qat.nvfp4_fake_qat"),
    ("kimi-k2-thinking-int4", ["qat.int4_group_size=128"], "qat.int4_group_size"),
    ("kimi-k2-thinking-int4", ["qat=int4-g128"], "qat.int4_group_size"),
    ("megadlm-bf16", ["optimizer.main_grads_dtype=fp8"], "optimizer.main_grads_dtype"),
    (
        "megadlm-bf16",
        ["optimizer.use_precision_aware_optimizer=false"],
        "optimizer.main_grads_dtype",
    ),
    (
        "megadlm-bf16",
        ["training.accumulate_allreduce_grads_in_fp32=true"],
        "optimizer.main_grads_dtype",
    ),
]

ACCEPTED = [
    ("qwen3-30b-fp8", ["hardware=h200"]),
    ("qwen3-30b-fp8", ["hardware=b200"]),
    ("qwen3-30b-fp8", ["hardware=b200", "software=vime-blackwell"]),
    ("qwen3-30b-mxfp8", ["hardware=gb300", "hardware.nodes=2"]),
    ("qwen35-27b-hybrid-fp8-kv", ["rollout.kv_cache_dtype=auto"]),
    ("fp16-baseline", ["hardware=a100"]),
    (
        "megadlm-bf16",
        [
            "optimizer=adam-precision-aware",
            "training.accumulate_allreduce_grads_in_fp32=true",
        ],
    ),
]


def _found(recipe, overrides, conf):
    compiled = api.compile(recipe, overrides, conf_dir=conf)
    return compiled, [d for d in compiled.diagnostics if d.severity in {"error", "warning"}]


def test_shipped_recipe_is_clean(recipe, conf):
    compiled, found = _found(recipe, (), conf)
    assert found == []
    assert compiled.exit_code == 0
    assert compiled.rules_checked > 50


@pytest.mark.parametrize(("name", "overrides", "field"), REFUSED)
def test_refused(name, overrides, field, conf):
    compiled, found = _found(name, overrides, conf)
    assert compiled.exit_code == 1
    errors = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    assert field in {
        premise for d in errors for premise in (d.field, *(because.field for because in d.because))
    }
    assert all(diagnostic.fix for diagnostic in errors)


@pytest.mark.parametrize(("name", "overrides"), ACCEPTED)
def test_accepted(name, overrides, conf):
    compiled, found = _found(name, overrides, conf)
    assert found == []
    assert compiled.exit_code == 0


@pytest.mark.parametrize(
    ("gpu", "trainer", "engine"), [("h100", "1", "0"), ("h200", "1", "0"), ("b200", "0", None)]
)
def test_block_scales_follow_the_gpu(gpu, trainer, engine, conf):
    """FP32 scales on both sides on Hopper, powers of two on both sides on Blackwell."""
    compiled = api.compile("qwen3-30b-fp8", [f"hardware={gpu}"], conf_dir=conf)
    variables = compiled.lowering.ray.runtime_env["env_vars"]
    assert variables["NVTE_FP8_BLOCK_SCALING_FP32_SCALES"] == trainer
    assert variables.get("VLLM_USE_DEEP_GEMM_E8M0") == engine

"""What vLLM's configuration makes of a checkpoint, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.facts.vllm import quant_names
from precision_plan.facts.vllm_config_checks import config_checks
from precision_plan.facts.vllm_serving import draft_methods, one_stage_models, predictors
from precision_plan.plan import PrecisionPlan, Target
from precision_plan.plan.engine import Engine, engine
from precision_plan.plan.engine_groups import args_problem, groups_problem
from precision_plan.plan.engine_inc import inc_problem
from precision_plan.plan.engine_method import kv_dtype_of, method_of
from tests.checkpoints import described

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 1024,
    "num_attention_heads": 8,
}


def resolve(config: dict[str, Any], capability: str = "9.0", **sections: Any) -> Engine:
    software = {"framework": "vllm", "vllm": "0.33.0"}
    hardware = {"compute_capability": capability}
    plan = PrecisionPlan.model_validate({"software": software, "hardware": hardware, **sections})
    found = engine(plan, described({"config": config}), Target.of(plan))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("raw", "flag", "model_type", "method"),
    [
        (None, "awq", "llama", "awq"),
        ({"quant_method": "awq"}, None, "llama", "auto_awq"),
        ({"quant_method": "gptq"}, "gptq_marlin", "llama", "auto_gptq"),
        ({"quant_method": "gptq", "bits": 4}, "moe_wna16", "mixtral", "moe_wna16"),
        ({"quant_method": "auto-round"}, None, "llama", "inc"),
        ({"quant_method": "modelopt", "quant_algo": "nvfp4"}, "fp8", "llama", "modelopt_fp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "MXFP8"}}, None, "llama",
         "modelopt_mxfp8"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, None, "llama",
         "modelopt"),
        ({"quant_method": "mxfp4"}, "mxfp4", "gpt_oss", "gpt_oss_mxfp4"),
        ({"quant_method": "mxfp4"}, None, "kimi_k3", "mxfp4"),
        ({"quant_method": "fp8"}, None, "deepseek_v41", "deepseek_v4_fp8"),
        ({"quant_method": "compressed_tensors"}, None, "llama", "compressed-tensors"),
        ({"quant_method": "fp8"}, "humming", "llama", "humming"),
        ({"weight_block_size": [128, 128]}, None, "llama", None),
    ],
)  # fmt: skip
def test_method(
    raw: dict[str, Any] | None, flag: str | None, model_type: str, method: str | None
) -> None:
    assert method_of(raw, flag, model_type, (9, 0)) == (method, None, "PP403", True)


@pytest.mark.parametrize(
    ("raw", "flag"),
    [
        ({"quant_method": "fp8"}, "modelopt"),
        ({"quant_method": "gptq"}, "awq"),
        ({"weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": 4}, None),
    ],
)
def test_no_method(raw: dict[str, Any], flag: str | None) -> None:
    found = method_of(raw, flag, "llama", (9, 0))
    assert found.name is None and found.problem is not None


@pytest.mark.parametrize(
    ("raw", "dtype"),
    [
        (None, "auto"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}, "auto"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "INT8"}, "auto"),
    ],
)
def test_kv_dtype_of_a_checkpoint(raw: dict[str, Any] | None, dtype: str) -> None:
    assert kv_dtype_of(raw) == dtype


def test_dtype_by_gpu_and_family() -> None:
    assert resolve(LLAMA).dtype == "bfloat16"
    assert resolve(LLAMA, "7.5").dtype == "float16"
    assert resolve({**LLAMA, "torch_dtype": "float32"}).dtype == "bfloat16"
    gemma = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}
    assert resolve(gemma, "7.5").dtype == "float32"
    assert resolve({**LLAMA, "torch_dtype": "float8_e4m3fn"}).dtype == "bfloat16"


def test_state_dtype_by_family() -> None:
    nemotron = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}
    assert resolve(nemotron).mamba_ssm_cache_dtype == "float32"
    stored = {**nemotron, "mamba_ssm_cache_dtype": "float16"}
    assert resolve(stored).mamba_ssm_cache_dtype == "float16"
    asked = resolve(stored, rollout={"mamba_ssm_cache_dtype": "bfloat16"})
    assert asked.mamba_ssm_cache_dtype == "bfloat16"
    assert resolve(LLAMA).mamba_ssm_cache_dtype == "auto"


def test_kv_default_by_family_and_gpu() -> None:
    glm = {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}
    assert resolve(glm, "10.0").kv_cache_dtype == "fp8_e4m3"
    assert resolve(glm, "9.0").kv_cache_dtype == "auto"


def test_layers_with_sinks_are_built_later() -> None:
    config = {**LLAMA, "model_type": "gpt_oss", "head_dim": 64}
    found = resolve(config, "8.0", rollout={"attention_backend": "FLASH_ATTN"})
    assert [(each.rule, each.stage) for each in found.refusals] == [("PP426", "build")]
    assert found.resolved()["attention_backend"] == "FlashAttentionBackend"


def test_what_is_not_known_is_left_out() -> None:
    found = resolve({"model_type": "some_new_type"})
    assert found.refusals == ()
    assert set(found.resolved()) == {"quantization", "kv_cache_dtype", "mamba_ssm_cache_dtype"}


def test_engines_of_other_frameworks_and_releases() -> None:
    for software in ({"framework": "slime", "vllm": "0.33.0"}, {"framework": "vllm"}):
        plan = PrecisionPlan.model_validate({"software": software})
        assert engine(plan, described({"config": LLAMA}), Target.of(plan)) is None


@pytest.mark.parametrize(
    ("args", "fine"),
    [
        ({"num_bits": 4, "strategy": "group", "group_size": 32}, True),
        ({"num_bits": 8, "strategy": "token", "dynamic": True}, True),
        ({"strategy": "block", "block_structure": [128, 128]}, True),
        ({"strategy": "tensor_group", "group_size": 16, "dynamic": "local"}, True),
        ({"strategy": "group"}, False),
        ({"strategy": "token"}, False),
        ({"strategy": "channel", "group_size": 128}, False),
        ({"strategy": "channel", "dynamic": True}, False),
        ({"strategy": "block"}, False),
        ({"type": "fp"}, False),
        ({"group_size": 0}, False),
        (None, False),
    ],
)
def test_compressed_tensors_arguments(args: Any, fine: bool) -> None:
    assert (args_problem(args) is None) is fine


def test_attention_groups_and_old_sparsity() -> None:
    skipped = {"config_groups": {"group_0": {"targets": ["LlamaAttention"], "weights": None}}}
    assert groups_problem(skipped) is None
    assert groups_problem({"sparsity_config": {"targets": ["Linear"]}}) is not None


@pytest.mark.parametrize(
    ("raw", "fine"),
    [
        ({"bits": 4, "group_size": 128}, True),
        ({"bits": 9, "group_size": 128}, False),
        ({"bits": 4, "group_size": 128, "data_type": "nv_fp"}, False),
        ({"bits": 4, "group_size": 32, "data_type": "mx_fp"}, True),
        ({"bits": 8, "group_size": [128, 128], "data_type": "fp"}, True),
        ({"bits": 8, "group_size": 128, "data_type": "fp"}, False),
        ({"bits": 4}, False),
    ],
)
def test_auto_round(raw: dict[str, Any], fine: bool) -> None:
    assert (inc_problem(raw) is None) is fine


def test_every_check_is_of_a_method_that_exists() -> None:
    known = {row.resolves for row in quant_names().values()}
    assert set(config_checks()) <= known


def served(config: dict[str, Any], **sections: Any) -> list[str]:
    return [refusal.rule for refusal in resolve(config, **sections).refusals]


def test_drafts_of_families_with_draft_layers() -> None:
    launch = {"extra_args": {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}}
    mimo = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}
    assert served(LLAMA, launch=launch) == ["PP438"]
    assert served(mimo, launch=launch) == []
    assert served({"model_type": "llama"}, launch=launch) == []
    nested = {**LLAMA, "text_config": {"model_type": "llama"}}
    assert served(nested, launch=launch) == []


def test_every_family_with_draft_layers_is_named_once() -> None:
    names = [row.model_type or row.architecture for row in predictors()]
    assert len(names) == len(set(names)) == 55
    assert {row.needs for row in predictors()} == {None, "num_nextn_predict_layers"}
    assert draft_methods()["deepseek_mtp"].own_layers and not draft_methods()["eagle3"].own_layers
    assert "Zamba2ForCausalLM" in one_stage_models()


def test_the_own_implementation_alone_decides_about_states_and_stages() -> None:
    config = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}
    other = {"extra_args": {"model_impl": "transformers"}}
    assert resolve(config).mamba_ssm_cache_dtype == "float32"
    assert resolve(config, launch=other).mamba_ssm_cache_dtype == "auto"
    mamba = {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2"}
    assert served(mamba, rollout={"pipeline_parallel_size": 2}) == ["PP449"]


def test_a_backend_that_no_dtype_helps() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    refused = resolve(config, "7.5", rollout={"attention_backend": "FLASHINFER"})
    assert [refusal.rule for refusal in refused.refusals] == ["PP426"]
    assert resolve(config, "9.0", rollout={"attention_backend": "FLASHINFER"}).refusals == ()

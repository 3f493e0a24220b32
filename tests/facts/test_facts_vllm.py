"""vLLM: arguments and dtypes by version, methods, and what a config selects."""

import json
from pathlib import Path
from typing import Any

import pytest

from precision_plan.facts.formats import formats
from precision_plan.facts.vllm import (
    COMPARED,
    architectures,
    engine_args,
    engine_args_at,
    kv_cache_dtypes,
    kv_dtypes,
    mamba_dtypes,
    quant_names,
    state_dtype_of,
)
from precision_plan.facts.vllm_quant import (
    ct_schemes,
    quant_algo_of,
    quant_methods,
    resolve_method,
    templates,
)
from precision_plan.plan.serving import Rollout

HERE = Path(__file__).parent


def test_every_argument_has_a_plan_field() -> None:
    fields = {f"rollout.{name}" for name in Rollout.model_fields} - {"rollout.nvfp4_inloop_patch"}
    assert set(engine_args_at("0.33.0")) == fields - {"rollout.calculate_kv_scales"}


@pytest.mark.parametrize(
    ("vllm", "present", "absent"),
    [
        ("0.12.0", "rollout.calculate_kv_scales", "rollout.attention_backend"),
        ("0.17.1", "rollout.attention_backend", "rollout.linear_backend"),
        ("0.22.1", "rollout.linear_backend", None),
        ("0.28.0", "rollout.linear_backend", "rollout.calculate_kv_scales"),
    ],
)
def test_arguments_by_version(vllm: str, present: str, absent: str | None) -> None:
    arguments = engine_args_at(vllm)
    assert present in arguments
    assert absent not in arguments


@pytest.mark.parametrize(
    ("vllm", "arrived"),
    [
        ("0.17.1", set()),
        ("0.22.1", {"float16", "nvfp4", "fp8_per_token_head"}),
        ("0.28.0", {"float16", "nvfp4", "int4_per_token_head", "nvfp4_4over6"}),
        ("0.33.0", {"nvfp4_ds_mla", "octave_k3v4", "ultraquant_4bit"}),
    ],
)
def test_kv_cache_dtypes(vllm: str, arrived: set[str]) -> None:
    names = set(kv_cache_dtypes(vllm))
    assert {"auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"} | arrived <= names
    assert len(kv_cache_dtypes("0.12.0")) == 7


@pytest.mark.parametrize(
    ("name", "last_without", "first"),
    [
        ("float16", "0.17.1", "0.18.0"),
        ("nvfp4", "0.19.1", "0.20.0"),
        ("int4_per_token_head", "0.24.0", "0.25.0"),
        ("nvfp4_4over6", "0.27.1", "0.28.0"),
        ("nvfp4_ds_mla", "0.29.0", "0.30.0"),
        ("ultraquant_4bit", "0.31.0", "0.32.0"),
        ("octave_k3v4", "0.32.0", "0.33.0"),
    ],
)
def test_kv_cache_dtypes_are_dated_by_release(name: str, last_without: str, first: str) -> None:
    assert name not in kv_cache_dtypes(last_without)
    assert name in kv_cache_dtypes(first)


@pytest.mark.parametrize(
    ("flag", "vllm", "resolves"),
    [
        ("gptq", "0.21.0", "gptq"),
        ("gptq", "0.22.0", "auto_gptq"),
        ("awq_marlin", "0.23.0", "awq_marlin"),
        ("awq_marlin", "0.24.0", "auto_awq"),
        ("gptq", None, "auto_gptq"),
        ("fp8", "0.12.0", "fp8"),
    ],
)
def test_names_resolve_by_release(flag: str, vllm: str | None, resolves: str) -> None:
    assert quant_names()[flag].resolves_at(vllm) == resolves
    assert resolves in quant_methods()


def test_deprecated_methods_by_release() -> None:
    def refused(vllm: str) -> set[str]:
        names = quant_names().values()
        return {row.name for row in names if row.deprecated and vllm in row.deprecated}

    assert refused("0.13.0") == set()
    assert "experts_int8" in refused("0.14.0") and "experts_int8" not in refused("0.20.0")
    assert refused("0.33.0") == {"fbgemm_fp8", "fp_quant"}


def test_defaults_by_version() -> None:
    def default(field: str, vllm: str) -> object:
        return engine_args()[f"rollout.{field}"].at(vllm).default

    assert default("gpu_memory_utilization", "0.19.1") == 0.9
    assert default("gpu_memory_utilization", "0.20.0") == 0.92
    assert default("all2all_backend", "0.13.0") is None
    assert default("all2all_backend", "0.14.0") == "allgather_reducescatter"


def test_open_choices() -> None:
    transfer = engine_args()["rollout.weight_transfer_backend"]
    assert not transfer.is_open("0.21.0") and transfer.is_open("0.22.0")
    assert transfer.at("0.16.0").choices == ("nccl",)
    assert not engine_args()["rollout.moe_backend"].is_open("0.33.0")


def test_stored_kv_formats_are_formats() -> None:
    assert {row.stored for row in kv_dtypes().values() if row.stored} <= set(formats())


def test_mamba_dtypes() -> None:
    assert [len(mamba_dtypes(vllm)) for vllm in COMPARED] == [2, 3, 4, 4, 4]
    assert not any("fp8" in name for name in mamba_dtypes(None))


def test_state_dtypes_of_hybrid_models() -> None:
    qwen = state_dtype_of("qwen3_5_moe_text")
    nemotron = state_dtype_of("NemotronHForCausalLM")
    assert qwen is not None and qwen.hf_key == "mamba_ssm_dtype"
    assert nemotron is not None and nemotron.default == "float32"
    assert state_dtype_of("Qwen3ForCausalLM") is None
    assert state_dtype_of(None) is None


@pytest.mark.parametrize(
    ("method", "vllm", "least"),
    [
        ("fp8", "0.12.0", (8, 0)),
        ("fp8", "0.33.0", (7, 5)),
        ("fp8", None, None),
        ("modelopt_mxfp8", "0.17.1", (10, 0)),
        ("modelopt_mxfp8", "0.22.1", (8, 0)),
        ("modelopt", "0.22.1", (8, 9)),
        ("modelopt", "0.28.0", (8, 0)),
        ("modelopt_fp4", "0.33.0", (7, 5)),
        ("compressed-tensors", None, (7, 0)),
    ],
)
def test_min_capability(method: str, vllm: str | None, least: tuple[int, int] | None) -> None:
    assert quant_methods()[method].min_capability(vllm) == least


def test_min_capability_is_known_at_every_compared_version() -> None:
    for method in quant_methods().values():
        for vllm in COMPARED:
            assert method.min_capability(vllm) is not None, (method.name, vllm)


def test_ignore_keys_differ_by_method() -> None:
    methods = quant_methods()
    assert methods["fp8"].ignore_keys == ("ignored_layers", "modules_to_not_convert")
    assert methods["mxfp8"].ignore_keys == ("ignored_layers",)
    assert methods["modelopt_mxfp8"].ignore_keys == ("ignore", "exclude_modules")
    assert methods["mxfp4"].ignore_keys == ()
    for method in methods.values():
        assert not set(method.ignore_keys) & set(method.unread_keys), method.name


@pytest.mark.parametrize(
    ("config", "model_type", "method"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, None, "fp8"),
        ({"quant_method": "FP8"}, "deepseek_v4", "deepseek_v4_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, None, "modelopt_fp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, None, "modelopt_fp4"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, None, "modelopt_mxfp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, None, "modelopt"),
        ({"quant_method": "modelopt", "quant_algo": "INT3"}, None, None),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}},
            "x",
            "modelopt_fp4",
        ),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
            None,
            "modelopt",
        ),
        ({"quant_method": "mxfp8"}, None, "mxfp8"),
        ({"quant_method": "mxfp4"}, "gpt_oss", "gpt_oss_mxfp4"),
        ({"quant_method": "mxfp4"}, "llama", "mxfp4"),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"},
            None,
            "compressed-tensors",
        ),
        ({"quant_method": "gptq", "bits": 4}, None, "auto_gptq"),
        ({"quant_method": "awq"}, None, "auto_awq"),
        ({"quant_method": "fp9"}, None, None),
        ({"quant_method": 8}, None, None),
        ({}, None, None),
    ],
)
def test_resolve_method(config: dict[str, Any], model_type: str | None, method: str | None) -> None:
    assert resolve_method(config, model_type) == method


def test_resolution_agrees_with_recorded_verdicts() -> None:
    files = sorted(HERE.parents[2].glob("*/*/vllm/0.33.0.jsonl"))
    if not files:
        pytest.skip("no recorded verdicts beside the checkout")
    rows = [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    wrong = [
        row["id"]
        for row in rows
        if row["ok"]
        and row["quantization_config"]
        and resolve_method(row["quantization_config"], row["model_config"].get("model_type"))
        != row["resolved"]["quantization"]
    ]
    assert wrong == []


def test_quant_algo_is_read_flat_and_nested() -> None:
    assert quant_algo_of({"quant_algo": "nvfp4"}) == "NVFP4"
    assert quant_algo_of({"quantization": {"quant_algo": "FP8"}}) == "FP8"
    assert quant_algo_of({"quantization": "fp8"}) is None


def test_templates_select_their_own_method() -> None:
    for template in templates().values():
        assert resolve_method(template.config) == template.method
        assert template.weight_format in formats()
        method = quant_methods()[template.method]
        assert template.ignore_key in method.ignore_keys
        assert not set(template.config) & set(method.unread_keys) - {"fmt"}


def test_quantization_names_by_version() -> None:
    names = quant_names()
    assert "0.28.0" not in names["bitsandbytes"].versions
    assert "0.22.1" in names["gguf"].versions
    assert names["gptq_marlin"].resolves == "auto_gptq"
    assert names["modelopt_mxfp8"].rocm is not None
    assert "0.17.1" not in names["modelopt_mxfp8"].rocm
    assert names["humming"].rocm is None


def test_compressed_tensors_schemes() -> None:
    scheme = ct_schemes()["w4a8_fp8"]
    assert (scheme.min_cc, scheme.max_cc) == ((9, 0), (9, 0))
    assert ct_schemes()["w8a8_fp8"].min_cc == (8, 9)


@pytest.mark.parametrize(
    ("architecture", "recurrent"),
    [
        ("Qwen3NextForCausalLM", True),
        ("Lfm2MoeForCausalLM", True),
        ("GraniteMoeHybridForCausalLM", True),
        ("MiniMaxM1ForCausalLM", True),
        ("MiniMaxM2ForCausalLM", False),
        ("Qwen3MoeForCausalLM", False),
        ("Gemma3ForConditionalGeneration", False),
    ],
)
def test_families_with_a_recurrent_state(architecture: str, recurrent: bool) -> None:
    rows = [row for row in architectures() if architecture.startswith(row.prefix)]
    assert any(row.recurrent_state for row in rows) is recurrent


def test_float16_is_refused_by_model_type() -> None:
    refused = {name for row in architectures() if not row.float16 for name in row.model_types}
    assert refused == {"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"}

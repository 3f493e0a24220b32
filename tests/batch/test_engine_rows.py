"""Batch linting of ``vllm serve`` arguments beside a model's configuration."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from precision_plan.batch import lint_lines, lint_row

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 2816,
    "torch_dtype": "bfloat16",
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def row(*argv: str, capability: str = "9.0", **changes: Any) -> dict[str, Any]:
    return {
        "id": "case",
        "framework": "vllm",
        "versions": {"vllm": "0.33.0"},
        "compute_capability": capability,
        "platform": "cuda",
        "model_config": LLAMA,
        "quantization_config": None,
        "argv": list(argv),
        "env": {},
        **changes,
    }


def refusals(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error["id"], error["stage"]) for error in answer["errors"]]


def test_what_an_engine_resolves() -> None:
    answer = lint_row(row(quantization_config=FP8))
    assert answer["ok"]
    assert answer["resolved"] == {
        "dtype": "bfloat16",
        "quantization": "fp8",
        "kv_cache_dtype": "auto",
        "mamba_ssm_cache_dtype": "auto",
        "attention_backend": "FlashAttentionBackend",
    }


@pytest.mark.parametrize(
    ("capability", "argv", "backend"),
    [
        ("7.5", [], "TritonAttentionBackend"),
        ("8.0", ["--kv-cache-dtype", "fp8"], "FlashInferBackend"),
        ("9.0", ["--kv-cache-dtype", "fp8"], "FlashAttentionBackend"),
        ("9.0", ["--kv_cache_dtype=fp8_e5m2"], "FlashInferBackend"),
        ("9.0", ["--dtype", "float32"], "TritonAttentionBackend"),
        ("10.0", [], "FlashInferBackend"),
        ("12.0", [], "FlashAttentionBackend"),
        ("10.0", ["--attention-config.backend", "TRITON_ATTN"], "TritonAttentionBackend"),
    ],
)
def test_attention_backend(capability: str, argv: list[str], backend: str) -> None:
    answer = lint_row(row(*argv, capability=capability))
    assert answer["resolved"]["attention_backend"] == backend


@pytest.mark.parametrize(
    ("argv", "quantization", "refusal"),
    [
        (["--calculate-kv-scales"], None, ("PP901", "parse")),
        (["--dtype", "fp8"], None, ("PP902", "parse")),
        (["--quant", "fp8"], None, ("PP905", "parse")),
        (["--attention-config", '{"backen": "FLASHINFER"}'], None, ("PP902", "parse")),
        (["--attention-config", '{"flash_attn_version": 5}'], None, ("PP902", "parse")),
        (["--attention-config.flash_attn_version", "true"], None, ("PP902", "parse")),
        (["-cc.pass_config.enable_sp", "true"], None, ("PP902", "parse")),
        (["--kv-cache-dtype", "fp16"], None, ("PP421", "engine_config")),
        (["--kv-cache-dtype", "float16"], None, ("PP422", "engine_config")),
        (["--quantization", "modelopt"], FP8, ("PP403", "engine_config")),
        (["--quantization", "awq_marlin"], None, ("PP414", "engine_config")),
        (["--tensor-parallel-size", "0"], None, ("PP415", "engine_config")),
        (["-tp", "3"], None, ("PP416", "engine_config")),
        (["--enable-expert-parallel"], None, ("PP445", "engine_config")),
        ([], {"quant_method": "fp9"}, ("PP401", "engine_config")),
        ([], {"quant_method": "fp8"}, ("PP413", "engine_config")),
        (["--dtype", "float32"], FP8, ("PP407", "engine_config")),
        (["--attention-backend", "FLASHMLA"], None, ("PP426", "attention_backend")),
        (["--attention-backend", "FLASHATTENTION"], None, ("PP426", "engine_config")),
        (["--kv-cache-dtype", "fp8_inc"], None, ("PP425", "attention_backend")),
    ],
)
def test_refusals(
    argv: list[str], quantization: dict[str, Any] | None, refusal: tuple[str, str]
) -> None:
    answer = lint_row(row(*argv, quantization_config=quantization))
    assert not answer["ok"]
    assert refusal in refusals(answer)


@pytest.mark.parametrize(
    "argv",
    [
        ["--attention-config", '{"flash_attn_version": 3}'],
        ["--attention-config", '{"flash_attn_version": null}'],
        ["-cc.pass_config.fuse_attn_quant", "true"],
        ["--eplb-config.policy", "default"],
    ],
)
def test_objects_with_words_of_their_class(argv: list[str]) -> None:
    assert refusals(lint_row(row(*argv))) == []


def test_objects_of_another_release_are_not_known() -> None:
    argv = ["--attention-config", '{"flash_attn_version": 5, "some_key": 1}']
    assert refusals(lint_row(row(*argv, versions={"vllm": "0.28.0"}))) == []


@pytest.mark.parametrize(("vllm", "expected"), [("0.22.1", []), ("0.28.0", [("PP901", "parse")])])
def test_an_argument_known_to_be_gone(vllm: str, expected: list[tuple[str, str]]) -> None:
    answer = lint_row(row("--calculate-kv-scales", versions={"vllm": vllm}))
    assert refusals(answer) == expected


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_dtype_in_the_overrides_is_a_text(key: str) -> None:
    config = {**LLAMA, "torch_dtype": "float16"}
    overrides = json.dumps({key: "float16"})
    answer = lint_row(row("--hf-overrides", overrides, model_config=config))
    assert answer["resolved"]["dtype"] == "bfloat16"
    answer = lint_row(row("--hf-overrides", overrides, model_config=config, capability="7.5"))
    assert answer["resolved"]["dtype"] == "float16"


def test_a_config_that_an_override_replaces() -> None:
    gptq = {"quant_method": "gptq", "bits": 5, "group_size": 64, "desc_act": False, "sym": True}
    answer = lint_row(row(quantization_config=gptq))
    assert {"PP413", "PP709"} <= {rule for rule, _ in refusals(answer)}
    argv = ["--hf-overrides", json.dumps({"quantization_config": FP8})]
    answer = lint_row(row(*argv, quantization_config=gptq))
    assert answer["ok"] and answer["resolved"]["quantization"] == "fp8"
    static = {**FP8, "activation_scheme": "static"}
    assert ("PP703", "engine_config") in refusals(lint_row(row(quantization_config=static)))
    assert lint_row(row(*argv, quantization_config=static))["ok"]


def test_a_format_that_only_the_layers_ask_for() -> None:
    config = {"quant_method": "compressed-tensors", "config_groups": {}, "ignore": ["lm_head"]}
    answer = lint_row(row(quantization_config=config, versions={"vllm": "0.28.0"}))
    assert refusals(answer) == [("PP701", "worker")]


def test_triton_asks_for_the_capability_when_it_is_built() -> None:
    argv = ["--kv-cache-dtype", "fp8", "--attention-backend", "TRITON_ATTN"]
    answer = lint_row(row(*argv, capability="8.0", versions={"vllm": "0.28.0"}))
    assert ("PP426", "worker") in refusals(answer)


def test_a_kv_cache_dtype_that_the_checkpoint_brings() -> None:
    config = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    answer = lint_row(row(quantization_config=config))
    assert answer["resolved"]["kv_cache_dtype"] == "fp8_e4m3"
    assert answer["resolved"]["quantization"] == "modelopt"


def test_workers_fail_later() -> None:
    answer = lint_row(row("--dtype", "bfloat16", capability="7.5"))
    assert refusals(answer) == [("PP409", "worker")]


def test_an_unknown_release_or_gpu_is_unknown() -> None:
    answer = lint_row(row("--some-new-argument", "1", versions={"vllm": "0.40.0"}))
    assert answer["ok"] and answer["resolved"] == {}
    answer = lint_row({key: value for key, value in row().items() if key != "compute_capability"})
    assert answer["ok"]
    assert "attention_backend" not in answer["resolved"]
    assert answer["resolved"]["dtype"] == "bfloat16"


GARBAGE: tuple[Any, ...] = (
    *(None, 1, -1, 0, 1.5, 10**30, "", "x", "fp8", True, [], {}, [None], {"a": 1}, ["Linear"]),
    {"group_0": {"targets": ["Linear"], "weights": {"num_bits": "4", "group_size": "x"}}},
)
CONFIG_KEYS = (
    *("quant_method", "quant_algo", "quantization", "producer", "config_groups", "bits", "sym"),
    *("group_size", "desc_act", "dynamic", "activation_scheme", "weight_block_size", "export"),
    *("ignore", "kv_cache_scheme", "kv_cache_quant_algo", "zero_point", "w_bit", "quant_type"),
)
METHODS = ("fp8", "gptq", "awq", "modelopt", "compressed-tensors", "quark", "inc", "mxfp4", "mxfp8")
WORDS = (
    *("--kv-cache-dtype", "fp8", "nvfp4", "--tensor-parallel-size", "0", "-tp", "-5", "--", "x"),
    *("--hf-overrides", "{", '{"text_config": 3}', "--x.y", "--quantization-config.linear", "-O"),
    *("-O9", "--max-model-len", "1e3", "--attention-backend", "auto", "--block-size", "-q", "="),
    *("--mamba-ssm-cache-dtype", "float16", "--enable-eplb", "--moe-backend", "--lora-dtype", ""),
)


@pytest.mark.parametrize("seed", range(20))
def test_garbage_gets_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    lines = []
    for _ in range(40):
        config = {chance.choice(tuple(LLAMA)): chance.choice(GARBAGE) for _ in range(4)}
        quantization: Any = {
            chance.choice(CONFIG_KEYS): chance.choice(GARBAGE) for _ in range(chance.randint(0, 8))
        }
        if chance.random() < 0.8:
            quantization["quant_method"] = chance.choice(METHODS)
        if chance.random() < 0.1:
            quantization = chance.choice(GARBAGE)
        changes = {"quantization_config": quantization, "model_config": {**LLAMA, **config}}
        argv = [chance.choice(WORDS) for _ in range(chance.randint(0, 6))]
        lines.append(json.dumps(row(*argv, **changes)))
    answers = [json.loads(answer) for answer, _ in lint_lines(lines)]
    assert len(answers) == 40
    assert all(answer["id"] == "case" for answer in answers)

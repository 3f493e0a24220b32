"""Tiny random models as transformers saves them: sharded, with an index, nothing to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from precision_plan.api import lint

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "head_dim": 16, "max_position_embeddings": 64,
}  # fmt: skip
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": {"tie_word_embeddings": True},
    "qwen3_moe": {**EXPERTS, "num_experts": 4},
    "deepseek_v3": {
        **EXPERTS, **MLA, "n_routed_experts": 4, "v_head_dim": 16, "n_group": 1, "topk_group": 1,
    },
    "gemma3_text": {},
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "num_hidden_layers": 4,
}  # fmt: skip
SHARED = {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 32}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
MORE: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen2_moe": SHARED,
    "qwen3_next": {**SHARED, **LINEAR},
    "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": {**SHARED, **LINEAR},
    "mixtral": LOCAL,
    "minimax_m2": LOCAL,
    "gpt_oss": LOCAL,
    "granitemoe": LOCAL,
    "llama4_text": {**LOCAL, "intermediate_size_mlp": 128, "interleave_moe_layer_step": 1},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": {**ROUTED, **MLA, "v_head_dim": 16},
    "glm4": {},
    "glm4_moe": {**ROUTED, "n_shared_experts": 1},
    "gemma2": {},
    "mistral": {},
    "phi3": {},
    "olmo2": {},
    "nemotron": {},
    "starcoder2": {},
    "cohere2": {},
    "seed_oss": {},
}


@pytest.mark.parametrize("family", MORE)
@pytest.mark.parametrize("engine", [{"vllm": "0.33.0"}, {"framework": "slime"}])
def test_a_saved_model_of_another_family(
    family: str, engine: dict[str, str], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**SMALL, "pad_token_id": 0, **MORE[family]})
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    report = lint([tmp_path], target={"gpu": "h100", **engine})
    assert report.files == (str(tmp_path),)
    assert [(found.id, found.message) for found in report.diagnostics] == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", ["60KB", "1GB"])
def test_a_saved_model(family: str, limit: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family]})
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_size=limit)
    assert (limit == "1GB") != (tmp_path / "model.safetensors.index.json").exists()
    report = lint([tmp_path], target={"gpu": "h100", "vllm": "0.33.0"})
    assert [(found.id, found.message) for found in report.diagnostics] == []
    assert report.files == (str(tmp_path),)


def test_a_shard_that_is_lost(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("qwen3", **SMALL)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path, max_shard_size="60KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    (tmp_path / index["weight_map"]["model.norm.weight"]).unlink()
    assert "PP716" in {found.id for found in lint([tmp_path]).diagnostics}

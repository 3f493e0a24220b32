"""Tiny random models with a vision part, saved by transformers: no false alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_plan.api import lint
from tests.conformance.compressed_models import SMALL

VISION: dict[str, Any] = {
    "depth": 2, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "num_heads": 4, "num_attention_heads": 4, "out_hidden_size": 128, "patch_size": 14,
    "image_size": 28, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
    "vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "num_hidden_layers": 4,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128, "num_experts": 4}
WRAPPERS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {},
    "qwen3_vl": {},
    "qwen3_vl_moe": EXPERTS,
    "qwen3_5": LINEAR,
    "qwen3_5_moe": {**EXPERTS, **LINEAR, "shared_expert_intermediate_size": 128},
    "gemma3": {},
    "glm4v": {},
    "llama4": {
        "num_local_experts": 4, "intermediate_size_mlp": 256, "interleave_moe_layer_step": 1,
    },
    "mistral3": {},
}  # fmt: skip


def saved(path: Path, family: str) -> None:
    """A model of ``family`` whose configuration is shrunk where it has the key."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    config = AutoConfig.for_model(family)
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = False
    for key, value in {**SMALL, **WRAPPERS[family]}.items():
        setattr(config.text_config, key, value)
    for key, value in VISION.items():
        known = getattr(config.vision_config, key, None)
        both = isinstance(known, (list, tuple)) and isinstance(value, int)  # height and width
        if known is not None:
            setattr(config.vision_config, key, [value] * 2 if both else value)
    kinds = getattr(config.text_config, "layer_types", None)
    if kinds:
        config.text_config.layer_types = kinds[: config.text_config.num_hidden_layers]
    model = AutoModelForImageTextToText.from_config(config).to(torch.bfloat16)
    assert sum(each.numel() for each in model.parameters()) < 10**7
    model.save_pretrained(path)


@pytest.mark.parametrize("family", WRAPPERS)
@pytest.mark.parametrize("engine", [{"vllm": "0.33.0"}, {"framework": "slime"}])
def test_a_saved_wrapper(family: str, engine: dict[str, str], tmp_path: Path) -> None:
    saved(tmp_path, family)
    report = lint([tmp_path], target={"gpu": "h100", **engine})
    assert report.files == (str(tmp_path),)
    assert [(found.id, found.message) for found in report.diagnostics] == []

"""Tiny random models, quantized and packed by the compressed-tensors library itself."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "head_dim": 64, "max_position_embeddings": 64,
    "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
_MLA = {"q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 96, "qk_rope_head_dim": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "glm4": {},
    "gemma3_text": {"tie_word_embeddings": True},
    "qwen3_moe": {**_EXPERTS, "num_experts": 4},
    "deepseek_v3": {
        **_EXPERTS, **_MLA, "n_routed_experts": 4, "v_head_dim": 64, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "num_key_value_heads": 4,
    },
}  # fmt: skip
LEFT_OUT = ("lm_head", r"re:.*\.gate$", r"re:.*self_attn\.kv_b_proj$")


def saved(
    path: Path, family: str, scheme: str | dict[str, Any], ignore: Sequence[str] = LEFT_OUT
) -> Path:
    """A model with every linear layer but ``ignore`` in ``scheme``, in ``path``.

    ``scheme`` is one of the library's presets or what a group of ``config_groups`` says.
    """
    import torch
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        QuantizationScheme,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family]})
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    _split_experts(model)
    found = (
        preset_name_to_scheme(scheme, ["Linear"])
        if isinstance(scheme, str)
        else QuantizationScheme(targets=["Linear"], **scheme)
    )
    apply_quantization_config(
        model, QuantizationConfig(config_groups={"group_0": found}, ignore=list(ignore))
    )
    _calibrate(model)
    compressor = ModelCompressor.from_pretrained_model(model)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        compressor.compress_model(model)
    config.architectures = [type(model).__name__]
    config.save_pretrained(path)
    _save(model, path / "model.safetensors")
    compressor.update_config(str(path))
    return path


def _save(model: Any, path: Path) -> None:
    """Every tensor under its own name; a tied head is the embedding, and not stored again."""
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    save_file(tensors, path, metadata={"format": "pt"})


def _split_experts(model: Any) -> None:
    """Fused experts become linear modules, one an expert and matrix, as quantizers have them."""
    from torch import nn

    for module in list(model.modules()):
        experts = getattr(module, "experts", None)
        fused = getattr(experts, "gate_up_proj", None)
        if fused is None:
            continue
        parts = nn.ModuleList()
        for both, down in zip(fused.data, experts.down_proj.data, strict=True):
            expert = nn.Module()
            gate, up = both.chunk(2)
            for name, weight in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
                linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
                linear.weight = nn.Parameter(weight.clone(), requires_grad=False)
                expert.add_module(name, linear)
            parts.append(expert)
        module.experts = parts


def _calibrate(model: Any) -> None:
    """Scales from the weights' ranges; those of activations are made up."""
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    names = dict(model.named_modules())
    for name, module in names.items():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        shared = None
        if hasattr(module, "weight_global_scale"):
            low, high = _range_of_parts(names, name)
            shared = generate_gparam(low.float(), high.float())
            module.weight_global_scale.data.copy_(shared)
        ranges = _ranges(module.weight.data, scheme.weights)
        scale, zero = calculate_qparams(*ranges, scheme.weights, shared)
        module.weight_scale.data = scale.reshape(module.weight_scale.shape)
        if hasattr(module, "weight_zero_point"):
            like = module.weight_zero_point
            like.data = zero.reshape(like.shape).to(like.dtype)
        for made_up, value in (("input_scale", 0.01), ("input_global_scale", 100.0)):
            if hasattr(module, made_up):
                getattr(module, made_up).data.fill_(value)


def _range_of_parts(names: dict[str, Any], name: str) -> tuple[Any, Any]:
    """Smallest and largest weight of all parts of the layer that engines make of this one."""
    import torch

    stem, _, part = name.rpartition(".")
    together = next((parts for parts in _PARTS if part in parts), (part,))
    values = torch.cat([names[f"{stem}.{each}"].weight.data.flatten() for each in together])
    return values.min(), values.max()


_PARTS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def _ranges(weight: Any, args: Any) -> tuple[Any, Any]:
    """Minimum and maximum of everything that shares a scale."""
    from torch.nn.functional import pad

    rows, columns = weight.shape
    if args.strategy == "tensor":
        return weight.min(), weight.max()
    if args.strategy == "block":
        high, wide = args.block_structure
        whole = pad(weight, (0, -columns % wide, 0, -rows % high))
        blocks = whole.reshape(whole.shape[0] // high, high, whole.shape[1] // wide, wide)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    size = columns if args.strategy == "channel" else args.group_size
    groups = weight.reshape(rows, columns // size, size)
    return groups.amin(-1), groups.amax(-1)

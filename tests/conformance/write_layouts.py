"""Write ``layouts/``: tiny random models, quantized and exported by ModelOpt and transformers.

``python -m tests.conformance.write_layouts modelopt`` needs nvidia-modelopt and the release of
transformers that it supports, which is another one than the tests use: what it writes is kept.
``... fp8`` needs transformers and accelerate, ``... compressed`` compressed-tensors.
``layouts/published_*.yaml`` are written by hand.
"""

from __future__ import annotations

import copy
import importlib
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.conformance.compressed_models import FAMILIES, SMALL, saved
from tests.conformance.layout_files import keep

MORE: dict[str, dict[str, Any]] = {
    **FAMILIES,
    "deepseek_v3": {**FAMILIES["deepseek_v3"], "head_dim": 32},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 128},
    "llama4_text": {
        "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 256,
        "interleave_moe_layer_step": 1,
    },
    "qwen3_5_moe_text": {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "num_hidden_layers": 4,
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "moe", "attention"], "num_hidden_layers": 4,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "moe_intermediate_size": 128, "moe_shared_expert_intermediate_size": 128, "n_groups": 2,
        "mamba_num_heads": 4, "mamba_head_dim": 64, "ssm_state_size": 16,
    },
}  # fmt: skip
GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
MODELOPT: dict[str, tuple[str, str, str | None]] = {
    "modelopt_fp8": ("qwen3", "FP8_DEFAULT_CFG", None),
    "modelopt_fp8_channel": ("qwen3", "FP8_PER_CHANNEL_PER_TOKEN_CFG", None),
    "modelopt_fp8_block": ("qwen3", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", None),
    "modelopt_fp8_kv": ("qwen3_moe", "FP8_DEFAULT_CFG", "FP8_KV_CFG"),
    "modelopt_fp8_mixtral": ("mixtral", "FP8_DEFAULT_CFG", None),
    "modelopt_fp8_mla": ("deepseek_v3", "FP8_DEFAULT_CFG", None),
    "modelopt_fp8_gemma": ("gemma3_text", "FP8_DEFAULT_CFG", "FP8_KV_CFG"),
    "modelopt_fp8_fused_experts": ("llama4_text", "FP8_DEFAULT_CFG", None),
    "modelopt_fp8_mamba": ("nemotron_h", "FP8_DEFAULT_CFG", None),
    "modelopt_nvfp4": ("qwen3", "NVFP4_DEFAULT_CFG", None),
    "modelopt_nvfp4_weights": ("qwen3", "W4A16_NVFP4_CFG", None),
    "modelopt_nvfp4_mlp_only": ("qwen3_moe", "NVFP4_MLP_ONLY_CFG", None),
    "modelopt_nvfp4_experts_only": ("qwen3_moe", "NVFP4_EXPERTS_ONLY_CFG", None),
    "modelopt_nvfp4_kv": ("llama", "NVFP4_DEFAULT_CFG", "NVFP4_KV_CFG"),
    "modelopt_nvfp4_mla": ("deepseek_v3", "NVFP4_DEFAULT_CFG", "FP8_KV_CFG"),
    "modelopt_nvfp4_fused_experts": ("llama4_text", "NVFP4_DEFAULT_CFG", None),
    "modelopt_nvfp4_biased_experts": ("gpt_oss", "NVFP4_DEFAULT_CFG", None),
    "modelopt_nvfp4_wrapper": ("qwen3_5_moe_text", "NVFP4_DEFAULT_CFG", None),
    "modelopt_mxfp8": ("qwen3", "MXFP8_DEFAULT_CFG", None),
    "modelopt_mxfp8_experts": ("qwen3_moe", "MXFP8_DEFAULT_CFG", None),
    "modelopt_nvfp4_fp8": ("qwen3", "W4A8_NVFP4_FP8_CFG", None),
    "modelopt_mixed": ("qwen3", "FP8_DEFAULT_CFG + NVFP4_MLP_ONLY_CFG", None),
    "modelopt_mxfp4": ("qwen3", "MXFP4_DEFAULT_CFG", None),
    "modelopt_int4_awq": ("qwen3", "INT4_AWQ_CFG", None),
    "modelopt_int4_awq_fp8": ("qwen3", "W4A8_AWQ_BETA_CFG", None),
    "modelopt_int8": ("qwen3", "INT8_SMOOTHQUANT_CFG", None),
}
FP8 = {"transformers_fp8": "qwen3", "transformers_fp8_experts": "qwen3_moe"}
COMPRESSED: dict[str, tuple[str, str | dict[str, Any]]] = {
    "compressed_int4": ("qwen3", {"weights": {**GROUP, "symmetric": True}}),
    "compressed_int4_asymmetric": ("qwen3", {"weights": {**GROUP, "symmetric": False}}),
    "compressed_nvfp4": ("qwen3", "NVFP4"),
    "compressed_fp8": ("qwen3", "FP8"),
    "compressed_mxfp8": ("qwen3", "MXFP8"),
}


def _model(family: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SMALL, **MORE[family]})
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.config.architectures = [type(model).__name__]
    return model


def modelopt(family: str, preset: str, cache: str | None, path: Path) -> None:
    """Quantize after two forward passes, and export for Hugging Face."""
    import torch

    quantization = importlib.import_module("modelopt.torch.quantization")
    export = importlib.import_module("modelopt.torch.export")
    first, *more = preset.split(" + ")
    config = copy.deepcopy(getattr(quantization, first))
    for each in more:  # only what it says of the layers' matrices
        entries = getattr(quantization, each)["quant_cfg"]
        config["quant_cfg"] += [entry for entry in entries if "mlp" in entry["quantizer_name"]]
    if cache is not None:
        tools = importlib.import_module("modelopt.torch.quantization.utils")
        with_cache = tools.update_quant_cfg_with_kv_cache_quant
        config = with_cache(config, getattr(quantization, cache)["quant_cfg"])

    def calibrate(model: Any) -> None:
        for _ in range(2):
            model(torch.randint(0, SMALL["vocab_size"], (4, 32)))

    model = quantization.quantize(_model(family), config, forward_loop=calibrate)
    with torch.inference_mode():
        export.export_hf_checkpoint(model, export_dir=str(path))


def fp8(family: str, path: Path) -> None:
    """Fine-grained FP8 by transformers. It asks for a GPU and needs none to quantize."""
    import torch
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    with tempfile.TemporaryDirectory() as wide:
        _model(family).save_pretrained(wide)
        torch.cuda.is_available = lambda: True
        torch.cuda.get_device_capability = lambda device=None: (9, 0)
        AutoModelForCausalLM.from_pretrained(
            wide,
            quantization_config=FineGrainedFP8Config(),
            device_map={"": "cpu"},
            dtype=torch.bfloat16,
        ).save_pretrained(path)


NAMES: dict[str, list[str]] = {
    "modelopt": list(MODELOPT),
    "fp8": list(FP8),
    "compressed": list(COMPRESSED),
}


def main(which: str, names: list[str]) -> None:
    """Write all layouts of one library, or those of the given names."""
    by = f"transformers {version('transformers')}"
    if which != "fp8":
        library = {"modelopt": "nvidia-modelopt", "compressed": "compressed-tensors"}[which]
        by = f"{library} {version(library)}, {by}"
    for name in names or NAMES[which]:
        with tempfile.TemporaryDirectory() as path:
            if which == "modelopt":
                modelopt(*MODELOPT[name], Path(path))
            elif which == "fp8":
                fp8(FP8[name], Path(path))
            else:
                saved(Path(path), *COMPRESSED[name])
            keep(name, Path(path), by)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

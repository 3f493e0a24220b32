"""What each recipe is known for, by value: a changed group file must not change it unnoticed."""

from __future__ import annotations

import pytest

RL = {"software.framework": "vime", "training.bf16": True, "training.fp16": None}
FP8_BLOCK_ROLLOUT = {
    "rollout.quantization": "fp8",
    "checkpoint.hf_weight_format": "fp8_block",
    "checkpoint.quantization_config.quant_method": "fp8",
    "checkpoint.quantization_config.activation_scheme": "dynamic",
    "checkpoint.quantization_config.weight_block_size": (128, 128),
    "weight_sync.weight_format": "fp8_block",
}
BLOCKWISE_TRAINING = {
    "training.fp8_format": "e4m3",
    "training.fp8_recipe": "blockwise",
    "training.fp8_param_gather": None,
    "training.fp8_block_scaling_fp32_scales": None,
}
CPU_ADAM = {
    "optimizer.optimizer_cpu_offload": True,
    "optimizer.use_precision_aware_optimizer": True,
    "optimizer.use_distributed_optimizer": True,
}


def int4(group_size: int) -> dict[str, object]:
    """Fake-quantized training and its rollout checkpoint, with one group size."""
    return {
        "training.fp8_format": None,
        "qat.int4_fake_qat": True,
        "qat.int4_group_size": group_size,
        "qat.int4_symmetric": True,
        "rollout.quantization": "compressed-tensors",
        "checkpoint.quantization_config.format": "pack-quantized",
        "checkpoint.quantization_config.bits": 4,
        "checkpoint.quantization_config.group_size": group_size,
        "checkpoint.quantization_config.symmetric": True,
        "weight_sync.weight_format": "int4",
    }


def on(gpu: str, nodes: int, gpus_per_node: int = 8) -> dict[str, object]:
    """The machines."""
    return {
        "hardware.gpu": gpu,
        "hardware.nodes": nodes,
        "hardware.gpus_per_node": gpus_per_node,
    }


HEADLINES: dict[str, dict[str, object]] = {
    "qwen3-30b-fp8": {
        **RL, **BLOCKWISE_TRAINING, **CPU_ADAM, **FP8_BLOCK_ROLLOUT, **on("h100", 2),
        "model.name": "qwen3-30b-a3b",
        "recipe.maturity": "experimental",
    },
    "qwen3-4b-fp8": {
        **RL, **BLOCKWISE_TRAINING, **FP8_BLOCK_ROLLOUT, **on("h100", 1),
        "model.rotary_base": 1e6,
        "model.untie_embeddings_and_output_weights": False,
        "optimizer.optimizer_cpu_offload": None,
        "recipe.maturity": "experimental",
    },
    "qwen3-30b-bf16-fp8-rollout": {
        **RL, **CPU_ADAM, **FP8_BLOCK_ROLLOUT, **on("h100", 1),
        "training.fp8_format": None,
        "training.accumulate_allreduce_grads_in_fp32": True,
        "launch.rollout_num_gpus_per_engine": 2,
        "recipe.maturity": "stable",
    },
    "qwen3-30b-int4": {
        **RL, **CPU_ADAM, **int4(128), **on("h100", 1), "recipe.maturity": "beta",
    },
    "moonlight-16b-int4": {
        **RL, **CPU_ADAM, **int4(128), **on("h100", 1, 4),
        "model.multi_latent_attention": True,
        "launch.rollout_num_gpus_per_engine": 1,
        "recipe.maturity": "beta",
    },
    "qwen3-235b-int4": {
        **RL, **CPU_ADAM, **int4(128), **on("h100", 8),
        "training.check_for_nan_in_loss_and_grad": None,
        "recipe.maturity": "beta",
    },
    "kimi-k2-thinking-int4": {
        **RL, **CPU_ADAM, **int4(32), **on("h200", 32),
        "training.attention_backend": None,
        "training.check_for_nan_in_loss_and_grad": None,
        "launch.entrypoint": "train.py",
        "recipe.maturity": "beta",
    },
    "qwen3-30b-mxfp8": {
        **RL, **on("b200", 1),
        "training.fp8_format": "e4m3",
        "training.fp8_recipe": "mxfp8",
        "training.fp8_param_gather": None,
        "rollout.quantization": "modelopt_mxfp8",
        "checkpoint.quantization_config.quant_algo": "MXFP8",
        "checkpoint.quantization_config.scale_tensor": "weight_scale",
        "weight_sync.weight_format": "mxfp8",
        "recipe.maturity": "experimental",
    },
    "qwen3-30b-nvfp4-qat": {
        **RL, **on("b200", 1),
        "training.fp4_format": None,
        "training.gradient_accumulation_fusion": False,
        "training.use_fast_math": False,
        "qat.nvfp4_fake_qat": True,
        "rollout.quantization": "modelopt_fp4",
        "rollout.kv_cache_dtype": "bfloat16",
        "rollout.nvfp4_inloop_patch": True,
        "checkpoint.quantization_config.quant_algo": "NVFP4",
        "checkpoint.quantization_config.group_size": 16,
        "checkpoint.quantization_config.kv_cache_quant_algo": None,
        "recipe.maturity": "experimental",
    },
    "qwen35-27b-hybrid-fp8-kv": {
        **RL, **CPU_ADAM, **on("h100", 4),
        "model.linear_attention_layers": 48,
        "model.full_attention_layers": 16,
        "model.hf_mamba_ssm_dtype": "float32",
        "rollout.kv_cache_dtype": "fp8_e4m3",
        "rollout.mamba_ssm_cache_dtype": "float32",
        "rollout.mamba_cache_dtype": None,
        "checkpoint.hf_weight_format": "bf16",
        "recipe.maturity": "beta",
    },
    "fp16-baseline": {
        **on("h100", 1),
        "software.framework": "megatron-lm",
        "training.fp16": True,
        "training.bf16": None,
        "training.loss_scale": None,
        "recipe.maturity": "stable",
    },
    "fp32-baseline": {
        **on("h100", 1),
        "software.framework": "megatron-lm",
        "training.fp16": False,
        "training.bf16": False,
        "training.transformer_impl": "local",
        "training.gradient_accumulation_fusion": False,
        "parallel.sequence_parallel": None,
        "launch.extra_args.no-persist-layer-norm": True,
        "recipe.maturity": "stable",
    },
    "megadlm-bf16": {
        **on("h100", 1),
        "software.framework": "megadlm",
        "software.transformer_engine": "1.13.0",
        "training.bf16": True,
        "training.accumulate_allreduce_grads_in_fp32": False,
        "optimizer.use_precision_aware_optimizer": True,
        "optimizer.use_distributed_optimizer": True,
        "optimizer.main_grads_dtype": "bf16",
        "optimizer.main_params_dtype": "fp16",
        "optimizer.exp_avg_dtype": "fp16",
        "optimizer.exp_avg_sq_dtype": "fp16",
        "recipe.maturity": "experimental",
    },
    "megadlm-fp8": {
        **on("h100", 1),
        "software.framework": "megadlm",
        "training.bf16": True,
        "training.fp8_format": "e4m3",
        "training.fp8_recipe": None,
        "training.fp8_param_gather": True,
        "optimizer.use_distributed_optimizer": True,
        "optimizer.use_precision_aware_optimizer": True,
        "optimizer.main_grads_dtype": None,
        "optimizer.exp_avg_dtype": "fp8",
        "optimizer.exp_avg_sq_dtype": "fp8",
        "recipe.maturity": "experimental",
    },
    "megadlm-int8-inference": {
        **on("h100", 1, 1),
        "software.framework": "megadlm",
        "inference.quantization": "int8",
        "training.attention_backend": "unfused",
        "recipe.maturity": "experimental",
    },
    "megadlm-fp16-inference": {
        **on("h100", 1, 1),
        "software.framework": "megadlm",
        "inference.dtype": "fp16",
        "inference.quantization": None,
        "launch.entrypoint": "tools/run_text_generation_server.py",
        "training.micro_batch_size": 4,
        "recipe.maturity": "beta",
    },
}  # fmt: skip


def test_every_recipe_has_its_headline(recipe):
    assert recipe in HEADLINES


@pytest.mark.parametrize("name", HEADLINES)
def test_headline(name, plan_of):
    plan = plan_of(name)
    found = {field: plan.get(field) for field in HEADLINES[name]}
    assert found == HEADLINES[name]

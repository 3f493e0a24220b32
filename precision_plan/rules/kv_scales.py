"""PP179, PP427 to PP429: scales of a quantized KV cache, and caches the checkpoint turns on."""

from __future__ import annotations

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.checkpoint_found import kv_scales
from precision_plan.rules.kv_cache import KV, asked_kv_dtype
from precision_plan.rules.vllm_engine import CONFIG, serves

_CACHE = "vllm@0.33.0:vllm/config/cache.py"


@rule(
    "PP427",
    "kv-cache-scales-default-to-one",
    "advice",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/quantization/kv_cache.py:113-213",
        "vllm-project/vllm#11906",
    ),
)
def scales_default(ctx: Context) -> Found:
    """An FP8 KV cache without scales in the checkpoint is scaled by one.

    Why:
        vLLM takes k_scale and v_scale from the checkpoint and 1.0, with a warning, where there
        are none; converters for RL write none. Most models tolerate it; keys with large
        outliers (the Qwen2 family) exceed 448 and lose accuracy badly. Compare a few prompts
        with ``auto`` first. A checkpoint that declares its KV scheme is left alone.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {kv_cache_dtype: fp8_e4m3}

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: FP8, kv_cache_quant_algo: FP8}
        rollout: {kv_cache_dtype: fp8_e4m3}
    """
    asked = asked_kv_dtype(ctx)
    if asked not in {"fp8", "fp8_e4m3", "nvfp4", "nvfp4_4over6"}:
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.kv_cache_quant_algo is not None:
        return None
    return ctx.found(
        f"KV cache in {asked} without KV scales in the checkpoint: every scale is 1.0",
        KV,
        f"{CONFIG}.kv_cache_quant_algo",
        fix=(Fix("compare with rollout.kv_cache_dtype: auto, or calibrate the checkpoint"),),
    )


@rule(
    "PP428",
    "kv-cache-scales-go-stale",
    "warning",
    stage="run",
    source=("verl-project/verl#4435", "NVIDIA-NeMo/RL#1212"),
    frameworks=RL_FRAMEWORKS,
)
def scales_stale(ctx: Context) -> Found:
    """KV scales that are calculated once do not fit the weights of later steps.

    Why:
        calculate_kv_scales takes the scales of the first forward pass and keeps them. In RL the
        weights change with every update, so the scales age, and an update resets them.

    Bad:
        software: {framework: vime, vllm: 0.22.1}
        rollout: {kv_cache_dtype: fp8, calculate_kv_scales: true}

    Good:
        software: {framework: vime, vllm: 0.22.1}
        rollout: {kv_cache_dtype: fp8}
    """
    if not ctx.plan.rollout.calculate_kv_scales or asked_kv_dtype(ctx) is None:
        return None
    return ctx.found(
        "KV scales are calculated once and kept while the weights change",
        "rollout.calculate_kv_scales",
        KV,
        fix=(set_to(("rollout.calculate_kv_scales", None)),),
    )


@rule(
    "PP429",
    "checkpoint-declares-kv-cache",
    "warning",
    stage="engine_config",
    source=(f"{_CACHE}:468-492", "vllm@0.33.0:vllm/utils/torch_utils.py:443-516"),
)
def declared_by_checkpoint(ctx: Context) -> Found:
    """The checkpoint turns on a quantized KV cache that the plan does not mention.

    Why:
        With --kv-cache-dtype auto a ModelOpt checkpoint that declares kv_cache_quant_algo gets
        an FP8 or NVFP4 cache in silence. The NVFP4 converter of miles declares FP8 by default
        and writes no KV scales. Say what you want: the same dtype, or bfloat16. A checkpoint
        that holds KV scales was calibrated for it, and is not reported.

    Bad:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: NVFP4, kv_cache_quant_algo: FP8}

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: NVFP4, kv_cache_quant_algo: FP8}
        rollout: {kv_cache_dtype: bfloat16}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.kv_cache_quant_algo is None or not serves(ctx):
        return None
    becomes = _DECLARED.get(config.kv_cache_quant_algo.upper())
    if becomes is None or ctx.plan.rollout.kv_cache_dtype not in {None, "auto"}:
        return None
    if ctx.checkpoint_layers is not None and kv_scales(ctx.checkpoint_layers):
        return None
    return ctx.found(
        f"the checkpoint makes the KV cache {becomes}",
        f"{CONFIG}.kv_cache_quant_algo",
        KV,
        fix=(set_to((KV, becomes)), set_to((KV, "bfloat16"))),
        resolved={KV: becomes},
    )


_DECLARED = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}


_LARGE_KEYS = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl")
"""Model types whose keys are known to exceed the range of E4M3 (448) without a scale."""


@rule(
    "PP179",
    "large-keys-without-kv-scales",
    "warning",
    stage="run",
    source=("vllm-project/vllm#11906", "sgl-project/sgl-cookbook#214"),
)
def large_keys(ctx: Context) -> Found:
    """An FP8 KV cache clips the keys of this model, whose checkpoint has no KV scales.

    Why:
        Models of the Qwen2 family have keys with outliers beyond 448. Without k_scale and v_scale
        in the checkpoint the engine multiplies by 1.0 and says so in its log only; the perplexity
        of a 7B model rose by half. A look into the headers tells whether there are scales.

    Bad:
        software: {framework: vllm}
        rollout: {kv_cache_dtype: fp8_e4m3}
        files:
          config: {model_type: qwen2}
          tensors: {model.layers.0.self_attn.k_proj.weight: "BF16 [512, 3584]"}

    Good:
        software: {framework: vllm}
        rollout: {kv_cache_dtype: fp8_e4m3}
        files:
          config: {model_type: qwen2}
          tensors:
            model.layers.0.self_attn.k_proj.weight: BF16 [512, 3584]
            model.layers.0.self_attn.k_scale: F32 [1]
            model.layers.0.self_attn.v_scale: F32 [1]
    """
    folder = ctx.checkpoint
    if folder is None or not folder.tensors or asked_kv_dtype(ctx) not in {"fp8", "fp8_e4m3"}:
        return None
    if folder.text_config.get("model_type") not in _LARGE_KEYS:
        return None
    if any(name.endswith(("k_scale", "kv_scale")) for name in folder.tensors):
        return None
    return ctx.found(
        "the keys of this model exceed FP8, and its checkpoint has no KV scales",
        KV,
        Because(f"{folder.folder} holds no tensor that ends in k_scale"),
        fix=(set_to((KV, "auto")), Fix("calibrate the checkpoint's KV scales")),
    )


RULES: tuple[Rule, ...] = (scales_default, scales_stale, declared_by_checkpoint, large_keys)

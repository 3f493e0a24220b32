"""PP762 to PP766, PP774 and PP775: what a checkpoint holds beside or instead of its layers."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_config, about_layers, kv_scales, layers_of
from precision_plan.rules.checkpoint_table import CheckpointLayers

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_CONFIG = "vllm@0.33.0:vllm/config/model.py:1383-1485"
_TRACK = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py:510-575"
_CT = f"{_QUANT}/compressed_tensors/schemes"


@rule(
    "PP762",
    "two-quantization-configs-disagree",
    "error",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py:197-397", _CONFIG),
)
def two_configs(ctx: Context) -> Iterator[Finding]:
    """hf_quant_config.json and config.json describe different quantizations.

    Why:
        vLLM reads quantization_config of config.json and looks at hf_quant_config.json only without
        it; TensorRT-LLM and SGLang look at the other first. The same folder is then served as two
        different models.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8}
          hf_quant_config: {producer: {name: modelopt}, quantization: {quant_algo: NVFP4}}

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: NVFP4, group_size: 16}
          hf_quant_config:
            {producer: {name: modelopt}, quantization: {quant_algo: NVFP4, group_size: 16}}
    """
    files = ctx.checkpoint
    if files is None or files.hf_quant_config is None or files.quantization_config is None:
        return
    if (files.quantization_key or "").endswith(".json"):
        return
    other = files.hf_quant_config.get("quantization")
    nested = files.quantization_config.get("quantization")
    ours = nested if isinstance(nested, dict) else files.quantization_config
    if not isinstance(other, dict):
        return
    for key in ("quant_algo", "group_size"):
        theirs, mine = other.get(key), ours.get(key)
        if theirs is None or mine is None or str(theirs).upper() == str(mine).upper():
            continue
        yield Finding(
            f"{key} is {mine} in config.json and {theirs} in hf_quant_config.json",
            because=(Because("vLLM reads config.json first, other engines the other file"),),
            fix=(Fix("keep the one that describes the tensors, in both files"),),
            origin=files.quantization_position(key),
        )


_NEVER = ("embed_tokens", "norm", "layernorm")


@rule(
    "PP763",
    "embedding-or-norm-quantized",
    "error",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:175-208", f"{_QUANT}/modelopt.py:226-268"),
)
def embedding(ctx: Context) -> Found:
    """The embedding or a norm is stored quantized.

    Why:
        FP8, ModelOpt, AWQ and GPTQ methods quantize linear layers and experts only. The engine's
        embedding and norms are BF16: values are copied without their scale.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.embed_tokens.weight: "F8_E4M3 [128, 64]"
            model.embed_tokens.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.embed_tokens.weight: "BF16 [128, 64]"}
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None or layers.contract.method == "compressed-tensors":
        return None
    found = [
        name
        for _, names in layers.quantized
        for name in names
        if name.rpartition(".")[2].endswith(_NEVER)
    ]
    if not found:
        return None
    return about_layers(ctx, "quantized, which no engine reads", found, Fix("leave them in BF16"))


@rule(
    "PP764",
    "router-quantized",
    "warning",
    stage="worker",
    source=("vllm@0.33.0:vllm/model_executor/models/deepseek_v2.py", "THUDM/slime#1679"),
)
def router(ctx: Context) -> Found:
    """The router of a mixture of experts is stored quantized.

    Why:
        Most models of vLLM build the router without quantization, so its scale has no parameter and
        its values are copied without it. Where it is read, rounding flips the choice of experts.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate.weight: "F8_E4M3 [8, 64]"
            model.layers.0.mlp.gate.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              ignored_layers: [model.layers.0.mlp.gate]
          tensors: {model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}
    """
    layers = layers_of(ctx)
    found = [
        name
        for _, names in (layers.quantized if layers else ())
        for name in names
        if name.endswith((".gate", ".router", ".shared_expert_gate"))
    ]
    return (
        about_layers(ctx, "router quantized", found, Fix("leave routers in BF16"))
        if found
        else None
    )


@rule(
    "PP765",
    "kv-scales-declared-and-missing",
    "warning",
    stage="run",
    source=(f"{_QUANT}/kv_cache.py:78-175", "radixark/miles@31f1ca96:tools/convert_hf_to_nvfp4.py"),
)
def kv_missing(ctx: Context) -> Found:
    """The configuration declares a calibrated FP8 KV cache, and there are no k and v scales.

    Why:
        With the scheme vLLM's kv_cache_dtype auto becomes fp8. Without scales it takes 1.0: keys
        and values beyond 448 saturate, and what was called calibrated is not. The NVFP4 converters
        of the RL frameworks declare the scheme by default and write no scales.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: FP8
              kv_cache_scheme: {num_bits: 8, type: float, dynamic: false}
          tensors: {model.norm.weight: "BF16 [64]"}

    Good:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: FP8
              kv_cache_scheme: {num_bits: 8, type: float, dynamic: false}
          tensors:
            model.layers.0.self_attn.k_proj.k_scale: "F32 []"
            model.layers.0.self_attn.v_proj.v_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    key = _kv_key(layers) if layers is not None else None
    if layers is None or key is None or kv_scales(layers):
        return None
    if ctx.plan.rollout.kv_cache_dtype not in {None, "auto", "fp8", "fp8_e4m3"}:
        return None
    return about_config(
        layers,
        f"{key} is declared, but no layer has a k_scale or v_scale",
        key,
        Fix(f"remove {key}, or calibrate the KV cache"),
        Fix("rollout.kv_cache_dtype: bfloat16"),
        because="scales that are not there are 1.0",
    )


def _kv_key(layers: CheckpointLayers) -> str | None:
    config = layers.quantization
    nested = config.get("quantization")
    scheme = config.get("kv_cache_scheme")
    if isinstance(nested, dict) and nested.get("kv_cache_quant_algo"):
        return "kv_cache_quant_algo"
    if isinstance(scheme, dict) and not scheme.get("dynamic"):
        return "kv_cache_scheme"
    return None


@rule(
    "PP766",
    "kv-scales-without-scheme",
    "advice",
    stage="run",
    source=(f"{_QUANT}/kv_cache.py:78-175",),
)
def kv_unused(ctx: Context) -> Found:
    """The checkpoint has k and v scales, and nothing asks for an FP8 KV cache.

    Why:
        Calibrated scales count only with an FP8 KV cache. Without a scheme in the configuration
        and without kv_cache_dtype the cache is BF16 and the scales are read for nothing.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.self_attn.k_scale: "F32 []"}

    Good:
        rollout: {kv_cache_dtype: fp8}
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.self_attn.k_scale: "F32 []"}
    """
    layers = layers_of(ctx)
    if layers is None or not layers.quantization or ctx.plan.rollout.kv_cache_dtype is not None:
        return None
    nested = layers.quantization.get("quantization")
    asked = layers.quantization.get("kv_cache_scheme") or layers.quantization.get(
        "kv_cache_quant_algo"
    )
    if asked or (isinstance(nested, dict) and nested.get("kv_cache_quant_algo")):
        return None
    found = kv_scales(layers)
    if not found:
        return None
    return about_layers(
        ctx, "scales of a KV cache in BF16", found, Fix("rollout.kv_cache_dtype: fp8")
    )


@rule(
    "PP774",
    "tied-head-is-stored",
    "warning",
    stage="worker",
    source=(
        "vllm@0.29.0:vllm/config/model.py:maybe_untie_word_embeddings",
        "sgl-project/sglang#2935",
    ),
)
def tied_head(ctx: Context) -> Found:
    """A quantized checkpoint ties its output head to the embedding and stores a head as well.

    Why:
        Quantization tools save the tied head once more. vLLM before 0.29 drops the tensor in
        silence, also where it differs from the embedding; SGLang has no parameter of that name and
        stops. From 0.29 on vLLM compares the two and unties them.

    Bad:
        software: {framework: vllm, vllm: 0.28.0}
        files:
          config:
            tie_word_embeddings: true
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            lm_head.weight: "BF16 [128, 64]"
            model.embed_tokens.weight: "BF16 [128, 64]"

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        files:
          config:
            tie_word_embeddings: true
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            lm_head.weight: "BF16 [128, 64]"
            model.embed_tokens.weight: "BF16 [128, 64]"
    """
    layers = layers_of(ctx)
    if layers is None or not layers.quantization:
        return None
    tied = layers.files.text_config.get("tie_word_embeddings")
    tied = layers.files.config.get("tie_word_embeddings") if tied is None else tied
    if tied is not True or (
        layers.engine == "vllm" and ctx.at_least("vllm", "0.30.0") is not False
    ):
        return None
    heads = [name for name in layers.modules if name.rpartition(".")[2] == "lm_head"]
    if not heads:
        return None
    fix = Fix("leave lm_head out of the checkpoint, or set tie_word_embeddings: false on purpose")
    because = Because("tie_word_embeddings = true")
    return about_layers(ctx, "a head beside tied embeddings", heads, fix, because)


@rule(
    "PP775",
    "packed-fused-experts",
    "error",
    stage="run",
    source=(
        "vllm-project/llm-compressor#2939",
        f"{_QUANT}/compressed_tensors/compressed_tensors.py:419-949",
    ),
)
def packed_experts(ctx: Context) -> Found:
    """Experts of one three-dimensional tensor are packed as a whole.

    Why:
        compressed-tensors packs the weights of linear modules, and engines read experts one by
        one (experts.0.gate_proj.weight_packed). gate_up_proj_packed maps to no parameter: the
        checkpoint loads, and the experts hold what the memory held.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, strategy: group, group_size: 32, symmetric: true}
          tensors: {model.layers.0.mlp.experts.gate_up_proj_packed: "I32 [4, 64, 8]"}

    Good:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, strategy: group, group_size: 32, symmetric: true}
          tensors:
            model.layers.0.mlp.experts.0.gate_proj.weight_packed: "I32 [32, 8]"
            model.layers.0.mlp.experts.0.gate_proj.weight_scale: "BF16 [32, 2]"
            model.layers.0.mlp.experts.0.gate_proj.weight_shape: "I64 [2]"
    """
    layers = layers_of(ctx)
    if layers is None or layers.quantization.get("quant_method") != "compressed-tensors":
        return None
    found = [
        f"{name}.{suffix}"
        for tensors, names in layers.groups
        for suffix, head in tensors.items()
        if suffix in _PACKED_WHOLE and len(head.shape) == 3
        for name in names
    ]
    if not found:
        return None
    fix = Fix("split the experts into two-dimensional layers before quantizing them")
    return about_layers(ctx, "experts packed as one tensor", found, fix)


_PACKED_WHOLE = frozenset({"gate_up_proj_packed", "down_proj_packed"})


RULES: tuple[Rule, ...] = (
    two_configs,
    embedding,
    router,
    kv_missing,
    kv_unused,
    tied_head,
    packed_experts,
)

"""PP477 to PP483: layers that vLLM cuts between scales, and settings that it changes by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.versions import VersionRange
from precision_plan.facts.vllm_serving import replaying_models
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.kv_cache import KV, asked_kv_dtype
from precision_plan.rules.shapes_rollout import (
    by_headers,
    engine_tp,
    served_block,
    smaller_split,
)
from precision_plan.rules.vllm_engine import method, serves

_RELEASE = {"vllm": VersionRange("0.33.0", "0.33")}
_EXTRA = "launch.extra_args"
_BACKEND = "rollout.attention_backend"
_UTILS = "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py"


@rule(
    "PP477",
    "latent-outputs-cut-through-fp8-blocks",
    "error",
    stage="build",
    source=(
        f"{_UTILS}:1329-1344",
        "vllm@0.33.0:vllm/model_executor/models/deepseek_v2.py:502-533,1083-1106",
    ),
)
def column_cut(ctx: Context) -> Iterator[Finding]:
    """Tensor parallelism cuts the output of a latent attention's projection through an FP8 block.

    Why:
        The projections of queries and of keys and values are column-parallel and not fused: each
        rank holds whole heads, and its rows must be whole blocks. vLLM raises ValueError
        when it builds the layer.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        model:
          {multi_latent_attention: true, num_attention_heads: 16, q_lora_rank: 1536,
           qk_head_dim: 128, qk_pos_emb_head_dim: 64, v_head_dim: 128}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 16}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        model:
          {multi_latent_attention: true, num_attention_heads: 16, q_lora_rank: 1536,
           qk_head_dim: 128, qk_pos_emb_head_dim: 64, v_head_dim: 128}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 8}
    """
    model, block, (tp, field) = ctx.plan.model, served_block(ctx), engine_tp(ctx)
    heads = model.num_attention_heads
    if not model.multi_latent_attention or block is None or tp is None or heads is None:
        return
    if by_headers(ctx, experts=False):
        return
    sizes = {
        "queries": (model.qk_head_dim, model.qk_pos_emb_head_dim),
        "keys and values": (model.qk_head_dim, model.v_head_dim),
    }
    for name, (one, other) in sizes.items():
        if one is None or other is None:
            continue
        rows = heads * (one + other)
        if rows % (tp * block[0]) and heads % tp == 0:
            yield ctx.found(
                f"{rows} / {tp} = {rows // tp} rows of {name} a rank are not a multiple of the "
                f"block {block[0]}",
                field,
                "model.num_attention_heads",
                "checkpoint.quantization_config.weight_block_size",
                fix=(smaller_split(field, rows, block[0]),),
            )


@rule(
    "PP478",
    "key-value-heads-cut-through-fp8-blocks",
    "warning",
    stage="worker",
    source=(
        f"{_UTILS}:1307-1313",
        "vllm@0.33.0:vllm/model_executor/layers/linear.py:562-585",
    ),
    versions={"vllm": VersionRange("0.33.0", None)},
    needs=("vllm",),
)
def fused_cut(ctx: Context) -> Found:
    """A rank's keys and values are no whole FP8 blocks, and vLLM does not check that.

    Why:
        q, k and v are fused, and for fused layers the check of the shapes is skipped: the scales
        of the parts are put behind one another in blocks of the sum, so that those of k and v may
        land on foreign rows. The load fails, or the scales are wrong in silence.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        model: {num_attention_heads: 64, num_query_groups: 8, kv_channels: 64}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 8}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        model: {num_attention_heads: 64, num_query_groups: 8, kv_channels: 64}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 4}
    """
    model, block, (tp, field) = ctx.plan.model, served_block(ctx), engine_tp(ctx)
    groups, width = model.num_query_groups, model.kv_channels
    if block is None or tp is None or groups is None or width is None:
        return None
    if model.multi_latent_attention or groups % tp or by_headers(ctx, experts=False):
        return None  # fewer heads than ranks are copied, and latent attention has no fused layer
    rows = groups // tp * width
    if rows % block[0] == 0:
        return None
    return ctx.found(
        f"{rows} rows of keys a rank are not a multiple of the block {block[0]}",
        field,
        "model.num_query_groups",
        "checkpoint.quantization_config.weight_block_size",
        fix=(smaller_split(field, groups * width, block[0]),),
    )


@rule(
    "PP479",
    "experts-without-the-models-clamp",
    "error",
    stage="build",
    source=("vllm@0.33.0:vllm/model_executor/layers/fused_moe/oracle/nvfp4.py:215-225,287-300",),
    versions=_RELEASE,
)
def without_clamp(ctx: Context) -> Found:
    """The named NVFP4 expert kernel does not apply the clamp of the model's SwiGLU.

    Why:
        Models with ``swiglu_limit`` in config.json clamp gate and up. All NVFP4 kernels but
        flashinfer_b12x do it; that one is refused when it is named, and passed over when not.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {moe_backend: flashinfer_b12x}
        files: {config: {model_type: deepseek_v4, swiglu_limit: 10.0,
                         quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {moe_backend: flashinfer_cutlass}
        files: {config: {model_type: deepseek_v4, swiglu_limit: 10.0,
                         quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}}
    """
    if ctx.plan.rollout.moe_backend != "flashinfer_b12x" or ctx.checkpoint is None:
        return None
    found, place = method(ctx)
    limit = ctx.checkpoint.config.get("swiglu_limit")
    if found is None or found.name != "modelopt_fp4" or limit is None or not serves(ctx):
        return None
    return ctx.found(
        f"flashinfer_b12x does not clamp SwiGLU at {limit}",
        "rollout.moe_backend",
        place,
        Because("config.json has swiglu_limit"),
        fix=(set_to(("rollout.moe_backend", "flashinfer_cutlass")),),
    )


@rule(
    "PP480",
    "queries-are-quantized-too",
    "advice",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/layers/attention/attention.py:469-488",),
    versions=_RELEASE,
    frameworks=RL_FRAMEWORKS,
)
def queries_quantized(ctx: Context) -> Found:
    """With an FP8 or NVFP4 KV cache FlashInfer gets the queries in FP8 as well.

    Why:
        Backends that can take quantized queries get them, with one static scale: that of the
        checkpoint, else the keys', else 1.0. The trainer recomputes log-probabilities with
        queries in 16 bits.

    Bad:
        software: {framework: vime, vllm: 0.33.0}
        rollout: {attention_backend: FLASHINFER, kv_cache_dtype: fp8_e4m3}

    Good:
        software: {framework: vime, vllm: 0.33.0}
        rollout: {attention_backend: FLASHINFER, kv_cache_dtype: fp8_e4m3}
        launch:
          extra_args: {vllm_attention_config: {disable_flashinfer_q_quantization: true}}
    """
    kv, asked = asked_kv_dtype(ctx), (ctx.plan.rollout.attention_backend or "").upper()
    if kv is None or not kv.startswith(("fp8", "nvfp4")) or kv.endswith("per_token_head"):
        return None
    settings = ctx.extra("vllm_attention_config") or ctx.extra("attention_config")
    off = "disable_flashinfer_q_quantization"
    if asked != "FLASHINFER" or (isinstance(settings, Mapping) and settings.get(off)):
        return None
    return ctx.found(
        f"FLASHINFER quantizes queries for a KV cache in {kv}",
        KV,
        _BACKEND,
        fix=(Fix(f"attention_config.{off}: true"), set_to((KV, "auto"))),
    )


@rule(
    "PP481",
    "prefix-caching-off-under-batch-invariance",
    "warning",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/layers/attention/attention.py:373-388",),
    versions=_RELEASE,
)
def no_prefixes(ctx: Context) -> Found:
    """VLLM_BATCH_INVARIANT turns off the prefix caching that is asked for.

    Why:
        TRITON_MLA is batch invariant for whole prompts only; with it vLLM disables prefix caching
        and logs a line.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {attention_backend: TRITON_MLA}
        launch: {extra_args: {enable_prefix_caching: true}}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {attention_backend: FLASH_ATTN_MLA}
        launch: {extra_args: {enable_prefix_caching: true}}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}
    """
    asked = (ctx.plan.rollout.attention_backend or "").upper()
    if asked != "TRITON_MLA" or ctx.extra("enable_prefix_caching") is not True:
        return None
    if ctx.rollout_env.get("VLLM_BATCH_INVARIANT", ("0", ""))[0] != "1" or not serves(ctx):
        return None
    return ctx.found(
        "TRITON_MLA has no prefix caching under VLLM_BATCH_INVARIANT",
        f"{_EXTRA}.enable_prefix_caching",
        _BACKEND,
        fix=(set_to((f"{_EXTRA}.enable_prefix_caching", False)), set_to((_BACKEND, None))),
    )


@rule(
    "PP482",
    "replayed-state-refused",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/vllm.py:3454-3553",),
    versions=_RELEASE,
)
def replay_refused(ctx: Context) -> Found:
    """--use-replayssm does not go with the model or with another argument.

    Why:
        Nemotron-H and Kimi's linear attention alone can replay their recurrent state. FlashInfer's
        kernel keeps at most 16 steps, and a KV connector cannot move the state.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {use_replayssm: true}}
        model: {hf_architecture: Qwen3NextForCausalLM}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {use_replayssm: true}}
        model: {hf_architecture: NemotronHForCausalLM}
    """
    if ctx.extra("use_replayssm") is not True or not serves(ctx):
        return None
    place = f"{_EXTRA}.use_replayssm"
    model, length = ctx.plan.model.hf_architecture, ctx.extra("replayssm_buffer_len")
    if model is not None and model not in replaying_models():
        text, premise = f"{model} cannot replay its state", "model.hf_architecture"
    elif ctx.extra("mamba_backend") == "flashinfer" and type(length) is int and length > 16:
        text, premise = f"FlashInfer replays 16 steps, not {length}", _EXTRA
    elif ctx.extra("kv_transfer_config") is not None and model not in replaying_models(kda=True):
        text, premise = "a KV connector does not move the replayed state", _EXTRA
    else:
        return None
    return ctx.found(text, place, premise, fix=(set_to((place, None)),))


@rule(
    "PP483",
    "awq-kernel-forced-on-rocm",
    "warning",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/platforms/rocm.py:1223-1230",),
    versions=_RELEASE,
)
def awq_on_rocm(ctx: Context) -> Found:
    """On ROCm vLLM sets VLLM_USE_TRITON_AWQ=1, whatever it was.

    Why:
        Whenever a quantized model is checked there, the variable is overwritten in the engine's
        process. A 0 in the plan has no effect.

    Bad:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 4, group_size: 128, zero_point: true}
        env: {all: {VLLM_USE_TRITON_AWQ: "0"}}

    Good:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 4, group_size: 128, zero_point: true}
    """
    if ctx.target.platform != "rocm" or not serves(ctx):
        return None
    given = ctx.rollout_env.get("VLLM_USE_TRITON_AWQ")
    found, place = method(ctx)
    if given is None or given[0] != "0" or found is None:
        return None
    return ctx.found(
        "VLLM_USE_TRITON_AWQ=0 is overwritten with 1 on ROCm",
        given[1],
        place,
        fix=(set_to((given[1], None)),),
    )


RULES: tuple[Rule, ...] = (
    column_cut,
    fused_cut,
    without_clamp,
    queries_quantized,
    no_prefixes,
    replay_refused,
    awq_on_rocm,
)

"""PP413 to PP420, PP436, PP437: what vLLM refuses in a model, its config and the arguments."""

from __future__ import annotations

from precision_plan.facts.versions import VersionRange
from precision_plan.facts.vllm import gone_models
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import refused, serves

_RELEASE = {"vllm": VersionRange("0.33.0", "0.33")}
_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_LOADER = "vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py:197-410"


@rule(
    "PP413",
    "quantization-config-refused",
    "error",
    stage="engine_config",
    source=(
        f"{_QUANT}/fp8.py:92-175",
        f"{_QUANT}/auto_gptq.py:104-211",
        f"{_QUANT}/auto_awq.py:186-260",
        f"{_QUANT}/modelopt.py:324-478",
        f"{_QUANT}/compressed_tensors/compressed_tensors.py:234-385",
    ),
    versions=_RELEASE,
)
def config_refused(ctx: Context) -> Found:
    """vLLM's class for the method does not take the checkpoint's quantization_config.

    Why:
        Each method has a class that reads the config: ``fp8`` demands an ``activation_scheme``,
        block scales go with dynamic activations only, GPTQ is symmetric with 4 or 8 bits and
        without activation order, AWQ has 4 bits, ModelOpt a ``quant_algo`` of the method, and
        compressed-tensors checks every group's arguments. A misspelt key is a missing one.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        files:
          config:
            architectures: [LlamaForCausalLM]
            model_type: llama
            quantization_config: {quant_method: fp8, weight_block_size: [128, 128]}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        files:
          config:
            architectures: [LlamaForCausalLM]
            model_type: llama
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              weight_block_size: [128, 128]
    """
    return tuple(refused(ctx, "PP413"))


@rule(
    "PP414",
    "method-without-its-checkpoint",
    "error",
    stage="engine_config",
    source=(_LOADER,),
    versions=_RELEASE,
)
def without_checkpoint(ctx: Context) -> Found:
    """--quantization names a method that needs a quantized checkpoint, and this one is not.

    Why:
        Only the online methods quantize at load (``fp8_per_tensor``, ``fp8_per_block``,
        ``fp8_per_channel``, ``mxfp8``, ``mxfp4``, ``online`` and a few others). For every other
        one vLLM looks for a config in the checkpoint, then for the method's file, and stops.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: awq_marlin}
        files: {config: {architectures: [LlamaForCausalLM], model_type: llama}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: fp8_per_block}
        files: {config: {architectures: [LlamaForCausalLM], model_type: llama}}
    """
    return tuple(refused(ctx, "PP414"))


@rule(
    "PP415",
    "engine-number-out-of-range",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/parallel.py:150-300", "vllm@0.33.0:vllm/config/cache.py:180"),
    versions=_RELEASE,
)
def out_of_range(ctx: Context) -> Found:
    """A number of the engine arguments is outside of the range that vLLM takes.

    Why:
        The parser takes any number; the configuration classes then demand at least one rank, a
        positive block size, a memory fraction of at most one and the like.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {max_model_len: 1024}
        launch: {extra_args: {block_size: 0}}
        files: {config: {architectures: [LlamaForCausalLM], model_type: llama}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {max_model_len: 1024}
        launch: {extra_args: {block_size: 16}}
        files: {config: {architectures: [LlamaForCausalLM], model_type: llama}}
    """
    if ctx.engine is not None or ctx.target.framework != "vllm":
        return tuple(refused(ctx, "PP415"))
    from precision_plan.plan.engine_parallel import out_of_range as beyond

    return tuple(ctx.found(message, field) for message, field in beyond(ctx.plan))


@rule(
    "PP416",
    "heads-not-shared-by-ranks",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/model.py:1557-1564",),
    versions=_RELEASE,
)
def heads_not_shared(ctx: Context) -> Found:
    """The attention heads cannot be divided among the tensor-parallel ranks.

    Why:
        vLLM gives each rank the same number of attention heads and raises ValueError where that
        does not come out even. Fewer key-value heads than ranks are copied instead.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {tensor_parallel_size: 3}
        files:
          config: {architectures: [LlamaForCausalLM], model_type: llama, num_attention_heads: 32}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {tensor_parallel_size: 4}
        files:
          config: {architectures: [LlamaForCausalLM], model_type: llama, num_attention_heads: 32}
    """
    return tuple(refused(ctx, "PP416"))


@rule(
    "PP417",
    "eplb-without-ranks",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/parallel.py:563-593",),
    versions=_RELEASE,
)
def eplb_without_ranks(ctx: Context) -> Found:
    """Expert load balancing is on, and there is one rank only, or redundant experts without it.

    Why:
        Experts are moved between the ranks of the expert-parallel group, which spans tensor,
        prefill-context and data parallelism. With one rank there is nothing to move, and vLLM
        raises ValueError; so it does for redundant experts where balancing is off.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {enable_expert_parallel: true, enable_eplb: true, tensor_parallel_size: 1}
        files:
          config: {architectures: [Qwen3MoeForCausalLM], model_type: qwen3_moe, num_experts: 128}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {enable_expert_parallel: true, enable_eplb: true, tensor_parallel_size: 4}
        files:
          config: {architectures: [Qwen3MoeForCausalLM], model_type: qwen3_moe, num_experts: 128}
    """
    return tuple(refused(ctx, "PP417"))


@rule(
    "PP418",
    "model-dtype-unreadable",
    "error",
    stage="engine_config",
    source=(
        "vllm@0.33.0:vllm/transformers_utils/model_arch_config_convertor.py:205-245",
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.dtype",
    ),
    versions=_RELEASE,
)
def dtype_unreadable(ctx: Context) -> Found:
    """The dtype in the model's config.json is no dtype of torch.

    Why:
        ``config.json`` names torch's own attribute: ``bfloat16``, not ``bf16``, and never
        ``auto``. The configuration class looks the name up and raises AttributeError before the
        engine has read a single argument.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        files: {config: {model_type: llama, torch_dtype: bf16}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        files: {config: {model_type: llama, torch_dtype: bfloat16}}
    """
    return tuple(refused(ctx, "PP418"))


@rule(
    "PP419",
    "attention-backend-given-twice",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/engine/arg_utils.py:2726-2737",),
    versions=_RELEASE,
)
def backend_twice(ctx: Context) -> Found:
    """--attention-backend and --attention-config both name a backend.

    Why:
        The two are one setting. vLLM raises ValueError where both are there, even where they
        agree, instead of letting one win.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {attention_backend: FLASHINFER}
        launch:
          extra_args: {attention_config: {backend: FLASH_ATTN}, attention_backend_given: true}
        files: {config: {model_type: llama}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {attention_backend: FLASHINFER}
        launch: {extra_args: {attention_config: {flash_attn_version: 3}}}
        files: {config: {model_type: llama}}
    """
    return tuple(refused(ctx, "PP419"))


@rule(
    "PP420",
    "microbatches-without-their-exchange",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/vllm.py:2171-2205",),
    versions=_RELEASE,
)
def microbatches(ctx: Context) -> Found:
    """--enable-dbo is on with a token exchange that cannot overlap microbatches.

    Why:
        Two microbatches overlap only with DeepEP or NIXL; vLLM's default,
        ``allgather_reducescatter``, is refused, also for a model without experts.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {enable_dbo: true}}
        files: {config: {model_type: qwen3_moe}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {all2all_backend: deepep_low_latency}
        launch: {extra_args: {enable_dbo: true}}
        files: {config: {model_type: qwen3_moe}}
    """
    return tuple(refused(ctx, "PP420"))


@rule(
    "PP436",
    "prefill-context-parallelism-without-latent-attention",
    "error",
    stage="attention_backend",
    source=(
        "vllm@0.33.0:vllm/v1/attention/backend.py:340-369,823",
        "vllm@0.33.0:vllm/v1/worker/cp_utils.py:30-45",
    ),
    versions=_RELEASE,
)
def prefill_shared(ctx: Context) -> Found:
    """Prefill context parallelism is asked for and the model has no latent attention.

    Why:
        Of vLLM's backends only those of multi-head latent attention share a prompt among ranks.
        For any other model every backend is refused when one is selected.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {prefill_context_parallel_size: 2}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {prefill_context_parallel_size: 2}}
        files:
          config:
            {model_type: deepseek_v3, architectures: [DeepseekV3ForCausalLM], kv_lora_rank: 512}
    """
    return tuple(refused(ctx, "PP436"))


@rule(
    "PP437",
    "model-implementation-gone",
    "warning",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/model_executor/models/registry.py:841-895,1221-1254",),
    needs=("vllm",),
)
def implementation_gone(ctx: Context) -> Found:
    """The declared vLLM has dropped its implementation of this architecture.

    Why:
        Rarely used models leave vLLM; it then tries the model's own Transformers code, which has
        other kernels and takes fewer quantization methods, or stops with the last release that
        served the model.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        model: {hf_architecture: BambaForCausalLM}

    Good:
        software: {framework: vllm, vllm: 0.23.0}
        model: {hf_architecture: BambaForCausalLM}
    """
    row, have = gone_models().get(ctx.plan.model.hf_architecture or ""), ctx.target.package("vllm")
    if row is None or have is None or have in row.versions or not serves(ctx):
        return None
    return ctx.found(
        f"vLLM implements {row.architecture} {row.versions}; {have} does not",
        "model.hf_architecture",
        "software.vllm",
        fix=(set_to(("software.vllm", row.versions.until)),),
    )


RULES: tuple[Rule, ...] = (
    config_refused,
    without_checkpoint,
    out_of_range,
    heads_not_shared,
    eplb_without_ranks,
    dtype_unreadable,
    backend_twice,
    microbatches,
    prefill_shared,
    implementation_gone,
)

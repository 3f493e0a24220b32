"""PP460 to PP464: kernels that vLLM takes instead of the ones that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_plan.facts.versions import VersionRange
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import method, serves

_RELEASE = {"vllm": VersionRange("0.33.0", "0.33")}
_KV = "rollout.kv_cache_dtype"
_ATTENTION = "launch.extra_args"
_PACKED = ("turboquant_", "ultraquant_")


def _flash_version(ctx: Context) -> Any:
    settings = ctx.extra("attention_config")
    return settings.get("flash_attn_version") if isinstance(settings, Mapping) else None


def _version(ctx: Context, taken: int) -> Fix:
    """Writes down the version that vLLM takes anyway."""
    field = f"{ctx.extra_field('attention_config')}.flash_attn_version"
    return Fix(f"attention_config.flash_attn_version: {taken}", {field: taken}, "safe")


@rule(
    "PP460",
    "packed-kv-cache-forces-flash-attention-2",
    "warning",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/engine/arg_utils.py:2334-2351,2752-2767",),
    versions=_RELEASE,
    fixable=True,
)
def packed_kv(ctx: Context) -> Found:
    """A TurboQuant or UltraQuant KV cache replaces the FlashAttention version that is asked for.

    Why:
        The boundary layers keep the model's dtype and run on FlashAttention; its versions 3 and
        4 do not go with the packed layers. vLLM sets flash_attn_version to 2 and logs a line.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {kv_cache_dtype: turboquant_k8v4}
        launch: {extra_args: {attention_config: {flash_attn_version: 3}}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {kv_cache_dtype: turboquant_k8v4}
        launch: {extra_args: {attention_config: {flash_attn_version: 2}}}
    """
    asked, version = ctx.plan.rollout.kv_cache_dtype or "", _flash_version(ctx)
    if not asked.startswith(_PACKED) or version in (None, 2) or not serves(ctx):
        return None
    return ctx.found(
        f"FlashAttention {version} is replaced by 2 for a KV cache in {asked}",
        _ATTENTION,
        _KV,
        fix=(_version(ctx, 2), set_to((_KV, "fp8_e4m3"))),
    )


@rule(
    "PP461",
    "flash-attention-3-on-blackwell",
    "warning",
    stage="attention_backend",
    source=("vllm@0.33.0:vllm/v1/attention/backends/fa_utils.py:119-125",),
    versions=_RELEASE,
    needs=("gpu",),
    hardware="compute capability 10.0 and later",
    fixable=True,
)
def fa3_on_blackwell(ctx: Context) -> Found:
    """FlashAttention 3 is asked for on a GPU that does not have it.

    Why:
        Version 3 is Hopper's. On 10.x vLLM takes version 4, and version 2 elsewhere, which has
        no FP8 KV cache; only a log line tells.

    Bad:
        hardware: {gpu: b200}
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {attention_config: {flash_attn_version: 3}}}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {attention_config: {flash_attn_version: 3}}}
    """
    capability = ctx.target.compute_capability
    if capability is None or capability < (10, 0) or _flash_version(ctx) != 3 or not serves(ctx):
        return None
    taken = 4 if capability < (11, 0) else 2
    return ctx.found(
        f"FlashAttention 3 is replaced by {taken} on {capability[0]}.{capability[1]}",
        _ATTENTION,
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(_version(ctx, taken),),
    )


@rule(
    "PP462",
    "linear-backend-under-batch-invariance",
    "warning",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/kernels/linear/__init__.py:270-285,1202-1215",),
    versions=_RELEASE,
)
def linear_backend(ctx: Context) -> Found:
    """VLLM_BATCH_INVARIANT overrides the linear backend that is asked for.

    Why:
        Batch-independent results need kernels that keep their order of additions, and vLLM
        chooses them itself: NVFP4 layers go to CUTLASS, or are computed in bfloat16 where that
        is not there. The argument is overridden with a warning.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {linear_backend: marlin}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {linear_backend: auto}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}
    """
    asked, found = ctx.plan.rollout.linear_backend, ctx.rollout_env.get("VLLM_BATCH_INVARIANT")
    if asked in {None, "auto"} or found is None or found[0] != "1" or not serves(ctx):
        return None
    return ctx.found(
        f"VLLM_BATCH_INVARIANT overrides the linear backend {asked}",
        "rollout.linear_backend",
        found[1],
        fix=(set_to(("rollout.linear_backend", "auto")),),
    )


_PER_TOKEN = "nvfp4_per_token"


@rule(
    "PP463",
    "nvfp4-expert-activations-refused",
    "error",
    stage="build",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/quantization/modelopt.py:858-892",
        "vllm@0.33.0:vllm/model_executor/layers/fused_moe/oracle/nvfp4.py:291-297",
    ),
    versions=_RELEASE,
)
def nvfp4_activations(ctx: Context) -> Found:
    """The activations asked for do not go with the experts of an NVFP4 checkpoint.

    Why:
        ``--quantization-config`` may replace the activations of NVFP4 experts by
        ``nvfp4_per_token``, and by nothing else; a weight-only checkpoint (W4A16_NVFP4) has
        none to replace. vLLM raises ValueError when it builds the layers.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {quantization_config: {moe: {activation: mxfp8}}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {quantization_config: {moe: {activation: nvfp4_per_token}}}
    """
    given, config = ctx.plan.rollout.quantization_config, ctx.plan.checkpoint.quantization_config
    experts = given.get("moe") if given is not None else None
    asked = experts.get("activation") if isinstance(experts, Mapping) else None
    found, place = method(ctx)
    if asked is None or found is None or found.name != "modelopt_fp4" or not serves(ctx):
        return None
    weight_only = config is not None and config.quant_algo == "W4A16_NVFP4"
    if asked == _PER_TOKEN and not weight_only:
        return None
    why = "its weights alone are quantized" if weight_only else f"only {_PER_TOKEN} is"
    return ctx.found(
        f"expert activations in {asked} are not for this NVFP4 checkpoint: {why}",
        "rollout.quantization_config",
        place,
        fix=(set_to(("rollout.quantization_config", None)),),
    )


@rule(
    "PP464",
    "direct-resharding-of-quantized-weights",
    "warning",
    stage="run",
    source=("vllm@0.33.0:vllm/distributed/weight_transfer/m2n_engine.py:411-418",),
    versions=_RELEASE,
)
def direct_resharding(ctx: Context) -> Found:
    """The nccl_m2n weight transfer does not reshard quantized weights in place.

    Why:
        Direct resharding writes each rank's part where it belongs. With a quantized model or
        with pipeline parallelism vLLM turns it off in silence and moves whole tensors, which
        costs the memory and the time that the backend was chosen to save.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {weight_transfer_backend: nccl_m2n}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {hf_weight_format: bf16}
        rollout: {weight_transfer_backend: nccl_m2n}
    """
    rollout = ctx.plan.rollout
    if rollout.weight_transfer_backend != "nccl_m2n" or not serves(ctx):
        return None
    found, place = method(ctx)
    if found is not None:
        why, premise = f"the method {found.name}", place
    elif (rollout.pipeline_parallel_size or 1) > 1:
        why, premise = "pipeline parallelism", "rollout.pipeline_parallel_size"
    else:
        return None
    return ctx.found(
        f"nccl_m2n moves whole tensors because of {why}",
        "rollout.weight_transfer_backend",
        premise,
        fix=(set_to(("rollout.weight_transfer_backend", "nccl")),),
    )


RULES: tuple[Rule, ...] = (
    packed_kv,
    fa3_on_blackwell,
    linear_backend,
    nvfp4_activations,
    direct_resharding,
)

"""PP43x: recurrent and convolution state of hybrid models, apart from the KV cache."""

from __future__ import annotations

from precision_plan.facts.vllm import StateDtype, state_dtype_of
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import by_engine, is_hybrid, serves

_SSM = "rollout.mamba_ssm_cache_dtype"
_CONV = "rollout.mamba_cache_dtype"
_ROUNDING = "rollout.enable_mamba_cache_stochastic_rounding"
_UTILS = "vllm@0.33.0:vllm/model_executor/layers/mamba/mamba_utils.py"
_CACHE = "vllm@0.33.0:vllm/config/cache.py"


def _family(ctx: Context) -> StateDtype | None:
    model = ctx.plan.model
    return state_dtype_of(model.hf_model_type or model.hf_architecture)


@rule(
    "PP431",
    "fp8-kv-cache-leaves-state-alone",
    "advice",
    stage="run",
    source=(f"{_CACHE}:296-303", "inference-sim/inference-sim#1552"),
)
def state_left_alone(ctx: Context) -> Found:
    """A quantized KV cache does not touch the recurrent state of a hybrid model.

    Why:
        kv_cache_dtype is about attention layers. Linear-attention and Mamba layers keep a
        recurrent state (mamba_ssm_cache_dtype) and a convolution state (mamba_cache_dtype) of
        their own, which take 32 or 16 bits and no FP8. Both share one memory budget with the
        KV cache, so say what the state shall be instead of leaving it to the model's default.

    Bad:
        software: {framework: vllm}
        model: {linear_attention_layers: 48, full_attention_layers: 16}
        rollout: {kv_cache_dtype: fp8_e4m3}

    Good:
        software: {framework: vllm}
        model: {linear_attention_layers: 48, full_attention_layers: 16}
        rollout: {kv_cache_dtype: fp8_e4m3, mamba_ssm_cache_dtype: float32}
    """
    rollout = ctx.plan.rollout
    asked = rollout.kv_cache_dtype
    if asked in {None, "auto", "float16", "bfloat16"} or rollout.mamba_ssm_cache_dtype:
        return None
    if not serves(ctx) or not is_hybrid(ctx):
        return None
    family = _family(ctx)
    default = ctx.plan.model.hf_mamba_ssm_dtype or (family.default if family else None)
    then = f"it stays {default}" if default else "the model's default decides"
    return ctx.found(
        f"KV cache in {asked}, but the recurrent state is not stated: {then}",
        "rollout.kv_cache_dtype",
        _SSM,
        "model.linear_attention_layers",
        fix=(set_to((_SSM, default or "float32")), set_to((_SSM, "bfloat16"))),
    )


@rule(
    "PP432",
    "stochastic-rounding-needs-float16-state",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/vllm.py:1595-1605", "vllm@0.33.0:vllm/config/mamba.py:83-104"),
)
@by_engine("PP432")
def rounding_needs_fp16(ctx: Context) -> Found:
    """Stochastic rounding of the recurrent state needs mamba_ssm_cache_dtype float16.

    Why:
        The option exists to make a float16 state usable; with any other dtype, ``auto``
        included, vLLM raises ValueError. Its Triton kernel is for compute capability 10.x.

    Bad:
        software: {framework: vllm}
        rollout: {enable_mamba_cache_stochastic_rounding: true}

    Good:
        software: {framework: vllm}
        rollout:
          {enable_mamba_cache_stochastic_rounding: true, mamba_ssm_cache_dtype: float16}
    """
    rollout = ctx.plan.rollout
    if not rollout.enable_mamba_cache_stochastic_rounding or not serves(ctx):
        return None
    if rollout.mamba_ssm_cache_dtype == "float16":
        return None
    return ctx.found(
        "stochastic rounding of the state without a float16 state",
        _ROUNDING,
        _SSM,
        fix=(set_to((_SSM, "float16")), set_to((_ROUNDING, None))),
    )


@rule(
    "PP433",
    "state-dtype-refused-by-model",
    "error",
    stage="engine_config",
    source=(f"{_UTILS}:132-149",),
)
def refused_by_model(ctx: Context) -> Found:
    """The model's recurrent layers refuse this state dtype.

    Why:
        Kimi delta attention accumulates over the whole sequence and overflows float16; vLLM
        takes auto, float32 and bfloat16 there and raises ValueError otherwise.

    Bad:
        software: {framework: vllm}
        model: {hf_architecture: KimiLinearForCausalLM}
        rollout: {mamba_ssm_cache_dtype: float16}

    Good:
        software: {framework: vllm}
        model: {hf_architecture: KimiLinearForCausalLM}
        rollout: {mamba_ssm_cache_dtype: float32}
    """
    asked = ctx.plan.rollout.mamba_ssm_cache_dtype
    if asked is None or not serves(ctx):
        return None
    family = _family(ctx)
    if family is None or family.allowed is None or asked in family.allowed:
        return None
    return ctx.found(
        f"{ctx.plan.model.hf_architecture or ctx.plan.model.hf_model_type} does not take a "
        f"recurrent state in {asked}",
        _SSM,
        "model.hf_architecture" if ctx.plan.model.hf_architecture else "model.hf_model_type",
        fix=tuple(set_to((_SSM, one)) for one in family.allowed),
    )


@rule(
    "PP434",
    "state-dtype-differs-from-model",
    "advice",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/models/config.py:953-977", "vllm-project/vllm#39032"),
)
def differs_from_model(ctx: Context) -> Found:
    """The recurrent state is kept in another dtype than the model was made for.

    Why:
        config.json names the state's dtype (mamba_ssm_dtype). vLLM warns and follows the
        argument. A 16-bit state halves its memory; errors accumulate along the sequence, so
        long contexts are the test.

    Bad:
        software: {framework: vllm}
        model: {linear_attention_layers: 48, hf_mamba_ssm_dtype: float32}
        rollout: {mamba_ssm_cache_dtype: bfloat16}

    Good:
        software: {framework: vllm}
        model: {linear_attention_layers: 48, hf_mamba_ssm_dtype: float32}
        rollout: {mamba_ssm_cache_dtype: float32}
    """
    asked, made = ctx.plan.rollout.mamba_ssm_cache_dtype, ctx.plan.model.hf_mamba_ssm_dtype
    if asked in {None, "auto"} or made in {None, "auto", asked} or not serves(ctx):
        return None
    return ctx.found(
        f"recurrent state in {asked}, the checkpoint names {made}",
        _SSM,
        "model.hf_mamba_ssm_dtype",
        fix=(set_to((_SSM, made)),),
    )


@rule(
    "PP435",
    "state-dtype-without-state",
    "warning",
    stage="run",
    source=(f"{_UTILS}:97-130",),
)
def without_state(ctx: Context) -> Found:
    """A state dtype is set for a model that has no recurrent layers.

    Why:
        mamba_cache_dtype and mamba_ssm_cache_dtype are read by recurrent layers only. For a
        pure attention model they change nothing; the KV cache is kv_cache_dtype.

    Bad:
        software: {framework: vllm}
        model: {num_layers: 48, hidden_size: 2048}
        rollout: {mamba_ssm_cache_dtype: bfloat16}

    Good:
        software: {framework: vllm}
        model: {num_layers: 64, hidden_size: 5120, linear_attention_layers: 48}
        rollout: {mamba_ssm_cache_dtype: bfloat16}
    """
    rollout = ctx.plan.rollout
    ssm = rollout.mamba_ssm_cache_dtype
    field = _SSM if ssm not in {None, "auto"} else _CONV
    if field == _CONV and rollout.mamba_cache_dtype in {None, "auto"}:
        return None
    if not serves(ctx) or is_hybrid(ctx) is not False:
        return None
    return ctx.found(
        f"{ctx.shown(field)}, but the model has no recurrent layers",
        field,
        "model.linear_attention_layers",
        fix=(set_to((field, None)),),
    )


@rule(
    "PP558",
    "recurrent-state-narrower-than-in-training",
    "advice",
    stage="run",
    source=(
        "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/ssm/gated_delta_net.py:579-660",
        "vllm-project/vllm#39032",
    ),
    frameworks=("vime",),
)
def narrower_than_training(ctx: Context) -> Found:
    """The rollout keeps the recurrent state in 16 bits, the trainer in FP32.

    Why:
        Megatron computes the gated delta rule over the whole sequence with the state in FP32. A
        16-bit state in the engine is rounded after every token, so log-probabilities of trainer
        and rollout drift apart along a long answer, whatever the weights' formats are. The
        memory that it saves is paid with a correction (PP547).

    Bad:
        software: {framework: vime}
        model: {num_layers: 64, hidden_size: 5120, linear_attention_layers: 48}
        training: {bf16: true}
        rollout: {mamba_ssm_cache_dtype: bfloat16}

    Good:
        software: {framework: vime}
        model: {num_layers: 64, hidden_size: 5120, linear_attention_layers: 48}
        training: {bf16: true}
        rollout: {mamba_ssm_cache_dtype: float32}
    """
    asked = ctx.plan.rollout.mamba_ssm_cache_dtype
    if asked not in {"float16", "bfloat16"} or not ctx.plan.model.linear_attention_layers:
        return None
    return ctx.found(
        f"recurrent state in {asked} in the rollout, in FP32 in the trainer",
        _SSM,
        "model.linear_attention_layers",
        fix=(set_to((_SSM, "float32")),),
    )


RULES: tuple[Rule, ...] = (
    state_left_alone,
    rounding_needs_fp16,
    refused_by_model,
    differs_from_model,
    without_state,
    narrower_than_training,
)

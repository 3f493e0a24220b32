"""PP544, PP545, PP552, PP553, PP556: FP8 block scales of trainer, update, checkpoint and engine."""

from __future__ import annotations

from precision_plan.facts.formats import formats
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.weight_sync import engine_update
from precision_plan.plan.unknown import look_up
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import (
    FP32_SCALES,
    SGLANG_FRAMEWORKS,
    rollout_format,
    train_format,
)

_SLIME = (
    "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors/"
    "quantizer_fp8.py:98-111"
)
_VIME = "vllm-project/vime@96e0e22e:vime/backends/megatron_utils/fp8_helpers.py"
_SGLANG = "sgl-project/sglang@0808b892:python/sglang/srt/layers/deep_gemm_wrapper/configurer.py"
_CONFIG = "checkpoint.quantization_config"
_SWITCH = "VLLM_USE_DEEP_GEMM_E8M0"


def _blocks(ctx: Context) -> bool:
    """True if both sides are block FP8."""
    return train_format(ctx) == "fp8_block" and rollout_format(ctx.plan) == "fp8_block"


def _hopper(ctx: Context) -> bool:
    capability = ctx.target.compute_capability
    return capability is not None and capability[0] == 9


@rule(
    "PP544",
    "power-of-two-scales-in-trainer-alone",
    "warning",
    stage="run",
    source=(_SLIME, _SGLANG),
    frameworks=("slime",),
    needs=("gpu",),
    hardware="compute capability 9.x (Hopper)",
)
def trainer_alone(ctx: Context) -> Found:
    """The trainer rounds block scales to powers of two; slime's weight update and SGLang do not.

    Why:
        On Hopper SGLang computes with FP32 block scales, and slime's update quantizes with FP32
        scales, whatever NVTE_FP8_BLOCK_SCALING_FP32_SCALES says (miles' update reads it). With
        the value 0 the trainer alone has powers of two, and the rounding that block-FP8 training
        shares with the rollout is lost. Blackwell has powers of two on every side.

    Bad:
        software: {framework: slime}
        hardware: {gpu: h100}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
           fp8_block_scaling_fp32_scales: false}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: slime}
        hardware: {gpu: h100}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
           fp8_block_scaling_fp32_scales: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    found = ctx.train_env.get(FP32_SCALES)
    if found is None or found[0] != "0" or not _hopper(ctx) or not _blocks(ctx):
        return None
    return ctx.found(
        "block scales are powers of two in training and FP32 in the weight update and in SGLang",
        found[1],
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(set_to(("training.fp8_block_scaling_fp32_scales", True)),),
    )


@rule(
    "PP545",
    "checkpoint-scale-format-differs-from-trainer",
    "warning",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/transformers_utils/config.py:965-988",
        "THUDM/slime#1618",
        "PrimeIntellect-ai/prime-rl#3112",
    ),
    frameworks=RL_FRAMEWORKS,
    needs=("gpu",),
    hardware="compute capability 9.x (Hopper)",
)
def scale_format(ctx: Context) -> Found:
    """The checkpoint says that its scales are powers of two, and the trainer has FP32 scales.

    Why:
        ``scale_fmt: ue8m0`` in quantization_config makes vLLM ask for power-of-two scales (it
        only logs a warning where VLLM_USE_DEEP_GEMM_E8M0=0). On Hopper the frameworks train
        blocks with FP32 scales. The converters of slime and vime write the key on request
        without rounding a single scale, so it is wrong or it contradicts the trainer.

    Bad:
        software: {framework: vime}
        hardware: {gpu: h100}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128],
             scale_fmt: ue8m0}

    Good:
        software: {framework: vime}
        hardware: {gpu: h100}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.scale_fmt != "ue8m0" or not _hopper(ctx) or not _blocks(ctx):
        return None
    value, field = ctx.train_env.get(FP32_SCALES, ("1", "training.fp8_recipe"))
    if value != "1":
        return None
    return ctx.found(
        "the checkpoint declares power-of-two scales, the trainer computes with FP32 scales",
        f"{_CONFIG}.scale_fmt",
        field,
        fix=(
            set_to((f"{_CONFIG}.scale_fmt", None), also=" (convert without --scale-fmt)"),
            set_to(("training.fp8_block_scaling_fp32_scales", False), also=" on both sides"),
        ),
    )


@rule(
    "PP552",
    "power-of-two-update-needs-128-blocks",
    "error",
    stage="run",
    source=(_VIME, _SLIME, _SGLANG, "vllm@0.33.0:vllm/utils/deep_gemm.py:122-143"),
    frameworks=RL_FRAMEWORKS,
    needs=("gpu",),
    hardware="vime: 9.x and 10.x; slime and miles: 10.x",
)
def update_blocks(ctx: Context) -> Found:
    """The weight update rounds to power-of-two scales in 128x128 blocks only.

    Why:
        Where the engine's DeepGEMM takes power-of-two scales, the update quantizes with the
        engine's own helper, and that asserts ``weight_block_size == [128, 128]``. In SGLang this
        is Blackwell; in vLLM every GPU with DeepGEMM unless VLLM_USE_DEEP_GEMM_E8M0=0. The
        assertion fires in the first update, after the whole start.

    Bad:
        software: {framework: vime}
        hardware: {gpu: b200}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [64, 128]}

    Good:
        software: {framework: vime}
        hardware: {gpu: b200}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    config = ctx.plan.checkpoint.quantization_config
    wanted = formats()["fp8_block"].weight_block
    if config is None or config.quant_method != "fp8" or not config.weight_block_size:
        return None
    if wanted is None or tuple(config.weight_block_size) == wanted or not _rounds(ctx):
        return None
    blocks = "x".join(map(str, config.weight_block_size))
    return ctx.found(
        f"blocks of {blocks} in the checkpoint; the weight update asserts 128x128 on this GPU",
        f"{_CONFIG}.weight_block_size",
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(set_to((f"{_CONFIG}.weight_block_size", [*wanted]), also=" (convert it so)"),),
    )


def _rounds(ctx: Context) -> bool:
    """True if the update is sure to round scales to powers of two."""
    capability = ctx.target.compute_capability
    if capability is None or capability[0] not in (9, 10):
        return False
    if ctx.target.framework == "vime":
        asked = ctx.train_env.get(_SWITCH) or ctx.rollout_env.get(_SWITCH)
        off = ctx.rollout_env.get("VLLM_USE_DEEP_GEMM", ("1", ""))[0] == "0"
        if off or (asked is not None and asked[0] == "0"):
            return False
        return capability[0] == 10 or train_format(ctx) != "fp8_block"  # lowering may set it to 0
    env = ctx.rollout_env.get("SGLANG_ENABLE_JIT_DEEPGEMM")
    return capability[0] == 10 and (env is None or env[0].lower() in {"1", "true"})


@rule(
    "PP553",
    "scale-switch-differs-in-trainer",
    "warning",
    stage="run",
    source=(_VIME, "vllm@0.33.0:vllm/utils/deep_gemm.py:122-143"),
    frameworks=("vime",),
)
def switch_differs(ctx: Context) -> Found:
    """VLLM_USE_DEEP_GEMM_E8M0 has another value in the train actor than in the engine.

    Why:
        vime quantizes the weight update inside the train actor and asks vLLM's own switch, as
        that process sees it, whether scales are rounded to powers of two. A job variable reaches
        both; one in env.train_actor (--train-env-vars) changes the trainer alone, and the update
        then sends scales that the engine did not ask for.

    Bad:
        software: {framework: vime}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env:
          rollout_engine: {VLLM_USE_DEEP_GEMM_E8M0: "0"}
          train_actor: {VLLM_USE_DEEP_GEMM_E8M0: "1"}

    Good:
        software: {framework: vime}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM_E8M0: "0"}}
    """
    ours = look_up(ctx.plan.env.train_actor, "env.train_actor").get(_SWITCH)
    if ours is None or rollout_format(ctx.plan) != "fp8_block":
        return None
    engine = ctx.rollout_env.get(_SWITCH)
    theirs = engine[0] if engine is not None else "1"
    if ours == theirs:
        return None
    field = f"env.train_actor.{_SWITCH}"
    return ctx.found(
        f"{_SWITCH} is {ours} in the train actor, which quantizes the update, and {theirs} in the "
        "engine",
        field,
        *((engine[1],) if engine is not None else ()),
        fix=(set_to((field, None)),),
    )


_QWEN35 = frozenset({"qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"})


@rule(
    "PP556",
    "qwen35-scales-ruined-by-deep-gemm",
    "warning",
    stage="run",
    source=("vllm@0.18.1:vllm/utils/deep_gemm.py:26-29", "vllm-project/vllm#38083"),
    needs=("gpu", "vllm"),
    hardware="compute capability 10.x",
)
def qwen35(ctx: Context) -> Found:
    """Before vLLM 0.18.1 DeepGEMM ruins block-FP8 Qwen3.5 on Blackwell.

    Why:
        On Blackwell DeepGEMM takes power-of-two scales, so FP32 block scales are rounded when
        they are loaded. Qwen3.5 does not survive that: its answers degrade without an error.
        vLLM leaves DeepGEMM out for these models by itself since 0.18.1.

    Bad:
        software: {framework: vllm, vllm: 0.18.0}
        hardware: {gpu: b200}
        model: {hf_model_type: qwen3_5_moe}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: vllm, vllm: 0.18.1}
        hardware: {gpu: b200}
        model: {hf_model_type: qwen3_5_moe}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    found, capability = ctx.target.package("vllm"), ctx.target.compute_capability
    if found is None or capability is None or capability[0] != 10:
        return None
    if ctx.target.framework in SGLANG_FRAMEWORKS or rollout_format(ctx.plan) != "fp8_block":
        return None
    row, config = (
        engine_update("qwen3_5_without_deep_gemm"),
        ctx.plan.checkpoint.quantization_config,
    )
    if ctx.plan.model.hf_model_type not in _QWEN35 or found in row.versions:
        return None
    if config is not None and config.scale_fmt == "ue8m0":
        return None  # powers of two already
    if ctx.rollout_env.get("VLLM_USE_DEEP_GEMM", ("1", ""))[0] == "0":
        return None
    return ctx.found(
        f"vLLM {found} rounds the block scales of Qwen3.5 to powers of two on this GPU",
        "software.vllm",
        "model.hf_model_type",
        fix=(
            set_to(("software.vllm", row.versions.since), also=" or later"),
            set_to(("env.rollout_engine.VLLM_USE_DEEP_GEMM", "0")),
        ),
    )


RULES: tuple[Rule, ...] = (trainer_alone, scale_format, update_blocks, switch_differs, qwen35)

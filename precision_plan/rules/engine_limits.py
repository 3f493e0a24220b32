"""PP178, PP213 to PP215 and PP217: what older releases of vLLM cannot do, or do badly."""

from __future__ import annotations

from precision_plan.facts.versions import VersionRange
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import CONFIG, FLAG, engine_dtype, serves

_LAYERS = "vllm/model_executor/layers"


@rule(
    "PP213",
    "block-fp8-without-weight-only-path",
    "error",
    stage="worker",
    source=(
        f"vllm@0.8.5:{_LAYERS}/quantization/fp8.py:176-185",
        "vllm-project/vllm#17581",
        "vllm-project/vllm#18182",
    ),
    versions={"vllm": VersionRange(None, "0.8.5")},
    needs=("gpu", "vllm"),
    hardware="below compute capability 8.9",
)
def block_fp8_on_ampere(ctx: Context) -> Found:
    """vLLM up to 0.8.5 has no way to serve block FP8 below compute capability 8.9.

    Why:
        Per-tensor FP8 was unpacked by Marlin there; a checkpoint with weight_block_size switched
        Marlin off and went to a Triton kernel, which cannot even name the type on such a GPU. The
        "FP8 works on Ampere" of the documentation was about the other kind. Later versions unpack
        blocks, too.

    Bad:
        hardware: {gpu: a100}
        software: {framework: vllm, vllm: 0.8.5}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.8.5}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    config, capability = ctx.plan.checkpoint.quantization_config, ctx.target.compute_capability
    if config is None or not config.weight_block_size or config.quant_method != "fp8":
        return None
    if capability is None or capability >= (8, 9) or not serves(ctx):
        return None
    return ctx.found(
        f"vLLM {ctx.target.package('vllm')} serves no block FP8 on compute capability "
        f"{capability[0]}.{capability[1]}",
        f"{CONFIG}.weight_block_size",
        "software.vllm",
        fix=(
            set_to(("software.vllm", "0.33.0"), also=" (weight-only)"),
            Fix("serve a BF16 or an INT4 checkpoint on this GPU"),
        ),
    )


@rule(
    "PP214",
    "plain-awq-computes-in-float16",
    "error",
    stage="engine_config",
    source=(
        f"vllm@0.23.0:{_LAYERS}/quantization/awq.py:71-72",
        f"vllm@0.23.0:{_LAYERS}/quantization/awq_marlin.py:251-279,328-348",
        f"vllm@0.23.0:{_LAYERS}/quantization/utils/marlin_utils.py:31,45-83",
        "vllm-project/vllm#1592",
        "vllm-project/vllm#28857",
    ),
    versions={"vllm": VersionRange(None, "0.23")},
    needs=("vllm",),
)
def plain_awq(ctx: Context) -> Found:
    """The plain AWQ kernels compute in float16 only.

    Why:
        Up to vLLM 0.23, `--quantization awq` forces those kernels although Marlin, which also
        computes in bfloat16, could load the checkpoint. In another dtype the engine raises
        ValueError; a BF16 model forced to float16 may overflow instead. Without the flag, and as
        `awq_marlin`, the checkpoint is served by Marlin, if its groups are of 32, 64 or 128; any
        other goes to the plain kernels.

    Bad:
        software: {framework: vllm, vllm: 0.12.0}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 4, group_size: 128, zero_point: true}
        rollout: {quantization: awq, dtype: bfloat16}

    Good:
        software: {framework: vllm, vllm: 0.12.0}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 4, group_size: 128, zero_point: true}
        rollout: {dtype: bfloat16}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method != "awq" or not serves(ctx):
        return None
    asked, marlin = ctx.plan.rollout.quantization == "awq", quant_methods()["awq_marlin"]
    fits = config.group_size in {None, *marlin.groups} and config.bits in {None, *marlin.bits}
    dtype, place = engine_dtype(ctx)
    if dtype in {None, "float16"} or (fits and not asked):
        return None
    newer = set_to(("software.vllm", "0.24.0"))
    return ctx.found(
        f"the plain AWQ kernels compute in float16, and the engine's dtype is {dtype}",
        f"{CONFIG}.group_size" if not fits else FLAG,
        place,
        "software.vllm",
        fix=(set_to((FLAG, "awq_marlin")), set_to((FLAG, None))) if fits else (newer,),
    )


_FLASHINFER = "VLLM_USE_FLASHINFER_MOE_FP8"


@rule(
    "PP215",
    "expert-kernel-wants-bf16-router",
    "error",
    stage="worker",
    source=(
        "vllm-project/vllm#33543",
        "vllm-project/vllm#33613",
        "flashinfer-ai/flashinfer#2469",
        f"vllm@0.15.0:{_LAYERS}/fused_moe/oracle/fp8.py:147-245",
    ),
    versions={"vllm": VersionRange("0.15.0", "0.15.0")},
    needs=("gpu", "vllm"),
    hardware="compute capability 10.x",
)
def fp32_router(ctx: Context) -> Found:
    """vLLM 0.15.0 chooses an FP8 expert kernel that refuses the model's FP32 router.

    Why:
        On 10.x the TensorRT-LLM kernel of FlashInfer is first on the list for block FP8 experts.
        It takes FP32 router logits with DeepSeek's routing only; MiniMax M2 keeps its router in
        FP32 and routes otherwise, so the first forward pass ends in an assertion. 0.15.1 leaves
        the kernel out for such a model.

    Bad:
        hardware: {gpu: gb200}
        software: {framework: vllm, vllm: 0.15.0}
        model: {num_experts: 256, hf_model_type: minimax_m2}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        hardware: {gpu: gb200}
        software: {framework: vllm, vllm: 0.15.0}
        model: {num_experts: 256, hf_model_type: minimax_m2}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {all: {VLLM_USE_FLASHINFER_MOE_FP8: "0"}}
    """
    config, capability = ctx.plan.checkpoint.quantization_config, ctx.target.compute_capability
    if config is None or not config.weight_block_size or not serves(ctx):
        return None
    if capability is None or capability[0] != 10:
        return None
    if ctx.plan.model.hf_model_type != "minimax_m2":
        return None
    if ctx.rollout_env.get(_FLASHINFER, ("1", ""))[0].strip() == "0":
        return None
    return ctx.found(
        "the FP8 expert kernel of this GPU takes BF16 router logits, and this model's are FP32",
        f"{CONFIG}.weight_block_size",
        "model.hf_model_type",
        "software.vllm",
        fix=(
            set_to((f"env.all.{_FLASHINFER}", "0")),
            set_to(("software.vllm", "0.15.1"), also=" or later"),
        ),
    )


@rule(
    "PP217",
    "mxfp4-before-its-release",
    "error",
    stage="engine_config",
    source=(
        "vllm-project/vllm#22422",
        f"vllm@0.10.1:{_LAYERS}/quantization/mxfp4.py:75-76",
    ),
    versions={"vllm": VersionRange(None, "0.10.0")},
    needs=("vllm",),
)
def mxfp4_too_early(ctx: Context) -> Found:
    """vLLM up to 0.10.0 has no MXFP4 method.

    Why:
        The pre-release in which it came wanted compute capability 10.0; release 0.10.1 reads MXFP4
        from 8.0 on, weight-only below 10.0.

    Bad:
        software: {framework: vllm, vllm: 0.10.0}
        checkpoint: {quantization_config: {quant_method: mxfp4}}

    Good:
        software: {framework: vllm, vllm: 0.10.1}
        checkpoint: {quantization_config: {quant_method: mxfp4}}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method != "mxfp4" or not serves(ctx):
        return None
    return ctx.found(
        f"vLLM {ctx.target.package('vllm')} has no MXFP4 method",
        f"{CONFIG}.quant_method",
        "software.vllm",
        fix=(
            set_to(("software.vllm", "0.10.1"), also=" or later"),
            Fix("serve an INT4 checkpoint (GPTQ or AWQ)"),
        ),
    )


@rule(
    "PP178",
    "recurrent-state-defaults-to-float16",
    "warning",
    stage="run",
    source=(
        "vllm-project/vllm#39032",
        "vllm@0.19.1:vllm/model_executor/models/config.py",
        "vllm@0.20.0:vllm/model_executor/models/config.py",
    ),
    versions={"vllm": VersionRange(None, "0.19")},
    needs=("vllm",),
)
def nemotron_state(ctx: Context) -> Found:
    """vLLM up to 0.19 keeps Nemotron-H's recurrent state in float16 unless somebody says better.

    Why:
        With `auto` these versions take mamba_ssm_cache_dtype of config.json, and float16 if the
        key is not there. Rounding errors add up along the sequence; from 0.20 on the default is
        float32.

    Bad:
        software: {framework: vllm, vllm: 0.19.0}
        files: {config: {model_type: nemotron_h, torch_dtype: bfloat16}}

    Good:
        software: {framework: vllm, vllm: 0.19.0}
        rollout: {mamba_ssm_cache_dtype: float32}
        files: {config: {model_type: nemotron_h, torch_dtype: bfloat16}}
    """
    folder, field = ctx.checkpoint, "rollout.mamba_ssm_cache_dtype"
    if folder is None or folder.text_config.get("model_type") != "nemotron_h" or not serves(ctx):
        return None
    if "mamba_ssm_cache_dtype" in folder.text_config:
        return None
    if ctx.plan.rollout.mamba_ssm_cache_dtype not in {None, "auto"}:
        return None
    return ctx.found(
        "the recurrent state would be kept in float16",
        field,
        "software.vllm",
        Because("config.json does not set mamba_ssm_cache_dtype"),
        fix=(set_to((field, "float32")),),
    )


RULES: tuple[Rule, ...] = (
    nemotron_state,
    block_fp8_on_ampere,
    plain_awq,
    fp32_router,
    mxfp4_too_early,
)

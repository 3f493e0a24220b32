"""PP405 to PP412: vLLM's quantization method and dtype against the GPU and the model."""

from __future__ import annotations

from precision_plan.facts.vllm import quant_names
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import rollout_format
from precision_plan.rules.vllm_engine import (
    CONFIG,
    FLAG,
    by_engine,
    checkpoint_method,
    engine_dtype,
    method,
    refuses_fp16,
    serves,
)

_MODEL = "vllm@0.33.0:vllm/config/model.py"
_VLLM = "vllm@0.33.0:vllm/config/vllm.py"
_KERNELS = "vllm@0.33.0:vllm/model_executor/kernels/linear/__init__.py"


@rule(
    "PP405",
    "vllm-method-needs-newer-gpu",
    "error",
    stage="engine_config",
    source=(f"{_VLLM}:926-936", "vllm-project/vllm#22422"),
    needs=("gpu",),
    hardware="by method and vLLM version",
)
@by_engine("PP405")
def needs_newer_gpu(ctx: Context) -> Found:
    """vLLM's quantization method needs a higher compute capability than the declared GPU has.

    Why:
        Each method has a least capability, and it changes with the version: MXFP8 needed 10.0
        in 0.17 and 8.0 later, because Marlin came to read its weights; FP8 went from 8.0 to
        7.5. This is the serving side; what training needs is another rule.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.17.1}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
    """
    capability = ctx.target.compute_capability
    if capability is None or not serves(ctx):
        return None
    found, field = method(ctx)
    least = found.min_capability(ctx.target.package("vllm")) if found else None
    if found is None or least is None or capability >= least:
        return None
    return ctx.found(
        f"vLLM's {found.name} needs compute capability {least[0]}.{least[1]}; the target has "
        f"{capability[0]}.{capability[1]}",
        field,
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        "software.vllm",
        fix=(Fix("serve a BF16 or an INT4 checkpoint on this GPU"),),
    )


@rule(
    "PP406",
    "vllm-method-not-on-rocm",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/platforms/rocm.py:668-692",),
    hardware="ROCm",
)
@by_engine("PP406")
def not_on_rocm(ctx: Context) -> Found:
    """vLLM's ROCm platform does not take this quantization method.

    Why:
        The platform keeps a list. Marlin's variants, humming, experts_int8, moe_wna16 and the
        NVFP4 and INT8 online shorthands are never on it; ModelOpt and MXFP8 are from 0.22 on.

    Bad:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: nvfp4_per_token}

    Good:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: fp8_per_block}
    """
    if ctx.target.platform != "rocm" or not serves(ctx):
        return None
    flag = ctx.plan.rollout.quantization
    name = checkpoint_method(ctx) or flag
    row = quant_names().get(name) if name else None
    if row is None:
        return None
    have = ctx.target.package("vllm")
    if row.rocm is not None and (have is None or have in row.rocm):
        return None
    field = FLAG if name == flag else f"{CONFIG}.quant_method"
    when = "" if row.rocm is None else f" (it does in {row.rocm})"
    return ctx.found(
        f"vLLM does not take {name} on ROCm{when}",
        field,
        "hardware.gpu" if ctx.target.gpu else "hardware.platform",
        fix=(Fix("serve FP8 (quant_method fp8), compressed-tensors or BF16"),),
    )


@rule(
    "PP407",
    "vllm-method-refuses-dtype",
    "error",
    stage="engine_config",
    source=(f"{_VLLM}:937-943", "vllm-project/vllm#28857"),
)
@by_engine("PP407")
def refuses_dtype(ctx: Context) -> Found:
    """The quantization method does not compute in the engine's dtype.

    Why:
        MXFP8 and MXFP4 run with bfloat16 activations only, FP8 and NVFP4 with bfloat16 or
        float16; float32 works with compressed-tensors and torchao alone. vLLM raises
        ValueError.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {dtype: float16}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {dtype: bfloat16}
    """
    if not serves(ctx):
        return None
    found, field = method(ctx)
    if found is None:
        return None
    dtype, place = engine_dtype(ctx)
    if dtype is None or dtype in found.act_dtypes:
        return None
    return ctx.found(
        f"vLLM's {found.name} does not compute in {dtype} (only {', '.join(found.act_dtypes)})",
        place,
        field,
        fix=tuple(
            set_to(("rollout.dtype", one))
            for one in found.act_dtypes
            if one in {"bfloat16", "float16"}
        ),
    )


@rule(
    "PP408",
    "model-family-refuses-float16",
    "error",
    stage="engine_config",
    source=(f"{_MODEL}:2398-2418", "unslothai/unsloth#5074"),
)
@by_engine("PP408")
def family_refuses_fp16(ctx: Context) -> Found:
    """Gemma 2, Gemma 3 and GLM-4 do not run in float16.

    Why:
        Their activations exceed 65504. vLLM keeps a list and raises ValueError.

    Bad:
        software: {framework: vllm}
        model: {hf_architecture: Gemma3ForCausalLM}
        rollout: {dtype: float16}

    Good:
        software: {framework: vllm}
        model: {hf_architecture: Gemma3ForCausalLM}
        rollout: {dtype: bfloat16}
    """
    if not refuses_fp16(ctx) or not serves(ctx):
        return None
    dtype, field = engine_dtype(ctx)
    if dtype != "float16":
        return None
    name = "model.hf_model_type" if ctx.plan.model.hf_model_type else "model.hf_architecture"
    return ctx.found(
        f"{ctx.plan.get(name)} does not run in float16",
        field,
        name,
        fix=(set_to(("rollout.dtype", "bfloat16")),),
    )


@rule(
    "PP409",
    "vllm-bfloat16-needs-sm80",
    "error",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/platforms/cuda.py:638-656",
        "vllm@0.33.0:vllm/v1/worker/gpu_worker.py:498",
    ),
    needs=("gpu",),
    hardware="compute capability below 8.0",
)
def bf16_needs_sm80(ctx: Context) -> Found:
    """bfloat16 is asked for on a GPU that lacks it.

    Why:
        The configuration is accepted; each worker then refuses to start. ``auto`` would have
        taken float16 there.

    Bad:
        hardware: {compute_capability: "7.5"}
        software: {framework: vllm}
        rollout: {dtype: bfloat16}

    Good:
        hardware: {compute_capability: "7.5"}
        software: {framework: vllm}
        rollout: {dtype: auto}
    """
    capability = ctx.target.compute_capability
    if capability is None or capability >= (8, 0) or ctx.plan.rollout.dtype != "bfloat16":
        return None
    if not serves(ctx):
        return None
    return ctx.found(
        f"bfloat16 on compute capability {capability[0]}.{capability[1]}",
        "rollout.dtype",
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(set_to(("rollout.dtype", "float16")), set_to(("rollout.dtype", "auto"))),
    )


@rule(
    "PP411",
    "vllm-serves-weight-only",
    "warning",
    stage="run",
    source=(f"{_KERNELS}:494-613", "vllm-project/vllm#58241", "vllm-project/vllm#17581"),
    needs=("gpu",),
    hardware="below the method's native compute capability",
)
def weight_only(ctx: Context) -> Found:
    """vLLM would serve this checkpoint weight-only on the declared GPU.

    Why:
        Where the GPU lacks the matrix units, vLLM unpacks the weights and computes in BF16
        (Marlin or Humming kernels): FP8 below 8.9, block FP8 below 9.0, MXFP8 and NVFP4 below
        10.0. It runs, with other numbers than W8A8 or W4A4 and without their speed. A
        checkpoint that is weight-only by design (INT4, W4A16_NVFP4) is as it should be.

    Bad:
        hardware: {gpu: l40s}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    capability = ctx.target.compute_capability
    if capability is None or capability >= (10, 0) or not serves(ctx):
        return None
    found, field = method(ctx)
    if found is None or found.native_cc is None:
        return None
    config = ctx.plan.checkpoint.quantization_config
    native = found.native_cc
    if found.name == "fp8" and config is not None and config.weight_block_size:
        native = max(native, (9, 0))
    if capability >= native or (config is not None and _weight_only_by_design(config.quant_algo)):
        return None
    least = found.min_capability(ctx.target.package("vllm"))
    if least is None or capability < least:
        return None
    return ctx.found(
        f"{found.name} is served weight-only on compute capability "
        f"{capability[0]}.{capability[1]}: activations stay in 16 bits",
        field,
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        Because(f"quantized activations need {native[0]}.{native[1]}"),
        fix=(Fix("keep it if weight-only is meant, or serve on a newer GPU"),),
    )


def _weight_only_by_design(algo: str | None) -> bool:
    return (algo or "").upper().startswith("W4A16")


@rule(
    "PP412",
    "nvfp4-weight-only-in-float16",
    "warning",
    stage="run",
    source=("vllm-project/vllm#33461", "vllm-project/vllm#33560", "vllm-project/vllm#33972"),
    needs=("gpu",),
    hardware="below compute capability 10.0",
)
def nvfp4_in_float16(ctx: Context) -> Found:
    """NVFP4 weights are unpacked and computed in float16.

    Why:
        Below compute capability 10.0 NVFP4 is served weight-only, with activations in the
        engine's dtype. Such checkpoints were calibrated in BF16; in float16, whose largest
        number is 65504, public reports have activations turn into NaN.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {dtype: float16}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {dtype: bfloat16}
    """
    capability = ctx.target.compute_capability
    if capability is None or capability >= (10, 0) or not serves(ctx):
        return None
    if rollout_format(ctx.plan) != "nvfp4":
        return None
    dtype, field = engine_dtype(ctx)
    if dtype != "float16":
        return None
    fix = ("training.bf16", True) if field == "training.fp16" else ("rollout.dtype", "bfloat16")
    return ctx.found(
        f"NVFP4 weights computed in float16 on compute capability {capability[0]}.{capability[1]}",
        field,
        f"{CONFIG}.quant_method"
        if checkpoint_method(ctx) is not None
        else "checkpoint.hf_weight_format",
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(set_to(fix),),
    )


RULES: tuple[Rule, ...] = (
    needs_newer_gpu,
    not_on_rocm,
    refuses_dtype,
    family_refuses_fp16,
    bf16_needs_sm80,
    weight_only,
    nvfp4_in_float16,
)

"""PP706 to PP709: scale tensors, groups and bits of the rollout checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.checkpoint_tensors import checkpoint_tensors
from precision_plan.facts.formats import formats
from precision_plan.plan import Because, Fix
from precision_plan.plan.serving import QuantizationConfig
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import config_format
from precision_plan.rules.vllm_engine import CONFIG, checkpoint_method, refused_config, serves

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"


@rule(
    "PP706",
    "scale-tensor-name",
    "error",
    stage="run",
    source=(
        f"{_QUANT}/modelopt.py:1307-1414",
        f"{_QUANT}/fp8.py:530-667",
        "vllm-project/vllm#43564",
        "radixark/miles@31f1ca96:tools/convert_hf_to_mxfp8.py:140-330",
    ),
)
def scale_tensor(ctx: Context) -> Found:
    """The engine looks for the scale tensor under another name.

    Why:
        vLLM's MXFP8 layers own weight_scale (uint8, UE8M0), its FP8 block layers
        weight_scale_inv (float32), compressed-tensors always weight_scale. A tensor under
        another name matches nothing: quantized models skip the missing-weight check, the
        parameter keeps whatever was in memory, and the output is garbage without a message.
        miles writes MXFP8 scales as weight_scale_inv, for SGLang.

    Bad:
        software: {framework: vime}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: MXFP8, scale_tensor: weight_scale_inv}

    Good:
        software: {framework: vime}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: MXFP8, scale_tensor: weight_scale}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.scale_tensor is None:
        return None
    wanted = _scale_name(config, "vllm" if serves(ctx) else "sglang")
    if wanted is None or wanted == config.scale_tensor:
        return None
    return ctx.found(
        f"the scale tensor of {config.quant_method} is {wanted}, not {config.scale_tensor}",
        f"{CONFIG}.scale_tensor",
        f"{CONFIG}.quant_method",
        fix=(set_to((f"{CONFIG}.scale_tensor", wanted), also=" (convert the checkpoint so)"),),
    )


def _scale_name(config: QuantizationConfig, engine: str) -> str | None:
    if config.quant_method == "compressed-tensors":
        return "weight_scale"
    for tensor in checkpoint_tensors(config_format(config) or ""):
        if tensor.name.startswith("weight_scale") and engine in (tensor.engines or (engine,)):
            return tensor.name
    return None


@rule(
    "PP707",
    "group-size-not-of-the-format",
    "error",
    stage="build",
    source=(
        f"{_QUANT}/modelopt.py:729-837",
        f"{_QUANT}/utils/marlin_utils.py:32-37",
        "vllm-project/llm-compressor#1489",
    ),
)
def group_size(ctx: Context) -> Found:
    """group_size is not one that the format or its kernels have.

    Why:
        NVFP4 scales 16 values and MXFP8 32, by definition; vLLM accepts another number and its
        kernels compute with the right one all the same, on wrong scales. INT4 kernels (Marlin)
        take groups of 32, 64 and 128.

    Bad:
        checkpoint:
          quantization_config: {quant_method: modelopt, quant_algo: NVFP4, group_size: 32}

    Good:
        checkpoint:
          quantization_config: {quant_method: modelopt, quant_algo: NVFP4, group_size: 16}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.group_size is None:
        return None
    described = config_format(config)
    fits: tuple[int, ...] = ()
    block = formats()[described].weight_block if described in {"nvfp4", "mxfp8"} else None
    if block is not None:
        fits = (block[1],)
    elif described == "int4" or config.quant_method in {"gptq", "auto_gptq"}:
        fits = (32, 64, 128)
    if not fits or config.group_size in fits:
        return None
    return ctx.found(
        f"group_size = {config.group_size}; {described or config.quant_method} has "
        f"{', '.join(map(str, fits))}",
        f"{CONFIG}.group_size",
        f"{CONFIG}.quant_method",
        fix=tuple(set_to((f"{CONFIG}.group_size", size)) for size in fits),
    )


@rule(
    "PP708",
    "activation-order-refused",
    "error",
    stage="build",
    source=(f"{_QUANT}/compressed_tensors/schemes/compressed_tensors_wNa16.py:41-243",),
    needs=("vllm",),
)
def activation_order(ctx: Context) -> Found:
    """vLLM does not load this activation order.

    Why:
        actorder ``group`` and ``dynamic`` permute columns while they are computed; vLLM 0.33
        raises ValueError for them and loads null, ``static`` and ``weight``.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128,
             actorder: group}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128,
             actorder: static}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.actorder not in {"group", "dynamic", True} or not serves(ctx):
        return None
    if not ctx.at_least("vllm", "0.33"):
        return None
    return ctx.found(
        f"vLLM {ctx.target.package('vllm')} does not load actorder = {config.actorder}",
        f"{CONFIG}.actorder",
        "software.vllm",
        fix=(Fix("quantize without activation order, or with actorder static"),),
    )


@rule(
    "PP709",
    "bits-not-of-the-method",
    "error",
    stage="engine_config",
    source=(f"{_QUANT}/auto_gptq.py:95-211", f"{_QUANT}/auto_awq.py:174-260"),
)
def bits(ctx: Context) -> Iterator[Finding]:
    """AWQ has 4 bits, GPTQ 4 or 8 and symmetric groups.

    Why:
        vLLM's kernels cover these and raise ValueError for the rest.

    Bad:
        software: {framework: vllm}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 8, group_size: 128, zero_point: true}

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config: {quant_method: awq, bits: 4, group_size: 128, zero_point: true}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or not serves(ctx):
        return
    if ctx.engine is not None and not refused_config(ctx):  # another config replaces this one
        return
    name = checkpoint_method(ctx)
    allowed = {"auto_awq": (4,), "auto_gptq": (4, 8)}.get(name or "")
    if allowed is None:
        return
    if config.bits is not None and config.bits not in allowed:
        yield ctx.found(
            f"{config.quant_method} with {config.bits} bits; vLLM has "
            f"{' and '.join(map(str, allowed))}",
            f"{CONFIG}.bits",
            f"{CONFIG}.quant_method",
            fix=(Fix(f"quantize to {' or '.join(map(str, allowed))} bits"),),
        )
    if name == "auto_gptq" and config.symmetric is False:
        yield ctx.found(
            "GPTQ with asymmetric groups",
            f"{CONFIG}.symmetric",
            f"{CONFIG}.quant_method",
            Because("sym must be true"),
            fix=(Fix("quantize with symmetric groups"),),
        )


RULES: tuple[Rule, ...] = (
    scale_tensor,
    group_size,
    activation_order,
    bits,
)

"""Rows of the rollout: weight sync, weights, activations, KV cache and recurrent state."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.formats import formats
from precision_plan.facts.gpus import gpus
from precision_plan.facts.vllm import kv_dtypes, state_dtype_of
from precision_plan.facts.vllm_quant import quant_methods, templates
from precision_plan.facts.weight_sync import sync_quantizer
from precision_plan.lower.checkpoint import checkpoint, group_size, weight_format
from precision_plan.lower.context import Context
from precision_plan.lower.roles_common import absent, row, unknown
from precision_plan.lower.roles_training import base
from precision_plan.plan import Role

_NAMES = ("rollout weights", "rollout activations", "KV cache", "recurrent state", "conv state")

_SYNC_FORMAT = {"bf16": "bf16", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "int4": "int4"}

_ONLINE = {
    "fp8": "fp8_per_tensor",
    "fp8_per_tensor": "fp8_per_tensor",
    "fp8_per_block": "fp8_block",
    "fp8_per_channel": "fp8_per_channel",
    "mxfp8": "mxfp8",
    "int8_per_channel_weight_only": "int8",
    "nvfp4_per_token": "nvfp4",
}
"""Methods that vLLM applies itself to an unquantized checkpoint."""

_VLLM_DTYPE = {
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float": "fp32",
    "float32": "fp32",
}


def rollout_roles(context: Context) -> Iterator[Role]:
    """The engine's rows; ``none`` where the plan has no engine."""
    yield _weight_sync(context)
    if not serves(context):
        yield from (absent(name, "no rollout engine") for name in _NAMES)
    else:
        yield _weights(context)
        yield _activations(context)
        yield _kv_cache(context)
        yield from _states(context)


def serves(context: Context) -> bool:
    """True if an engine generates: an RL framework, vLLM, or Megatron's own inference."""
    return context.is_rl or not context.trains or context.infers


def _weight_sync(context: Context) -> Role:
    """The trainer's weights go through BF16 and take the format of the checkpoint's config."""
    name = "weight sync"
    if not context.is_rl:
        return absent(name, "no rollout engine to update")
    config = checkpoint(context).quantization_config
    if config is None:
        if weight_format(context) is None:
            return unknown(name, "checkpoint.quantization_config is not declared")
        return row(name, base(context), "the checkpoint is not quantized")
    method, algorithm = str(config.get("quant_method")), config.get("quant_algo")
    branch = sync_quantizer(context.framework or "", method, algorithm)
    if branch is None or branch.emits == "nothing":
        return unknown(name, f"{context.framework} has no quantizer for {method}")
    origin = f"quant_method {method} of the checkpoint"
    if branch.emits == "fp8":
        return _sized(context, name, weight_format(context) or "fp8_block", origin)
    return _sized(context, name, _SYNC_FORMAT[branch.emits], origin)


def _sized(context: Context, name: str, format: str, origin: str) -> Role:
    """A weight row; INT4 groups and FP8 blocks take the size that the checkpoint declares."""
    known = formats()[format]
    size = known.bytes_per_element
    if format == "int4":
        group = group_size(context)
        size_or_none = known.bytes_with_block((1, group)) if group else None
        return Role(name, f"int4 (groups of {group or 'unknown size'})", size_or_none, origin)
    blocks = context.get("checkpoint.quantization_config.weight_block_size")
    if format == "fp8_block" and blocks is not None and len(blocks) == 2:
        size = known.bytes_with_block((blocks[0], blocks[1]))
    return Role(name, format, size, origin)


# Weights and activations ----------------------------------------------------------------------
def rollout_format(context: Context) -> tuple[str, str] | None:
    """Weight format inside the engine and what decides it; ``None`` if that is not declared."""
    if context.infers:
        return base(context), "inference.dtype"
    stored = weight_format(context)
    method = context.get("rollout.quantization")
    if stored in ("bf16", "fp16", "fp32", None) and method in _ONLINE and stored is not None:
        return _ONLINE[method], "rollout.quantization (quantized on loading)"
    return (stored, "checkpoint.hf_weight_format") if stored is not None else None


def _weights(context: Context) -> Role:
    name, found = "rollout weights", rollout_format(context)
    if found is None:
        return unknown(name, "checkpoint.hf_weight_format is not declared")
    for field in ("inference.quantization", "inference.export_quant_cfg"):
        quantization = context.get(field)
        if quantization is not None:
            origin = f"{field}: calibration simulates it, the storage stays"
            return row(name, found[0], origin, note=f"(as {quantization})")
    return _sized(context, name, *found)


def model_dtype(context: Context) -> tuple[str, str] | None:
    """Format of what stays unquantized in the engine."""
    declared = _VLLM_DTYPE.get(context.get("rollout.dtype") or "")
    if declared is not None and context.framework != "vime":
        return declared, "rollout.dtype"
    if context.is_rl and context.argument("fp16"):
        return "fp16", "training.fp16 (the framework passes it on)"
    if context.infers:
        return base(context), "inference.dtype"
    stored, origin = _checkpoint_dtype(context)
    if stored == "fp32":
        return "bf16", "vLLM's auto dtype of an FP32 checkpoint"
    return (stored, origin) if stored is not None else None


def _checkpoint_dtype(context: Context) -> tuple[str | None, str]:
    """``torch_dtype`` of the checkpoint, declared or implied by its weight format."""
    declared = _VLLM_DTYPE.get(context.get("model.hf_torch_dtype") or "")
    if declared is not None:
        return declared, "model.hf_torch_dtype"
    weights = weight_format(context)
    if weights in ("bf16", "fp16", "fp32"):
        return weights, "the checkpoint's dtype"
    return ("bf16" if weights else None), "converters keep other layers in BF16"


def _activations(context: Context) -> Role:
    name = "rollout activations"
    found, dense = rollout_format(context), model_dtype(context)
    if found is None or dense is None:
        return unknown(name, "checkpoint.hf_weight_format is not declared")
    format, origin = found
    if format == "int8":
        return row(name, "int8", origin)
    template = templates().get(format)
    native_cc = quant_methods()[template.method].native_cc if template is not None else None
    if native_cc is None:
        return row(name, *dense)
    native = _multiplies_in(context, format, native_cc)
    if native is None:
        return unknown(name, "the GPU is not declared")
    if not native:
        return row(name, dense[0], "weight-only kernels on this GPU")
    return row(name, format, origin, activation=True)


def _multiplies_in(context: Context, format: str, native_cc: tuple[int, int]) -> bool | None:
    """Whether the declared GPU has matrix units for ``format``; ``None`` if it is unknown."""
    capability = context.target.compute_capability
    if capability is not None:
        return capability >= native_cc
    gpu = gpus().get(context.target.gpu or "")
    if gpu is None or gpu.platform != "rocm":
        return None
    if format in ("mxfp8", "nvfp4"):
        return format in (gpu.native or ())
    return gpu.fp8_encoding != "none"


# Caches ---------------------------------------------------------------------------------------
def _kv_cache(context: Context) -> Role:
    name, declared = "KV cache", context.get("rollout.kv_cache_dtype")
    if context.framework in ("slime", "miles"):
        return unknown(name, f"{context.framework} rolls out with SGLang")
    if declared not in (None, "auto"):
        return _declared_cache(name, declared)
    if context.infers:
        return _megatron_cache(context, name)
    scheme = context.get("checkpoint.quantization_config.kv_cache_quant_algo")
    if scheme in ("FP8", "NVFP4"):
        format = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}[scheme]
        return row(name, format, "checkpoint.quantization_config.kv_cache_quant_algo")
    dense = model_dtype(context)
    if dense is None:
        return unknown(name, "auto: the model's dtype is not declared")
    return row(name, dense[0], "rollout.kv_cache_dtype auto: the model's dtype")


def _declared_cache(name: str, declared: str) -> Role:
    """Scales are counted only where the format has its own; other names tell their bits."""
    known, origin = kv_dtypes().get(declared), "rollout.kv_cache_dtype"
    if known is None:
        return Role(name, declared, None, origin)
    if known.stored == "nvfp4" or known.stored in ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2"):
        note = "" if declared in _VLLM_DTYPE or declared == known.stored else f"({declared})"
        return row(name, known.stored, origin, note=note)
    return Role(name, declared, known.bits / 8 if known.bits else None, origin)


def _megatron_cache(context: Context, name: str) -> Role:
    """Megatron's own engine caches in the model's dtype; ModelOpt may simulate a smaller one."""
    format, origin = model_dtype(context) or (base(context), "inference.dtype")
    simulated = context.get("inference.export_kv_cache_quant")
    if simulated in (None, False, "none"):
        return row(name, format, origin)
    note = f"(as {'fp8' if simulated is True else simulated})"
    return row(name, format, "inference.export_kv_cache_quant", note=note)


def _states(context: Context) -> Iterator[Role]:
    """vLLM keeps recurrent and convolution state apart from the KV cache, never in FP8."""
    if not context.get("model.linear_attention_layers"):
        yield absent("recurrent state", "no recurrent layers")
        yield absent("conv state", "no recurrent layers")
        return
    yield _recurrent(context)
    yield _convolution(context, "conv state")


def _recurrent(context: Context) -> Role:
    """An explicit dtype, else the family's rule, else the convolution state's."""
    name, field = "recurrent state", "rollout.mamba_ssm_cache_dtype"
    format = _VLLM_DTYPE.get(context.get(field) or "")
    if format is not None:
        return row(name, format, field)
    architecture = context.get("model.hf_model_type") or context.get("model.hf_architecture")
    family = state_dtype_of(architecture)
    if architecture is None:
        return unknown(name, "auto: model.hf_architecture is not declared")
    if family is None:
        return _convolution(context, name)
    if family.hf_key is not None:
        declared = _VLLM_DTYPE.get(context.get("model.hf_mamba_ssm_dtype") or "")
        if declared is None:
            return unknown(name, f"{family.hf_key} of the checkpoint is not declared")
        return row(name, declared, "model.hf_mamba_ssm_dtype")
    if family.default is not None:
        return row(name, _VLLM_DTYPE[family.default], "vLLM's rule for this architecture")
    return _convolution(context, name)


def _convolution(context: Context, name: str) -> Role:
    format = _VLLM_DTYPE.get(context.get("rollout.mamba_cache_dtype") or "")
    if format is not None:
        return row(name, format, "rollout.mamba_cache_dtype")
    dense = model_dtype(context)
    if dense is None:
        return unknown(name, "auto: the model's dtype is not declared")
    return row(name, dense[0], "rollout.mamba_cache_dtype auto: the model's dtype")

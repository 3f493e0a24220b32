"""The quantization method that vLLM settles on, and the KV cache dtype a checkpoint asks for.

Source: vllm@0.33.0:vllm/config/model.py:1383-1486; the ``override_quantization_method`` of each
config class; vllm@0.33.0:vllm/transformers_utils/model_arch_config_convertor.py:246-300.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from precision_plan.facts.vllm_quant import Capability

Config = Mapping[str, Any]


class Method(NamedTuple):
    """The method's name, or the problem and the rule that explains it."""

    name: str | None = None
    problem: str | None = None
    rule: str = "PP403"
    by_flag: bool = True


_FLAGS: Mapping[str, tuple[str, ...]] = {
    "awq": ("awq", "awq_marlin", "auto_awq", "marlin"),
    "gptq": ("gptq", "gptq_marlin", "auto_gptq", "marlin"),
}
_AUTOMATIC: Mapping[str, str] = {"awq": "auto_awq", "gptq": "auto_gptq"}
_DEEPSEEK_V4 = ("deepseek_v4", "deepseek_v4_text", "deepseek_v41", "deepseek_v41_text")
_OF_PRODUCER: Mapping[str, str] = {
    "FP8": "modelopt",
    "FP8_PER_CHANNEL_PER_TOKEN": "modelopt",
    "FP8_PB_WO": "modelopt",
    "NVFP4": "modelopt_fp4",
    "MIXED_PRECISION": "modelopt_mixed",
}


def quant_method(raw: Config) -> str | None:
    """``quant_method`` after vLLM's normalization; ``None`` for what it cannot read."""
    nested = raw.get("quantization")
    inner: Config = nested if isinstance(nested, Mapping) else {}
    producer = raw.get("producer")
    by_modelopt = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    method = raw.get("quant_method", "")
    if by_modelopt or "modelopt_quant_config" in inner:
        algorithm = inner.get("quant_algo")
        if algorithm is not None:
            return _OF_PRODUCER.get(str(algorithm).upper())
    if not isinstance(method, str):
        return None
    return method.lower().replace("compressed_tensors", "compressed-tensors")


def algorithm_of(raw: Config, method: str) -> str | None:
    """``quant_algo`` of a ModelOpt config, upper case; ``None`` for other configs."""
    if not method.startswith("modelopt"):
        return None
    if "quantization" in raw:
        nested = raw["quantization"]
        return str(nested.get("quant_algo", "")).upper() if isinstance(nested, Mapping) else None
    return str(raw.get("quant_algo", "")).upper()


def method_of(
    raw: Config | None, flag: str | None, model_type: str | None, capability: Capability | None
) -> Method:
    """The method of a checkpoint's config and a ``--quantization``, both of which may be absent."""
    if raw is None:
        return Method(flag)
    method = quant_method(raw)
    if method is None:
        return Method(problem="quant_method is no method that can be read", rule="PP413")
    if flag == "humming":
        if model_type == "gpt_oss" and method == "mxfp4":
            return Method(problem="humming serves GPT-OSS through --moe-backend humming")
        return Method("humming")
    replaced = _replaced(raw, method, flag, model_type, capability)
    if replaced is not None:
        return Method(replaced)
    if flag is not None and flag != method:
        stored = method or "none"
        return Method(problem=f"--quantization {flag}, but the checkpoint's method is {stored}")
    return Method(method or None)


def _replaced(
    raw: Config, method: str, flag: str | None, model_type: str | None, cc: Capability | None
) -> str | None:
    """The method that a config class claims for itself, whatever the flag says."""
    if method in _FLAGS and (flag is None or flag in _FLAGS[method]):
        return _AUTOMATIC[method]
    if method == "auto-round":
        return "inc"
    if flag == "moe_wna16" and _suits_moe_wna16(raw, method, cc):
        return "moe_wna16"
    claimed = _modelopt(algorithm_of(raw, method))
    if claimed is not None:
        return claimed
    if method in {"mxfp4", "gpt_oss_mxfp4"} and model_type == "gpt_oss":
        return "gpt_oss_mxfp4"
    if method in {"fp8", "deepseek_v4_fp8"} and (
        model_type in _DEEPSEEK_V4 or flag == "deepseek_v4_fp8"
    ):
        return "deepseek_v4_fp8"
    return None


def _modelopt(algorithm: str | None) -> str | None:
    if algorithm is None:
        return None
    if algorithm == "FP8":
        return "modelopt"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    if "MXFP8" in algorithm:
        return "modelopt_mxfp8"
    return "modelopt_mixed" if algorithm == "MIXED_PRECISION" else None


def _suits_moe_wna16(raw: Config, method: str, capability: Capability | None) -> bool:
    bits = raw.get("bits")
    if method == "awq":
        return bits == 4 and (capability is None or capability >= (7, 5))
    return method == "gptq" and bits in (4, 8) and not act_order(raw)


def act_order(raw: Config) -> bool:
    """True if GPTQ's activation order is on for some layer; such checkpoints are refused."""
    ordered, size = bool(raw.get("desc_act", False)), raw.get("group_size")
    if ordered and size != -1:
        return True
    dynamic = raw.get("dynamic")
    for pattern, layer in dynamic.items() if isinstance(dynamic, Mapping) else ():
        if not isinstance(pattern, str) or pattern.startswith("-:"):
            continue
        if not isinstance(layer, Mapping):
            continue
        if layer.get("desc_act", ordered) and layer.get("group_size", size) != -1:
            return True
    return False


def kv_dtype_of(raw: Config | None) -> str:
    """What ``auto`` becomes: only ModelOpt configs name a KV cache dtype that is taken over."""
    if raw is None:
        return "auto"
    method = quant_method(raw) or ""
    if not method.startswith("modelopt"):
        return "auto"
    nested = raw.get("quantization", raw)
    inner: Config = nested if isinstance(nested, Mapping) else raw
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    scheme = next((place[key] for key in keys for place in (inner, raw) if place.get(key)), None)
    if isinstance(scheme, Mapping):
        if scheme.get("type") != "float":
            return "auto"
        if scheme.get("num_bits") == 8 and scheme.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if scheme.get("num_bits") == 4 else "auto"
    named = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
    return named.get(scheme.lower(), "auto") if isinstance(scheme, str) else "auto"

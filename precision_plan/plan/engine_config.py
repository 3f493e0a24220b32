"""Whether vLLM's quantization config class takes a checkpoint's config: keys, values, combinations.

Source: ``from_config`` and ``__init__`` of the classes that ``facts.vllm_config_checks`` names, and
vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py:197-410 for checkpoints without a
config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from precision_plan.facts.vllm import quant_names
from precision_plan.facts.vllm_config_checks import config_checks
from precision_plan.plan.engine_groups import groups_problem
from precision_plan.plan.engine_inc import inc_problem
from precision_plan.plan.engine_method import act_order

Config = Mapping[str, Any]


class Checked(NamedTuple):
    """The problem, if there is one, and the method whose GPU and dtype limits apply."""

    problem: str | None
    checked_as: str


def config_refusal(method: str, raw: Config | None, given: Config | None) -> Checked:
    """Check a config; ``given`` is ``--quantization-config``."""
    row = quant_names()[method]
    online = row.kind == "online"
    if not online:
        method = row.resolves
    if raw is None:
        return _without_config(method, given, online)
    if online and method != "mxfp8":
        return Checked(f"{method} quantizes at load and reads no config", "online")
    check = config_checks().get(method)
    if check is None:
        return Checked(None, method)
    for keys in check.required:
        if not any(key in raw for key in keys):
            return Checked(f"the config of {method} has no {' or '.join(keys)}", method)
    problem = _CHECKS[method](raw) if method in _CHECKS else None
    if problem is None and given is not None:
        problem = _composed(given)
    return Checked(problem, method)


def _without_config(method: str, given: Config | None, online: bool) -> Checked:
    if online or method in {"fp8", "mxfp4"}:
        if method == "online" or given is not None:
            return Checked(_composed(given or {}) if method == "online" else None, "online")
        return Checked(None, "online")
    check = config_checks().get(method)
    if check is None:
        return Checked(None, method)
    if check.files:
        files = " or ".join(check.files)
        return Checked(f"{method} needs a quantization_config, or {files}", method)
    if method in _NEED_CONFIG:
        return Checked(f"{method} needs a checkpoint with a quantization_config", method)
    return Checked(None, method)


_NEED_CONFIG = ("compressed-tensors", "quark", "torchao", "fbgemm_fp8")
"""Classes that cannot be built without one."""


def _composed(given: Config) -> str | None:
    """vllm@0.33.0:vllm/model_executor/layers/quantization/online/base.py:155-166."""
    if any(given.get(key) is not None for key in ("linear", "moe", "targets")):
        return None
    return "--quantization-config names neither linear nor moe nor targets"


# By method --------------------------------------------------------------------------------------
def _fp8(raw: Config) -> str | None:
    scheme, blocks = raw["activation_scheme"], raw.get("weight_block_size")
    method = str(raw.get("quant_method", "")).lower()
    if "fp8" not in method:
        return "the fp8 method quantizes nothing at load any more"
    if scheme not in ("static", "dynamic"):
        return f"activation_scheme is {scheme!r}; it must be static or dynamic"
    if blocks is None:
        return None
    if not hasattr(blocks, "__len__") or len(blocks) != 2:
        return f"weight_block_size is {blocks!r}; it must have two entries"
    if scheme != "dynamic":
        return "weight_block_size goes with activation_scheme dynamic only"
    return None


def _gptq(raw: Config) -> str | None:
    if act_order(raw):
        return "activation order (desc_act) with groups is refused since 0.33"
    bits, symmetric = raw["bits"], raw["sym"]
    if bits not in (4, 8) or symmetric not in (True, 1):
        return f"bits {bits!r} with sym {symmetric!r}: it takes symmetric 4 and 8 bits"
    return None


def _awq(raw: Config) -> str | None:
    bits = raw["w_bit"] if "w_bit" in raw else raw["bits"]
    return None if bits == 4 else f"AWQ has 4 bits here, not {bits!r}"


def _moe_wna16(raw: Config) -> str | None:
    needed = "sym" if raw.get("quant_method") == "gptq" else "zero_point"
    return None if needed in raw else f"the config of moe_wna16 has no {needed}"


_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "modelopt": ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"),
    "modelopt_fp4": ("NVFP4", "W4A16_NVFP4"),
    "modelopt_mxfp8": ("MXFP8",),
    "mxfp8": ("MXFP8",),
    "modelopt_mixed": ("MIXED_PRECISION",),
}
_NESTED_KEYS: Mapping[str, tuple[str, ...]] = {
    "modelopt_fp4": ("group_size", "kv_cache_quant_algo", "exclude_modules"),
    "modelopt_mxfp8": ("kv_cache_quant_algo", "exclude_modules"),
    "mxfp8": ("kv_cache_quant_algo", "exclude_modules"),
}
"""Keys that the nested form of a config must hold."""


def _modelopt(method: str) -> Callable[[Config], str | None]:
    def check(raw: Config) -> str | None:
        """vllm@0.33.0:vllm/model_executor/layers/quantization/modelopt.py:324-410."""
        plain = "quantization" not in raw and not raw.get("quant_algo")
        if method in {"modelopt_mxfp8", "mxfp8"} and plain:
            ignored = raw.get("ignored_layers") or []
            return None if isinstance(ignored, list) else "ignored_layers is no list"
        nested = "quantization" in raw
        inner = raw["quantization"] if nested else raw
        if not isinstance(inner, Mapping):
            return "quantization is no object"
        algorithm = inner.get("quant_algo")
        if not algorithm:
            return "there is no quant_algo"
        problem = _modelopt_values(inner, nested)
        if problem is not None:
            return problem
        if str(algorithm).upper() not in _ALGORITHMS[method]:
            known = ", ".join(_ALGORITHMS[method])
            return f"quant_algo {algorithm} is none of {known}"
        missing = [key for key in _NESTED_KEYS.get(method, ()) if nested and key not in inner]
        if missing:
            return f"below quantization there is no {missing[0]}"
        if method == "modelopt_mixed" and not inner.get("quantized_layers"):
            return "MIXED_PRECISION needs quantized_layers"
        return None

    return check


def _modelopt_values(inner: Config, nested: bool) -> str | None:
    algorithm = inner.get("kv_cache_quant_algo") if nested else None
    if algorithm is not None and not isinstance(algorithm, str):
        return f"kv_cache_quant_algo is {algorithm!r}, not a text"
    excluded = inner.get("exclude_modules", [])
    if not nested:
        excluded = inner.get("ignore", excluded)
    if not isinstance(excluded, list):
        return "the ignore list is no list"
    size = inner.get("group_size")
    if size is not None and not isinstance(size, int):
        try:
            int(size)
        except (TypeError, ValueError):
            return f"group_size is {size!r}, not a whole number"
    return None


def _quark(raw: Config) -> str | None:
    export = raw["export"]
    if not isinstance(export, Mapping):
        return "the export key is empty"
    return None if export.get("kv_cache_group") is not None else "export has no kv_cache_group"


def _torchao(raw: Config) -> str | None:
    kinds = raw["quant_type"]
    if isinstance(kinds, Mapping) and list(kinds) == ["default"]:
        return None
    return "quant_type has one key, default"


_CHECKS: Mapping[str, Callable[[Config], str | None]] = {
    "fp8": _fp8,
    "deepseek_v4_fp8": _fp8,
    "auto_gptq": _gptq,
    "auto_awq": _awq,
    "moe_wna16": _moe_wna16,
    "modelopt": _modelopt("modelopt"),
    "modelopt_fp4": _modelopt("modelopt_fp4"),
    "modelopt_mxfp8": _modelopt("modelopt_mxfp8"),
    "mxfp8": _modelopt("mxfp8"),
    "modelopt_mixed": _modelopt("modelopt_mixed"),
    "quark": _quark,
    "inc": inc_problem,
    "torchao": _torchao,
    "compressed-tensors": groups_problem,
}

"""Intel Neural Compressor (auto-round): which combinations its config class takes.

Source: vllm@0.33.0:vllm/model_executor/layers/quantization/inc/inc.py:36-309.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BITS = range(2, 9)
_PACKINGS = ("auto_round:auto_gptq", "auto_round:auto_awq")
_FORMATS = (*_PACKINGS, "auto_round:fp8", "auto_round:llm_compressor")
_BACKENDS = ("auto", "gptq", "gptq:marlin", "awq", "awq:marlin", "marlin")
_ACTIVATIONS = {"act_bits": 8, "act_sym": True, "act_dynamic": True}
_FP8_ACTIVATIONS: Mapping[str, Any] = {
    **_ACTIVATIONS,
    "act_data_type": "fp",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
}
_MX_ACTIVATIONS: Mapping[str, Any] = {
    **_ACTIVATIONS,
    "act_data_type": "mx_fp",
    "act_group_size": 32,
}


def inc_problem(raw: Mapping[str, Any]) -> str | None:
    """Why the config is refused; ``None`` if it is taken."""
    for key in ("bits", "group_size"):
        if key not in raw:
            return f"the config of inc has no {key}"
    bits, size = raw["bits"], raw["group_size"]
    kind = raw.get("data_type", "int")
    kind = "fp" if kind == "fp8" else kind
    if type(bits) is not int or bits not in _BITS:
        return f"bits {bits!r} is none of 2 to 8"
    if not isinstance(kind, str) or (kind not in {"int", "fp"} and "mx_fp" not in kind):
        return f"data_type {kind!r} is none of int, fp, mx_fp"
    blocks = isinstance(size, (list, tuple))
    packing = raw.get("packing_format") or _default_packing(kind, bits, blocks)
    if packing not in _FORMATS:
        return f"packing_format {packing!r} is none of {', '.join(_FORMATS)}"
    backend = raw.get("backend", raw.get("vllm_backend", "auto"))
    if backend not in _BACKENDS:
        return f"backend {backend!r} is none of {', '.join(_BACKENDS)}"
    if kind == "int":
        if blocks:
            return "integers take one group_size"
        return None if packing in _PACKINGS else f"integers are not packed as {packing}"
    if raw.get("sym", True) is not True or backend != "auto":
        return f"{kind} is symmetric, with backend auto"
    if kind == "fp":
        fits = bits == 8 and blocks and packing == "auto_round:fp8" and _as(raw, _FP8_ACTIVATIONS)
        return None if fits else "fp has 8 bits in blocks, packed as auto_round:fp8"
    if kind != "mx_fp":
        return None
    fits = bits in {4, 8} and size == 32 and packing == "auto_round:llm_compressor"
    activations = bits != 8 or _as(raw, _MX_ACTIVATIONS)
    return None if fits and activations else "mx_fp has 4 or 8 bits in groups of 32"


def _default_packing(kind: str, bits: int, blocks: bool) -> str:
    if kind == "fp" and bits == 8 and blocks:
        return "auto_round:fp8"
    return "auto_round:llm_compressor" if "mx_fp" in kind else "auto_round:auto_gptq"


def _as(raw: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(raw.get(key, value) == value for key, value in expected.items())

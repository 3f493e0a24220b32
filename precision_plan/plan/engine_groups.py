"""compressed-tensors: whether its own argument class takes what stands in ``config_groups``.

Source: vllm@0.33.0:vllm/model_executor/layers/quantization/compressed_tensors/
compressed_tensors.py:234-385; compressed-tensors@0.15.0:src/compressed_tensors/quantization/
quant_args.py (QuantizationArgs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STRATEGIES = ("tensor", "channel", "group", "block", "token", "tensor_group", "attn_head")
_GROUPED = ("group", "tensor_group")
_TYPES = ("int", "float")
_ORDERS = ("group", "weight", "static", "dynamic")
_QUANTIZED_ACTIVATIONS = (
    *("naive-quantized", "int-quantized", "float-quantized"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"),
)
"""Formats whose activations are quantized, too."""


def groups_problem(raw: Mapping[str, Any]) -> str | None:
    """Why the config is refused; ``None`` if it is taken."""
    sparsity = raw.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("targets"):
        return "sparsity_config: sparse checkpoints are not served any more"
    if "config_groups" not in raw:
        return None
    groups = raw["config_groups"]
    if not isinstance(groups, Mapping):
        return "config_groups is no object"
    for name, group in groups.items():
        problem = _group(group, raw.get("format"))
        if problem is not None:
            return f"config_groups.{name}: {problem}"
    return None


def _group(group: Any, form: Any) -> str | None:
    if not isinstance(group, Mapping) or "targets" not in group:
        return "there is no targets"
    targets = group["targets"]
    if not isinstance(targets, (list, tuple, str)):
        return "targets is no list"
    if len(targets) == 1 and isinstance(targets[0], str) and targets[0].endswith("Attention"):
        return None
    if not targets:
        return None
    weights, inputs = group.get("weights"), group.get("input_activations")
    problem = args_problem(weights)
    if problem is not None or not isinstance(weights, Mapping):
        return f"weights: {problem}"
    order = weights.get("actorder")
    if order is True or (isinstance(order, str) and order.lower() in {"group", "dynamic"}):
        return f"weights: actorder {order} is refused since 0.33"
    quantized = (group.get("format") or form) in _QUANTIZED_ACTIVATIONS
    if not inputs:
        if quantized and str(weights.get("type", "int")).lower() != "float":
            return "its format quantizes activations, and input_activations is empty"
        return None
    problem = args_problem(inputs)
    if problem is not None:
        return f"input_activations: {problem}"
    outputs = group.get("output_activations")
    problem = args_problem(outputs) if outputs else None
    return f"output_activations: {problem}" if problem else None


def args_problem(args: Any) -> str | None:
    """Why one set of quantization arguments is refused."""
    if not isinstance(args, Mapping):
        return "there is none"
    for key, known in (("type", _TYPES), ("strategy", _STRATEGIES), ("actorder", _ORDERS)):
        value = args.get(key)
        if isinstance(value, str) and value.lower() not in known:
            return f"{key} {value} is none of {', '.join(known)}"
    size, block = args.get("group_size"), args.get("block_structure")
    if size is not None and (not isinstance(size, int) or size < -1):
        return f"group_size {size!r} is no size"
    strategy = _strategy(args.get("strategy"), size)
    if strategy is None:
        return f"group_size {size} belongs to no strategy"
    return _combination(args, strategy, size, block)


def _strategy(named: Any, size: int | None) -> str | None:
    if isinstance(named, str):
        return named.lower()
    if size is None:
        return "tensor"
    return "group" if size > 0 else "channel" if size == -1 else None


def _combination(
    args: Mapping[str, Any], strategy: str, size: int | None, block: Any
) -> str | None:
    dynamic = args.get("dynamic", False)
    if strategy == "token" and not dynamic:
        return "strategy token is dynamic only"
    if strategy in _GROUPED and (size is None or size <= 0):
        return f"strategy {strategy} needs a group_size"
    if size is not None and size > 0 and strategy not in _GROUPED:
        return f"group_size goes with strategy group, not {strategy}"
    if (strategy == "block") != (block is not None):
        return "strategy block and block_structure go together"
    if dynamic and strategy not in {"token", "tensor", *_GROUPED}:
        return f"strategy {strategy} is not dynamic"
    if isinstance(dynamic, str) and strategy != "tensor_group":
        return "dynamic local goes with strategy tensor_group"
    order = args.get("actorder")
    grouped_order = order is True or (isinstance(order, str) and order.lower() == "group")
    if grouped_order and strategy not in _GROUPED:
        return f"actorder group goes with strategy group, not {strategy}"
    return None

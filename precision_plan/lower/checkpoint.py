"""Plan -> the rollout checkpoint: its ``quantization_config``, ignore list and scale tensors."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from precision_plan.facts.checkpoint_tensors import CheckpointTensor, checkpoint_tensors
from precision_plan.facts.frameworks import engine_passthrough
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason
from precision_plan.plan.lowering import CheckpointLowering

_CONFIG = "checkpoint.quantization_config"
_TEMPLATES = "vllm@0.33.0:vllm/model_executor/layers/quantization"

_METHOD = {
    "fp8_block": "fp8",
    "fp8_per_tensor": "fp8",
    "mxfp8": "modelopt",
    "nvfp4": "modelopt",
    "int4": "compressed-tensors",
    "int8": "compressed-tensors",
}
"""Weight format -> the method that vLLM reads for it."""

_ALGORITHM = {"mxfp8": "MXFP8", "nvfp4": "NVFP4"}
_PACKING = {"int4": "pack-quantized", "int8": "int-quantized"}
_UNQUANTIZED = frozenset({"bf16", "fp16", "fp32"})


def checkpoint(context: Context) -> CheckpointLowering:
    """What ``config.json`` must hold; nothing where the plan names no quantized checkpoint."""
    weights = weight_format(context)
    method = context.get(f"{_CONFIG}.quant_method") or _METHOD.get(weights or "")
    if method is None or weights in _UNQUANTIZED:
        return CheckpointLowering()
    items = tuple(_items(context, weights, method))
    tensors = tuple(_tensors(context, weights))
    ignored = next((item.value for item in items if item.name in _IGNORE_KEYS), ())
    return CheckpointLowering(
        quantization_config=MappingProxyType({item.name: item.value for item in items}),
        ignore=tuple(ignored),
        tensors=MappingProxyType({item.name: item.value for item in tensors}),
        items=(*items, *tensors),
    )


def weight_format(context: Context) -> str | None:
    """The rollout checkpoint's weight format, also where only its method is given."""
    declared = context.get("checkpoint.hf_weight_format")
    if declared is not None:
        return str(declared)
    method = context.get(f"{_CONFIG}.quant_method")
    if method == "fp8":
        blocks = context.get(f"{_CONFIG}.weight_block_size")
        return "fp8_block" if blocks is not None else "fp8_per_tensor"
    if method == "compressed-tensors":
        return {4: "int4", 8: "int8"}.get(context.get(f"{_CONFIG}.bits"))
    algorithm = str(context.get(f"{_CONFIG}.quant_algo") or method).upper()
    return {"MXFP8": "mxfp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4"}.get(algorithm)


def group_size(context: Context) -> int | None:
    """INT4 group size: the checkpoint's, else the one that training imitates."""
    for field in (f"{_CONFIG}.group_size", "qat.int4_group_size"):
        size: int | None = context.get(field)
        if size is not None:
            return size
    return None


# quantization_config --------------------------------------------------------------------------
_IGNORE_KEYS = ("ignore", "ignored_layers", "modules_to_not_convert")


def _items(context: Context, weights: str | None, method: str) -> Iterator[Item]:
    yield _given(context, "quant_method", method, weights)
    if method == "fp8":
        yield from _fp8(context, weights)
    elif method == "compressed-tensors":
        yield from _compressed_tensors(context, weights)
    elif method == "mxfp8":
        yield _ignored(context, "ignored_layers")
    elif method == "modelopt":
        yield from _modelopt(context, weights)
    else:
        yield from _as_given(context)


def _given(context: Context, key: str, default: Any, weights: str | None = None) -> Item:
    """The plan's value of one key, else what the method needs."""
    field = f"{_CONFIG}.{key}"
    value = context.get(field)
    if value is not None:
        value = list(value) if isinstance(value, tuple) else value
        return Item(key, value, Reason(field, field))
    if weights is not None:
        because = f"checkpoint.hf_weight_format = {weights}"
        return Item(key, default, Reason(because, "checkpoint.hf_weight_format"))
    return Item(key, default, Reason("the method's own template", fact=_TEMPLATES))


def _ignored(context: Context, key: str) -> Item:
    """Names that stay unquantized; every converter leaves the LM head alone."""
    for field in (f"{_CONFIG}.{name}" for name in ("ignore", "modules_to_not_convert")):
        names = context.get(field)
        if names is not None:
            return Item(key, list(names), Reason(field, field))
    return Item(key, ["lm_head"], Reason("the LM head keeps its precision", fact=_TEMPLATES))


def _fp8(context: Context, weights: str | None) -> Iterator[Item]:
    yield _given(context, "activation_scheme", "dynamic")
    if context.get(f"{_CONFIG}.fmt") is not None:
        yield _given(context, "fmt", "e4m3")
    if weights == "fp8_block":
        yield _given(context, "weight_block_size", [128, 128])
    if context.get(f"{_CONFIG}.scale_fmt") is not None:
        yield _given(context, "scale_fmt", None)
    if context.get(f"{_CONFIG}.modules_to_not_convert") is not None:
        yield _given(context, "modules_to_not_convert", None)


def _modelopt(context: Context, weights: str | None) -> Iterator[Item]:
    yield _given(context, "quant_algo", _ALGORITHM.get(weights or ""), weights)
    if weights == "nvfp4":
        yield _given(context, "group_size", 16)
    if context.get(f"{_CONFIG}.kv_cache_quant_algo") is not None:
        yield _given(context, "kv_cache_quant_algo", None)
    yield _ignored(context, "ignore")


def _compressed_tensors(context: Context, weights: str | None) -> Iterator[Item]:
    yield _given(context, "format", _PACKING.get(weights or "", "pack-quantized"), weights)
    yield _ignored(context, "ignore")
    group = {
        "targets": ["Linear"],
        "weights": _integer_weights(context, weights),
        "input_activations": _integer_activations(weights),
    }
    because = "bits, groups and symmetry of the packed weights"
    yield Item("config_groups", {"group_0": group}, Reason(because, field=_CONFIG))


def _integer_weights(context: Context, weights: str | None) -> dict[str, Any]:
    bits = context.get(f"{_CONFIG}.bits") or (8 if weights == "int8" else 4)
    symmetric = context.get(f"{_CONFIG}.symmetric")
    found = {
        "num_bits": bits,
        "type": "int",
        "symmetric": True if symmetric is None else symmetric,
        "strategy": "channel" if weights == "int8" else "group",
        "dynamic": False,
        "actorder": context.get(f"{_CONFIG}.actorder"),
    }
    if weights != "int8" and group_size(context) is not None:
        found["group_size"] = group_size(context)
    return found


def _integer_activations(weights: str | None) -> dict[str, Any] | None:
    if weights != "int8":
        return None
    return {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def _as_given(context: Context) -> Iterator[Item]:
    """A method without a template: the keys that the plan sets, as they are."""
    for field, value in context.fields.items():
        key = field.removeprefix(f"{_CONFIG}.")
        if key != field and key not in ("quant_method", "scale_tensor"):
            yield _given(context, key, value)


# Tensors --------------------------------------------------------------------------------------
def _tensors(context: Context, weights: str | None) -> Iterator[Item]:
    rule = engine_passthrough(context.framework or "")
    engine = rule.engine if rule is not None else "vllm"
    blocks = context.get(f"{_CONFIG}.weight_block_size") or (128, 128)
    rows, columns = blocks if len(blocks) == 2 else ("rows", "columns")
    group = group_size(context)
    for tensor in checkpoint_tensors(weights or ""):
        if tensor.engines is not None and engine not in tensor.engines:
            continue
        if _exists(context, tensor):
            shape = tensor.shape.format(rows=rows, columns=columns, group=group or "group")
            reason = Reason(f"a {weights} weight of shape [N, K]", fact=tensor.source)
            yield Item(tensor.name, f"{tensor.dtype} {shape}", reason)


def _exists(context: Context, tensor: CheckpointTensor) -> bool:
    if tensor.when == "static":
        return bool(context.get(f"{_CONFIG}.activation_scheme") == "static")
    if tensor.when == "asymmetric":
        return context.get(f"{_CONFIG}.symmetric") is False
    if tensor.when == "activations":
        return context.get(f"{_CONFIG}.quant_algo") in (None, "NVFP4")
    return True

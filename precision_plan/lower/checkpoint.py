"""Plan -> the rollout checkpoint: its ``quantization_config``, ignore list and scale tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.facts.checkpoint_tensors import CheckpointTensor, checkpoint_tensors
from precision_plan.facts.frameworks import engine_passthrough
from precision_plan.facts.vllm_quant import Template, quant_methods, templates
from precision_plan.lower.context import Context
from precision_plan.lower.spelling import plain
from precision_plan.plan import Item, Reason
from precision_plan.plan.lowering import CheckpointLowering
from precision_plan.plan.serving import IGNORE_KEYS, QuantizationConfig

_CONFIG = "checkpoint.quantization_config"
_UNQUANTIZED = frozenset({"bf16", "fp16", "fp32"})

_IN_GROUPS = ("bits", "group_size", "symmetric", "actorder")
"""Fields that compressed-tensors keeps inside ``config_groups``."""

_NOT_IN_FILE = ("scale_tensor",)
"""Fields that describe the tensors and stand in no ``config.json``."""


def checkpoint(context: Context) -> CheckpointLowering:
    """What ``config.json`` must hold; nothing where the plan names no quantized checkpoint."""
    weights = weight_format(context)
    template = _template(context, weights)
    method = context.get(f"{_CONFIG}.quant_method")
    if weights in _UNQUANTIZED or (method is None and template is None):
        return CheckpointLowering()
    items = tuple(_items(context, template))
    tensors = tuple(_tensors(context, weights))
    ignored = next((item.value for item in items if item.name in IGNORE_KEYS), ())
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


def _template(context: Context, weights: str | None) -> Template | None:
    if weights == "nvfp4" and context.get(f"{_CONFIG}.quant_algo") == "W4A16_NVFP4":
        return templates()["nvfp4_weight_only"]
    return templates().get(weights or "")


# quantization_config --------------------------------------------------------------------------
def _items(context: Context, template: Template | None) -> Iterator[Item]:
    """The template of the weight format with the plan's keys in place of its own.

    Another method for the same format has other keys, so only the plan's are written then.
    """
    method = context.get(f"{_CONFIG}.quant_method")
    keys = dict(template.config) if template is not None else {}
    if method is not None and method != keys.get("quant_method"):
        keys = {"quant_method": method}
    for key, value in keys.items():
        if key != "config_groups":
            yield _item(context, key, value, template)
    grouped = "config_groups" in keys
    for key in QuantizationConfig.model_fields:
        skipped = key in keys or key in _NOT_IN_FILE or (grouped and key in _IN_GROUPS)
        if not skipped and context.get(f"{_CONFIG}.{key}") is not None:
            yield _item(context, key, None, template)
    yield from _default_ignore(context, str(method or keys.get("quant_method")), template)
    if grouped:
        groups = _groups(context, keys["config_groups"])
        yield Item("config_groups", groups, Reason("the packed weights", field=_CONFIG))


def _item(context: Context, key: str, default: Any, template: Template | None) -> Item:
    """The plan's value of one key, else the template's."""
    field = f"{_CONFIG}.{key}"
    value = context.get(field)
    if value is not None:
        return Item(key, plain(value), Reason(field, field))
    if context.get("checkpoint.hf_weight_format") is not None:
        field = "checkpoint.hf_weight_format"
        return Item(key, plain(default), Reason(f"{field} = {context.get(field)}", field))
    source = template.source if template is not None else None
    return Item(key, plain(default), Reason("what the method needs", fact=source))


def _default_ignore(context: Context, method: str, template: Template | None) -> Iterator[Item]:
    """The LM head stays as it is; FP8 layers are listed by full names, which no plan knows."""
    given = (context.get(f"{_CONFIG}.{key}") for key in IGNORE_KEYS)
    known = quant_methods().get(method)
    if method == "fp8" or any(value is not None for value in given):
        return
    if template is not None and template.config.get("quant_method") == method:
        key = template.ignore_key
    elif known is not None and known.ignore_keys:
        key = known.ignore_keys[0]
    else:
        return
    source = template.source if template is not None else known.source if known else None
    yield Item(key, ["lm_head"], Reason("converters leave the LM head alone", fact=source))


def _groups(context: Context, groups: Mapping[str, Any]) -> dict[str, Any]:
    """The template's only group with the plan's bits, group size, symmetry and order."""
    found: dict[str, Any] = plain(groups)
    weights = found["group_0"]["weights"]
    given = {
        "num_bits": context.get(f"{_CONFIG}.bits"),
        "symmetric": context.get(f"{_CONFIG}.symmetric"),
        "actorder": context.get(f"{_CONFIG}.actorder"),
    }
    weights.update({key: value for key, value in given.items() if value is not None})
    if weights["strategy"] == "group":
        weights["group_size"] = group_size(context)
        if weights["group_size"] is None:
            del weights["group_size"]  # unknown, and the template's 128 would be a guess
    return found


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

"""PP746 to PP750: scale tensors of a checkpoint by their headers."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import (
    NO_SCALE,
    about_layers,
    conforming,
    instead,
    layers_of,
)
from precision_plan.rules.checkpoint_table import WEIGHTS

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_TRACK = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py:510-575"
_PARAMETER = "vllm@0.33.0:vllm/model_executor/parameter.py:91-300"

_OF_WEIGHT = frozenset(
    {"weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale"}
)
_REWRITE = Fix("convert the checkpoint again, for this engine and method")


@rule(
    "PP746",
    "scale-tensor-missing",
    "error",
    stage="worker",
    source=(_TRACK, f"{_QUANT}/modelopt.py:2075-2087", f"{_QUANT}/fp8.py:320-345"),
)
def scale_missing(ctx: Context) -> Iterator[Finding]:
    """Quantized weights have no scale.

    Why:
        A quantized model skips vLLM's check for weights that were not loaded. The scale of such a
        layer keeps what the memory held, and the output is garbage; NVFP4 layers alone notice.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"}

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    if layers is None:
        return
    missing: dict[str, list[str]] = {}
    for contract, tensors, names in conforming(layers):
        for each in contract.others:
            if each.name.startswith("input") or each.name in tensors or each.name in NO_SCALE:
                continue
            if instead(each.name, contract, tensors) is None:
                alone = [one for one in names if not layers.fused_scale(one, each.name)]
                missing.setdefault(each.name, []).extend(alone)
    for name, names in missing.items():
        if names:
            yield about_layers(ctx, f"no {name}", names, _REWRITE)


@rule(
    "PP747",
    "scale-without-weight",
    "error",
    stage="worker",
    source=("vllm@0.33.0:vllm/model_executor/models/utils.py:299-420", _TRACK),
)
def without_weight(ctx: Context) -> Found:
    """Scales belong to weights that are not there.

    Why:
        A converter wrote the scale and lost the weight, or the weight was renamed. The layer then
        keeps what the memory held: a quantized model skips the check for missing weights.

    Bad:
        files: {tensors: {model.layers.0.mlp.up_proj.weight_scale_inv: "F32 [1, 1]"}}

    Good:
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale_inv: "F32 [1, 1]"
    """
    layers = layers_of(ctx, complete=True)
    alone = [
        name
        for tensors, names in (layers.groups if layers else ())
        if not _OF_WEIGHT.isdisjoint(tensors) and not tensors.keys() & set(WEIGHTS)
        for name in names
    ]
    return about_layers(ctx, "a scale and no weight", alone, _REWRITE) if alone else None


@rule(
    "PP748",
    "scale-under-other-name",
    "error",
    stage="worker",
    source=(
        f"{_QUANT}/fp8.py:320-345",
        f"{_QUANT}/modelopt.py:2309-2379",
        "vllm-project/vllm#43564",
    ),
)
def other_name(ctx: Context) -> Iterator[Finding]:
    """The scales stand under a name that this method does not read.

    Why:
        Block FP8 of method fp8 reads weight_scale_inv, every other FP8 weight_scale; ModelOpt's
        NVFP4 reads weight_scale_2 where compressed-tensors has weight_global_scale, its
        reciprocal. A tensor under another name fits no parameter: it is dropped or refused, and
        the parameter stays uninitialized.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: MXFP8}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale_inv: "U8 [64, 2]"

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: MXFP8}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "U8 [64, 2]"
    """
    layers = layers_of(ctx)
    wrong: dict[tuple[str, str], list[str]] = {}
    for contract, tensors, names in conforming(layers) if layers else ():
        for each in contract.others:
            found = None if each.name in tensors else instead(each.name, contract, tensors)
            if found is not None:
                wrong.setdefault((found, each.name), []).extend(names)
    for (found, name), names in wrong.items():
        fix = Fix(f"rename {found} to {name}, with the dtype and meaning of {name}")
        yield about_layers(ctx, f"{found} where the engine reads {name}", names, fix)


@rule(
    "PP749",
    "scale-dtype-not-of-format",
    "error",
    stage="worker",
    source=(_PARAMETER, f"{_QUANT}/modelopt.py:2309-2379", f"{_QUANT}/modelopt.py:2018-2062"),
)
def scale_dtype(ctx: Context) -> Iterator[Finding]:
    """A scale has a dtype that the engine would convert to something else.

    Why:
        Loading copies into the engine's own dtype, value by value. Power-of-two scales are stored
        as exponents in bytes: a byte 127 copied into fp32 is 127, not 1, and an fp32 scale of
        0.01 copied into bytes is 0.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: MXFP8}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 [64, 2]"

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: MXFP8}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "U8 [64, 2]"
    """
    layers = layers_of(ctx)
    wrong: dict[tuple[str, str, str], list[str]] = {}
    for contract, tensors, names in conforming(layers) if layers else ():
        for each in (*contract.others, *contract.optional):
            head = tensors.get(each.name)
            if head is not None and head.dtype not in each.dtypes:
                key = (each.name, head.dtype, " or ".join(each.dtypes))
                wrong.setdefault(key, []).extend(names)
    for (name, dtype, right), names in wrong.items():
        fix = Fix(f"write {name} in {right}, with the meaning that {right} has there")
        yield about_layers(ctx, f"{name} in {dtype}, not in {right}", names, fix)


@rule(
    "PP750",
    "scale-shape-not-of-format",
    "error",
    stage="worker",
    source=(_PARAMETER, f"{_QUANT}/fp8.py:320-345", f"{_QUANT}/modelopt.py:2018-2062"),
)
def scale_shape(ctx: Context) -> Iterator[Finding]:
    """A scale has another shape than the configuration's blocks or groups give.

    Why:
        The engine allocates scales from the layer's size and the block or group size in the
        configuration, and asserts that what it loads has that shape.

    Bad:
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [256, 256]"
            model.layers.0.mlp.up_proj.weight_scale_inv: "F32 [4, 4]"

    Good:
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [256, 256]"
            model.layers.0.mlp.up_proj.weight_scale_inv: "F32 [2, 2]"
    """
    layers = layers_of(ctx)
    wrong: dict[tuple[str, str, str], list[str]] = {}
    for contract, tensors, names in conforming(layers) if layers else ():
        stored = tensors[contract.weight.name].shape
        size = contract.inputs(stored)
        for each in (*contract.others, *contract.optional) if size else ():
            head, right = tensors.get(each.name), contract.shape(each, *(size or (0, 0)))
            if head is None or right is None:
                continue
            if _alike(head.shape, (*contract.outer(stored), *right), right):
                continue
            key = (each.name, str(list(head.shape)), str(list(right)))
            wrong.setdefault(key, []).extend(names)
    for (name, shape, expected), names in wrong.items():
        message = f"{name} of shape {shape}, where {expected} is right"
        fix = Fix(f"write {name} in the shape {expected}, or state the block or group size used")
        yield about_layers(ctx, message, names, fix)


def _alike(shape: tuple[int, ...], *rights: tuple[int, ...]) -> bool:
    """True if the shape is one of ``rights``.

    With another number of dimensions, those of size one do not count: ``[64]`` is ``[64, 1]``.
    """
    return any(
        shape == right if len(shape) == len(right) else _without_ones(shape) == _without_ones(right)
        for right in rights
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


RULES: tuple[Rule, ...] = (
    scale_missing,
    without_weight,
    other_name,
    scale_dtype,
    scale_shape,
)

"""PP751 to PP755: scales of activations, and values of small scales."""

from __future__ import annotations

import math
from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import (
    about_layers,
    config_says,
    conforming,
    instead,
    layers_of,
)
from precision_plan.rules.checkpoint_names import PARTS

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_TRACK = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py:510-575"

_REWRITE = Fix("convert the checkpoint again, for this engine and method")


@rule(
    "PP751",
    "static-input-scale-missing",
    "error",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:346-350", f"{_QUANT}/modelopt.py:2136-2165", _TRACK),
)
def input_scale_missing(ctx: Context) -> Iterator[Finding]:
    """Activations are declared static, and layers have no input scale.

    Why:
        A static scheme needs one calibrated scale for the inputs of every layer (ModelOpt's NVFP4
        one global scale). The parameter exists, nothing is loaded into it, and nobody checks.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: static}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: static}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.input_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    missing: dict[str, list[str]] = {}
    for contract, tensors, names in conforming(layers) if layers else ():
        for each in contract.others:
            if not each.name.startswith("input") or each.name in tensors:
                continue
            if instead(each.name, contract, tensors) is None:
                missing.setdefault(each.name, []).extend(names)
    for name, names in missing.items():
        fix = Fix("calibrate the checkpoint, or declare dynamic activations")
        yield about_layers(ctx, f"no {name}", names, fix)


@rule(
    "PP752",
    "input-scale-not-read",
    "warning",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:346-350", f"{_QUANT}/modelopt.py:2532-2556"),
)
def input_scale_left(ctx: Context) -> Found:
    """Input scales stand in a checkpoint whose activations are dynamic.

    Why:
        With dynamic activations the layer has no parameter of that name: the calibrated scales
        are dropped or the loader refuses them. What was calibrated is not what is served.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.input_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: static}
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.input_scale: "F32 []"
    """
    layers = layers_of(ctx)
    left: list[str] = []
    for contract, tensors, names in conforming(layers) if layers else ():
        needed = {each.name for each in contract.others}
        if contract.method != "modelopt_fp4" and {"input_scale", "input_global_scale"} & (
            tensors.keys() - needed
        ):
            aliased = any(instead(each, contract, tensors) for each in needed - tensors.keys())
            left += [] if aliased else names
    if not left:
        return None
    fix = Fix("declare static activations, or leave the input scales out")
    return about_layers(ctx, "an input scale, but activations are dynamic", left, fix)


@rule(
    "PP753",
    "fused-global-scales-differ",
    "error",
    stage="run",
    source=(
        f"{_QUANT}/modelopt.py:2085-2095",
        f"{_QUANT}/compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:98-124",
    ),
)
def globals_differ(ctx: Context) -> Found:
    """Parts of a fused layer have different NVFP4 global scales.

    Why:
        gate and up become one matrix, q, k and v another. One matrix has one global scale: vLLM
        takes the largest for all parts, whose block scales were made for another one. It warns
        once and serves the wrong numbers.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.gate_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.gate_proj.weight_scale_2: "F32 []"
            model.layers.0.mlp.up_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.up_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.up_proj.weight_scale_2: "F32 []"
          scales:
            model.layers.0.mlp.gate_proj.weight_scale_2: [0.0001]
            model.layers.0.mlp.up_proj.weight_scale_2: [0.0004]

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.gate_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.gate_proj.weight_scale_2: "F32 []"
            model.layers.0.mlp.up_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.up_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.up_proj.weight_scale_2: "F32 []"
          scales:
            model.layers.0.mlp.gate_proj.weight_scale_2: [0.0004]
            model.layers.0.mlp.up_proj.weight_scale_2: [0.0004]
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None:
        return None
    name = {"nvfp4": "weight_scale_2", "ct_nvfp4": "weight_global_scale"}.get(
        layers.contract.format, ""
    )
    scales, differ = layers.files.scales, []
    for key, values in scales.items() if name else ():
        stem, _, part = key.removesuffix(f".{name}").rpartition(".")
        if part not in _FIRST or not key.endswith(f".{name}"):
            continue
        others = (scales.get(f"{stem}.{each}.{name}", values) for each in PARTS[_FIRST[part]])
        if any(other != values for other in others):
            differ.append(f"{stem}.{_FIRST[part]}")
    if not differ:
        return None
    fix = Fix("quantize the parts of a fused layer with one global scale")
    return about_layers(ctx, f"parts with different {name}", differ, fix)


_FIRST = {parts[0]: whole for whole, parts in PARTS.items()}


@rule(
    "PP754",
    "scale-value-unusable",
    "error",
    stage="run",
    source=(f"{_QUANT}/modelopt.py:2018-2095", "THUDM/slime@624b824a:tools/convert_hf_to_fp8.py"),
)
def bad_value(ctx: Context) -> Found:
    """A scale is zero, negative, infinite or no number.

    Why:
        It multiplies the layer (or divides it): everything after that layer is zero, NaN or of the
        wrong sign. Converters without a floor write them for weights that are all zero, and from
        NaN weights. A zero among many scales is the scale of an empty block and does no harm.

    Bad:
        files:
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          scales: {model.layers.0.mlp.up_proj.weight_scale: [.nan]}

    Good:
        files:
          tensors:
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          scales: {model.layers.0.mlp.up_proj.weight_scale: [0.0078125]}
    """
    layers = layers_of(ctx)
    if layers is None:
        return None
    bad = {
        name: value
        for name, values in layers.files.scales.items()
        if "scale" in name.rpartition(".")[2]
        for value in values
        if not math.isfinite(value) or value < 0 or (value == 0 and len(values) == 1)
    }
    if not bad:
        return None
    value = next(iter(bad.values()))
    fix = Fix("quantize these layers again, with a floor under the scale")
    return about_layers(ctx, f"a scale that no layer can use ({value:g})", list(bad), fix)


@rule(
    "PP755",
    "global-scale-upside-down",
    "warning",
    stage="run",
    source=(
        f"{_QUANT}/modelopt.py:2090-2095",
        f"{_QUANT}/compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:110-136",
    ),
)
def upside_down(ctx: Context) -> Found:
    """NVFP4 global scales are of the other library's kind.

    Why:
        ModelOpt stores amax / 2688, compressed-tensors its reciprocal, and vLLM inverts by the
        method. Weights have an amax around 1, so the first is far below 1 and the second far
        above. A renamed but not inverted scale is off by many orders of magnitude.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.down_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.down_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.down_proj.weight_scale_2: "F32 []"
          scales: {model.layers.0.mlp.down_proj.weight_scale_2: [5376.0]}

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.down_proj.weight: "U8 [32, 16]"
            model.layers.0.mlp.down_proj.weight_scale: "F8_E4M3 [32, 2]"
            model.layers.0.mlp.down_proj.weight_scale_2: "F32 []"
          scales: {model.layers.0.mlp.down_proj.weight_scale_2: [0.000186]}
    """
    layers = layers_of(ctx)
    form = layers.contract.format if layers is not None and layers.contract else ""
    if layers is None or form not in {"nvfp4", "ct_nvfp4"}:
        return None
    name = ".weight_scale_2" if form == "nvfp4" else ".weight_global_scale"
    wrong = [
        key
        for key, values in layers.files.scales.items()
        if key.endswith(name)
        and all(1 < value < math.inf if form == "nvfp4" else 0 < value < 1 for value in values)
    ]
    if not wrong:
        return None
    kind = "above 1: a divisor" if form == "nvfp4" else "below 1: a factor"
    return about_layers(
        ctx, f"{kind}", wrong, Fix("store the reciprocal"), Because(config_says(layers))
    )


RULES: tuple[Rule, ...] = (
    input_scale_missing,
    input_scale_left,
    globals_differ,
    bad_value,
    upside_down,
)

"""PP767 to PP770: the ignore list against what the tensors are."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_layers, judging, layers_of
from precision_plan.rules.checkpoint_names import FUSED, PARTS
from precision_plan.rules.checkpoint_table import WIDE, CheckpointLayers, collapsed, is_linear

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_MATCHING = f"{_QUANT}/utils/quant_utils.py:619-694"
_MODELOPT = f"{_QUANT}/modelopt.py:185-226"
_CT = f"{_QUANT}/compressed_tensors/utils.py:53-170"


def _by_vllm(ctx: Context) -> CheckpointLayers | None:
    layers = judging(ctx)
    return layers if layers is not None and layers.engine == "vllm" else None


def _halves(layers: CheckpointLayers) -> dict[str, list[str]]:
    """Fused layer -> its unquantized parts, where another part of it is quantized."""
    whole = {_fused(name) for _, names in layers.quantized for name in names}
    found: dict[str, list[str]] = {}
    for _, names in layers.judged(layers.plain):
        for name in names:
            fused = _fused(name)
            if fused is not None and fused in whole:
                found.setdefault(fused, []).append(name)
    return found


def _fused(name: str) -> str | None:
    stem, _, part = name.rpartition(".")
    return f"{stem}.{FUSED[part]}" if part in FUSED else None


@rule(
    "PP767",
    "ignored-layer-is-quantized",
    "error",
    stage="worker",
    source=(_MATCHING, _MODELOPT, _CT),
)
def ignored_quantized(ctx: Context) -> Found:
    """Layers on the ignore list are stored quantized.

    Why:
        The engine builds them in BF16. Packed weights do not fit, FP8 values are copied without
        their scale, and the scale has no parameter.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.0.mlp.down_proj]
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.0.mlp.down_proj]
          tensors: {model.layers.0.mlp.down_proj.weight: "BF16 [64, 64]"}
    """
    layers = _by_vllm(ctx)
    if layers is None or not layers.ignored.entries:
        return None
    found = [
        name
        for _, names in layers.quantized
        for name in names
        if (is_linear(name) or name.rpartition(".")[2] == "lm_head")
        and not layers.is_mtp(name)
        and layers.ignored.listed(collapsed(name))
    ]
    if not found:
        return None
    fix = Fix(f"take them off {layers.ignored.key}, or store them in BF16")
    return about_layers(ctx, f"quantized, but in {layers.ignored.key}", found, fix)


@rule(
    "PP768",
    "unquantized-layer-not-ignored",
    "error",
    stage="worker",
    source=(_MATCHING, _MODELOPT, _CT, f"{_QUANT}/modelopt.py:2075-2087"),
)
def not_ignored(ctx: Context) -> Found:
    """Layers are stored in BF16, and the ignore list does not name them.

    Why:
        The engine builds every linear layer quantized that the list does not name. BF16 values are
        then cast into a quantized parameter whose scale is never loaded; the model answers
        garbage. Converters forget layers, or name them in another spelling.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.0.self_attn.o_proj.weight: "BF16 [64, 64]"

    Good:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.0.self_attn.o_proj]
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.0.self_attn.o_proj.weight: "BF16 [64, 64]"
    """
    layers = _by_vllm(ctx)
    if layers is None or not layers.quantized:
        return None
    halves = {name for names in _halves(layers).values() for name in names}
    found = [
        name
        for tensors, names in layers.judged(layers.plain)
        if len(tensors["weight"].shape) == 2
        for name in names
        if name not in halves and not layers.ignored.holds(collapsed(name))
    ]
    if not found:
        return None
    fix = Fix(f"add their full names to {layers.ignored.key}")
    return about_layers(ctx, f"in BF16, but not in {layers.ignored.key}", found, fix)


@rule(
    "PP769",
    "fused-experts-left-unquantized",
    "error",
    stage="worker",
    source=(
        "THUDM/slime@624b824a:tools/convert_hf_to_fp8.py",
        "radixark/miles@31f1ca96:tools/convert_hf_to_nvfp4.py:245-345",
        "vllm@0.33.0:vllm/model_executor/layers/fused_moe/routed_experts.py",
    ),
)
def fused_experts(ctx: Context) -> Found:
    """Experts in one three-dimensional tensor stayed in BF16.

    Why:
        Converters look for names that end in .weight. Fused experts (experts.gate_up_proj) have
        none, so they pass unquantized and unlisted, and the engine builds quantized experts.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.self_attn.o_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.self_attn.o_proj.weight_scale: "F32 []"
            model.layers.0.mlp.experts.gate_up_proj: "BF16 [8, 64, 128]"

    Good:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.0.mlp.experts]
          tensors:
            model.layers.0.self_attn.o_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.self_attn.o_proj.weight_scale: "F32 []"
            model.layers.0.mlp.experts.gate_up_proj: "BF16 [8, 64, 128]"
    """
    layers = judging(ctx)
    if layers is None:
        return None
    found = [
        f"{name}.{suffix}"
        for tensors, names in layers.groups
        for suffix, head in tensors.items()
        if suffix in {"gate_up_proj", "down_proj"} and len(head.shape) == 3 and head.dtype in WIDE
        for name in names
        if not layers.is_mtp(name) and not layers.ignored.holds(f"{name}.0.{suffix}")
    ]
    if not found:
        return None
    fix = Fix("split the experts before converting, or list them as ignored")
    return about_layers(ctx, "fused experts in BF16, and not ignored", found, fix)


@rule(
    "PP770",
    "fused-layer-half-quantized",
    "error",
    stage="build",
    source=(_MATCHING, _CT, "vllm-project/vllm#11790"),
)
def half_quantized(ctx: Context) -> Found:
    """One part of a layer that the engine fuses is quantized, another is not.

    Why:
        q, k and v become one matrix, gate and up another. One matrix has one scheme: vLLM refuses
        the list that names a part, and without the entry it casts the BF16 part.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.gate_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.weight: "BF16 [64, 64]"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.gate_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None:
        return None
    found = [name for names in _halves(layers).values() for name in names]
    if not found:
        return None
    fix = Fix("quantize all parts of a fused layer (" + _parts() + "), or none")
    return about_layers(ctx, "in BF16 beside quantized parts of the same layer", found, fix)


def _parts() -> str:
    return "; ".join(", ".join(parts) for parts in PARTS.values())


RULES: tuple[Rule, ...] = (
    ignored_quantized,
    not_ignored,
    fused_experts,
    half_quantized,
)

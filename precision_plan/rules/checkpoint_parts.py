"""PP776 to PP778 and PP782 to PP784: fused experts, packing, and parts of one layer."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix, TensorHeader
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_layers, conforming, layers_of
from precision_plan.rules.checkpoint_names import PARTS
from precision_plan.rules.checkpoint_table import WIDE, Tensors

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_CT = f"{_QUANT}/compressed_tensors"
_TRACK = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py:510-575"
_FUSED = ("gate_up_proj", "down_proj")


@rule(
    "PP776",
    "fused-experts-without-scale",
    "error",
    stage="worker",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/fused_moe/routed_experts.py:1000-1075",
        "NVIDIA/Model-Optimizer@0.47.0:modelopt/torch/export/quant_utils.py",
        _TRACK,
    ),
)
def fused_experts(ctx: Context) -> Found:
    """Quantized experts in one three-dimensional tensor have no scale.

    Why:
        ModelOpt and transformers write the scales of experts.gate_up_proj beside it, as
        gate_up_proj_weight_scale or gate_up_proj_scale_inv. Without them the engine's scales keep
        what the memory held, and a quantized model skips the check for that.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: [lm_head]}
          tensors: {model.layers.0.feed_forward.experts.gate_up_proj: "F8_E4M3 [4, 64, 128]"}

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: [lm_head]}
          tensors:
            model.layers.0.feed_forward.experts.gate_up_proj: "F8_E4M3 [4, 64, 128]"
            model.layers.0.feed_forward.experts.gate_up_proj_weight_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    if layers is None or layers.contract is None:
        return None
    wanted = [each.name for each in layers.contract.others if each.name.startswith("weight_scale")]
    alone = [
        f"{name}.{part}"
        for tensors, names in layers.groups
        for part in _FUSED
        if _packed(tensors.get(part)) and not all(_beside(tensors, part, one) for one in wanted)
        for name in names
    ]
    if not alone:
        return None
    return about_layers(ctx, "fused experts without their scales", alone, _AGAIN)


_AGAIN = Fix("convert the checkpoint again, for this engine and method")


def _packed(head: TensorHeader | None) -> bool:
    return head is not None and len(head.shape) == 3 and head.dtype not in WIDE


def _beside(tensors: Tensors, part: str, scale: str) -> bool:
    """True if the scale of a fused tensor is there, with or without ``weight`` in its name."""
    if scale == "weight_scale_2":
        return f"{part}_weight_scale_2" in tensors or f"{part}_scale_2" in tensors
    tails = ("weight_scale", "weight_scale_inv", "scale", "scale_inv")
    return any(f"{part}_{tail}" in tensors for tail in tails)


@rule(
    "PP777",
    "zero-points-missing",
    "error",
    stage="worker",
    source=(
        f"{_CT}/schemes/compressed_tensors_wNa16.py:225-245",
        f"{_QUANT}/auto_awq.py:365-450",
        _TRACK,
    ),
)
def zero_points(ctx: Context) -> Iterator[Finding]:
    """Groups are asymmetric or in another order, and the tensor that says how is absent.

    Why:
        An asymmetric weight is (code - zero point) x scale. The zero points (with GPTQ's activation
        order the group of each column) are parameters that nothing is loaded into and nobody
        checks: every weight is off by whatever the memory held.

    Bad:
        files:
          config:
            quantization_config: {quant_method: awq, bits: 4, group_size: 32, zero_point: true}
          tensors:
            model.layers.0.mlp.down_proj.qweight: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.scales: "F16 [2, 64]"

    Good:
        files:
          config:
            quantization_config: {quant_method: awq, bits: 4, group_size: 32, zero_point: true}
          tensors:
            model.layers.0.mlp.down_proj.qweight: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.qzeros: "I32 [2, 8]"
            model.layers.0.mlp.down_proj.scales: "F16 [2, 64]"
    """
    layers = layers_of(ctx, complete=True)
    if layers is None or layers.quantization.get("zero_point") is False:
        return
    missing: dict[str, list[str]] = {}
    for contract, tensors, names in conforming(layers):
        for each in contract.others:
            if each.name in _GROUPED and each.name not in tensors:
                missing.setdefault(each.name, []).extend(names)
    for name, names in missing.items():
        yield about_layers(ctx, f"no {name}", names, _AGAIN)


_GROUPED = frozenset({"weight_zero_point", "qzeros", "g_idx"})


@rule(
    "PP778",
    "packed-shape-missing",
    "warning",
    stage="run",
    source=(
        "compressed-tensors@0.17.0:compressors/pack_quantized",
        f"{_CT}/schemes/compressed_tensors_wNa16.py:225-245",
    ),
)
def no_shape(ctx: Context) -> Found:
    """Packed weights have no weight_shape.

    Why:
        Eight INT4 values are one int32 word, and rows are padded to whole words: weight_shape says
        where they end. vLLM computes the shape itself; compressed-tensors and transformers unpack
        with weight_shape and stop without it, and a weight update that sends it fits no layer.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
          tensors:
            model.layers.0.mlp.down_proj.weight_packed: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.weight_scale: "BF16 [64, 2]"

    Good:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
          tensors:
            model.layers.0.mlp.down_proj.weight_packed: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.weight_scale: "BF16 [64, 2]"
            model.layers.0.mlp.down_proj.weight_shape: "I64 [2]"
    """
    layers = layers_of(ctx, complete=True)
    found = [
        name
        for contract, tensors, names in (conforming(layers) if layers else ())
        if "weight_shape" not in tensors
        and any(each.name == "weight_shape" for each in contract.others)
        for name in names
    ]
    return about_layers(ctx, "no weight_shape", found, _AGAIN) if found else None


@rule(
    "PP782",
    "fused-parts-of-different-inputs",
    "error",
    stage="worker",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/linear.py",
        "vllm@0.33.0:vllm/model_executor/parameter.py:91-300",
    ),
)
def parts_disagree(ctx: Context) -> Found:
    """Parts of a layer that the engine fuses have different numbers of inputs.

    Why:
        q, k and v are rows of one matrix, gate and up of another, so they share its columns. A part
        with other columns was transposed, cut for tensor parallelism, or belongs to another layer.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "F8_E4M3 [128, 64]"
            model.layers.0.mlp.gate_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [64, 128]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate_proj.weight: "F8_E4M3 [128, 64]"
            model.layers.0.mlp.gate_proj.weight_scale: "F32 []"
            model.layers.0.mlp.up_proj.weight: "F8_E4M3 [128, 64]"
            model.layers.0.mlp.up_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None:
        return None
    contract = layers.contract
    inputs: dict[str, int | None] = {}
    for _, tensors, names in conforming(layers):
        size = contract.inputs(tensors[contract.weight.name].shape)
        inputs.update(dict.fromkeys(names, size[1] if size else None))
    wrong = [
        f"{stem}.{each}"
        for name, columns in inputs.items()
        for stem, _, part in [name.rpartition(".")]
        for each in _OTHERS.get(part, ())
        if columns is not None and (inputs.get(f"{stem}.{each}") or columns) != columns
    ]
    if not wrong:
        return None
    return about_layers(ctx, "other inputs than the part before it", wrong, _AGAIN)


_OTHERS = {parts[0]: parts[1:] for parts in PARTS.values()}


@rule(
    "PP783",
    "fused-input-scales-differ",
    "warning",
    stage="run",
    source=(
        f"{_QUANT}/modelopt.py:2111-2130",
        f"{_CT}/schemes/compressed_tensors_w4a4_nvfp4.py:112-124",
    ),
)
def inputs_differ(ctx: Context) -> Found:
    """Parts of a fused layer have different NVFP4 scales for the same input.

    Why:
        q, k and v read one input. The engine takes the largest of the three scales and warns that
        this likely costs accuracy; the quantization tools calibrate them together.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: NVFP4, ignore: [lm_head]}
          tensors:
            "model.layers.0.mlp.gate_proj.weight": "U8 [32, 16]"
            "model.layers.0.mlp.gate_proj.weight_scale": "F8_E4M3 [32, 2]"
            "model.layers.0.mlp.gate_proj.weight_scale_2": "F32 []"
            "model.layers.0.mlp.gate_proj.input_scale": "F32 []"
            "model.layers.0.mlp.up_proj.weight": "U8 [32, 16]"
            "model.layers.0.mlp.up_proj.weight_scale": "F8_E4M3 [32, 2]"
            "model.layers.0.mlp.up_proj.weight_scale_2": "F32 []"
            "model.layers.0.mlp.up_proj.input_scale": "F32 []"
          scales:
            model.layers.0.mlp.gate_proj.input_scale: [0.01]
            model.layers.0.mlp.up_proj.input_scale: [0.02]

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4}
          tensors:
            "model.layers.0.mlp.gate_proj.weight": "U8 [32, 16]"
            "model.layers.0.mlp.gate_proj.weight_scale": "F8_E4M3 [32, 2]"
            "model.layers.0.mlp.gate_proj.weight_scale_2": "F32 []"
    """
    layers = layers_of(ctx)
    form = layers.contract.format if layers is not None and layers.contract else ""
    name = {"nvfp4": "input_scale", "ct_nvfp4": "input_global_scale"}.get(form)
    if layers is None or layers.contract is None or name is None:
        return None
    if name not in {each.name for each in layers.contract.others}:
        return None
    scales, differ = layers.files.scales, []
    for key, value in scales.items():
        stem, _, part = key.removesuffix(f".{name}").rpartition(".")
        if not key.endswith(f".{name}") or part not in _OTHERS or ".experts." in key:
            continue
        differ += [
            f"{stem}.{each}"
            for each in _OTHERS[part]
            if scales.get(f"{stem}.{each}.{name}", value) != value
        ]
    if not differ:
        return None
    fix = Fix("calibrate the parts of a fused layer together")
    return about_layers(ctx, f"{name} differs from that of the part before it", differ, fix)


@rule(
    "PP784",
    "scales-of-all-experts-in-one",
    "error",
    stage="worker",
    source=(
        "vllm@0.24.0:vllm/model_executor/models/qwen3_moe.py:531-665",
        "vllm@0.26.0:vllm/model_executor/layers/fused_moe/routed_experts.py",
        "vllm@0.27.0:vllm/model_executor/layers/fused_moe/routed_experts.py:425-450",
    ),
    needs=("vllm",),
)
def scales_in_one(ctx: Context) -> Found:
    """The experts' weights stand one by one, their scales in one tensor, before vLLM 0.27.

    Why:
        transformers saves FP8 experts so: experts.0.gate_proj.weight beside
        experts.gate_up_proj_scale_inv. Up to 0.24 vLLM passes over the latter without a word and
        the scales stay uninitialized; 0.25 and 0.26 transpose them like weights.

    Bad:
        software: {framework: vllm, vllm: 0.24.0}
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.experts.0.down_proj.weight: "F8_E4M3 [128, 128]"
            model.layers.0.mlp.experts.down_proj_scale_inv: "F32 [1, 1, 1]"

    Good:
        software: {framework: vllm, vllm: 0.27.0}
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.experts.0.down_proj.weight: "F8_E4M3 [128, 128]"
            model.layers.0.mlp.experts.down_proj_scale_inv: "F32 [1, 1, 1]"
    """
    layers = layers_of(ctx)
    if layers is None or layers.engine != "vllm" or ctx.at_least("vllm", "0.27") is not False:
        return None
    found = [
        name
        for contract, tensors, names in conforming(layers)
        for each in contract.others
        if each.name.startswith("weight") and each.name not in tensors
        for name in names
        if layers.fused_scale(name, each.name)
    ]
    if not found:
        return None
    fix = Fix("split the scales like the weights (experts.0.gate_proj.weight_scale_inv)")
    because = Because(f"vLLM {ctx.target.package('vllm')} reads scales expert by expert")
    return about_layers(ctx, "scales in one tensor for all experts", found, fix, because)


RULES: tuple[Rule, ...] = (
    fused_experts,
    zero_points,
    no_shape,
    parts_disagree,
    inputs_differ,
    scales_in_one,
)

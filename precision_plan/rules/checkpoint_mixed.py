"""PP785 and PP786: ModelOpt checkpoints whose layers have formats of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.checkpoint_contracts import contract_of
from precision_plan.facts.vllm_quant import resolve_method
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_layers, layers_of
from precision_plan.rules.checkpoint_names import FUSED, PARTS, spellings
from precision_plan.rules.checkpoint_table import CheckpointLayers, Tensors

_MIXED = "vllm@0.33.0:vllm/model_executor/layers/quantization/modelopt.py:1574-1919"


def _declared(layers: CheckpointLayers | None) -> Mapping[str, Mapping[str, Any]]:
    """``quantized_layers`` of a mixed checkpoint; empty for any other."""
    if layers is None or resolve_method(layers.quantization) != "modelopt_mixed":
        return {}
    nested = layers.quantization.get("quantization")
    holder = nested if isinstance(nested, Mapping) else layers.quantization
    found = holder.get("quantized_layers")
    if not isinstance(found, Mapping):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, Mapping)}


@rule(
    "PP785",
    "mixed-layer-not-as-declared",
    "error",
    stage="worker",
    source=(_MIXED, "NVIDIA/Model-Optimizer@0.47.0:modelopt/torch/export/quant_utils.py"),
)
def not_as_declared(ctx: Context) -> Iterator[Finding]:
    """A layer of a mixed ModelOpt checkpoint lacks the tensors of its algorithm.

    Why:
        quantized_layers gives each layer an algorithm, and the engine allocates what that one
        needs. A scale that is not there stays uninitialized, and a weight of another algorithm does
        not fit or is converted value by value.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: MIXED_PRECISION
              quantized_layers: {model.layers.0.mlp.down_proj: {quant_algo: FP8}}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: MIXED_PRECISION
              quantized_layers: {model.layers.0.mlp.down_proj: {quant_algo: FP8}}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.0.mlp.down_proj.input_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    wrong: dict[tuple[str, str], list[str]] = {}
    for name, info in _declared(layers).items():
        tensors = layers.modules.get(name) if layers else None
        algorithm = str(info.get("quant_algo", "")).upper()
        lacking = _lacking(algorithm, tensors) if tensors else None
        if lacking is not None:
            wrong.setdefault((algorithm, lacking), []).append(name)
    for (algorithm, lacking), names in wrong.items():
        because = Because(f"quantized_layers: {algorithm}")
        fix = Fix("state the algorithm that the layer was quantized with, or convert again")
        yield about_layers(ctx, f"no {lacking} of {algorithm}", names, fix, because)


def _lacking(algorithm: str, tensors: Tensors) -> str | None:
    contract = contract_of({"quant_method": "modelopt", "quant_algo": algorithm})
    for each in (contract.weight, *contract.others) if contract else ():
        head = tensors.get(each.name)
        if head is None or head.dtype not in each.dtypes:
            return f"{each.name} in {each.dtypes[0]}"
    return None


@rule(
    "PP786",
    "quantized-layer-not-declared",
    "error",
    stage="worker",
    source=(_MIXED,),
)
def not_declared(ctx: Context) -> Found:
    """A mixed ModelOpt checkpoint has quantized layers that quantized_layers does not name.

    Why:
        What the mapping does not name is built in BF16. Packed weights then do not fit, and FP8
        values arrive without their scale.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: MIXED_PRECISION
              quantized_layers: {model.layers.0.mlp.down_proj: {quant_algo: FP8}}
          tensors:
            model.layers.0.self_attn.o_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.self_attn.o_proj.weight_scale: "F32 []"
            model.layers.0.self_attn.o_proj.input_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: MIXED_PRECISION
              quantized_layers: {model.layers.0.self_attn.o_proj: {quant_algo: FP8}}
          tensors:
            model.layers.0.self_attn.o_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.self_attn.o_proj.weight_scale: "F32 []"
            model.layers.0.self_attn.o_proj.input_scale: "F32 []"
    """
    layers = layers_of(ctx)
    declared = _declared(layers)
    if layers is None or not declared or layers.engine != "vllm":
        return None
    found = [
        name
        for _, names in layers.judged(layers.quantized)
        for name in names
        if ".experts." not in name and not _named(name, declared, layers.ignored.wrapper)
    ]
    if not found:
        return None
    because = Because(f"quantized_layers names {len(declared):,} layers")
    fix = Fix("add them to quantized_layers with their quant_algo")
    return about_layers(ctx, "quantized, but not in quantized_layers", found, fix, because)


def _named(name: str, declared: Mapping[str, object], wrapper: bool) -> bool:
    """True if an entry is the layer, the fused layer that it becomes part of, or another part."""
    stem, _, part = name.rpartition(".")
    parts = PARTS.get(FUSED.get(part, ""), (part,))
    return any(
        each in declared for other in parts for each in spellings(f"{stem}.{other}", wrapper)
    )


RULES: tuple[Rule, ...] = (not_as_declared, not_declared)

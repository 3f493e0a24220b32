"""PP780 and PP781: the output head of a quantized checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_layers, judging, layers_of
from precision_plan.rules.checkpoint_table import CheckpointLayers, quantized

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_CT = f"{_QUANT}/compressed_tensors"


@rule(
    "PP780",
    "quantized-head-not-read",
    "error",
    stage="worker",
    source=(
        f"{_QUANT}/fp8.py:176-208",
        f"{_QUANT}/auto_awq.py:288-300",
        f"{_QUANT}/utils/gptq_utils.py:175-190",
        f"{_CT}/compressed_tensors.py:186-193",
    ),
)
def head_not_read(ctx: Context) -> Found:
    """The output head is stored quantized, and the method does not quantize heads.

    Why:
        fp8 knows linear layers and experts only; AWQ and GPTQ quantize the head if their
        configuration says ``lm_head: true``, compressed-tensors if a target names it (Linear does
        not). The engine's head is BF16 then: FP8 values arrive without their scale, packed ones
        do not fit.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {lm_head.weight: "F8_E4M3 [128, 64]", lm_head.weight_scale: "F32 []"}

    Good:
        files:
          config:
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, modules_to_not_convert: [lm_head]}
          tensors: {lm_head.weight: "BF16 [128, 64]"}
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None or layers.engine != "vllm":
        return None
    found = [name for name in _heads(layers) if quantized(layers.modules[name])]
    if not found or _reads_head(layers, found[0]) or layers.ignored.listed(found[0]):
        return None
    return about_layers(ctx, "a quantized head that is not read", found, Fix("store it in BF16"))


def _heads(layers: CheckpointLayers) -> list[str]:
    return [name for name in layers.modules if name.rpartition(".")[2] == "lm_head"]


def _reads_head(layers: CheckpointLayers, name: str) -> bool:
    """True unless the method certainly leaves the head unquantized."""
    facts = quant_methods().get(layers.ignored.method or "")
    if facts is None or facts.head is None or facts.head == "linear":
        return True
    if facts.head == "never":
        return False
    if facts.head == "lm_head":
        return bool(layers.quantization.get("lm_head"))
    return any(_targets(each, name) for each in layers.ignored.targets)


def _targets(target: str, name: str) -> bool:
    try:
        return target == name or (target[:3] == "re:" and bool(re.match(target[3:], name)))
    except re.error:
        return True


@rule(
    "PP781",
    "unquantized-head-not-ignored",
    "warning",
    stage="worker",
    source=(f"{_QUANT}/modelopt.py:228-262", "vllm@0.23.0:vllm/model_executor/layers/quantization"),
    needs=("vllm",),
)
def head_not_ignored(ctx: Context) -> Found:
    """A ModelOpt checkpoint stores its head in BF16 and does not exclude it.

    Why:
        From 0.23 on vLLM quantizes the output head of ModelOpt checkpoints like any linear layer,
        unless the list names it. BF16 values then do not fit packed weights, or lose their scale.
        ModelOpt itself writes lm_head into the list.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: [model.norm]}
          tensors:
            lm_head.weight: "BF16 [128, 64]"
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.0.mlp.down_proj.input_scale: "F32 []"

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: [lm_head]}
          tensors:
            lm_head.weight: "BF16 [128, 64]"
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.0.mlp.down_proj.input_scale: "F32 []"
    """
    layers = judging(ctx)
    if layers is None or layers.engine != "vllm" or not layers.quantized:
        return None
    facts = quant_methods().get(layers.ignored.method or "")
    if facts is None or facts.head != "linear" or not ctx.at_least("vllm", "0.23"):
        return None
    if _tied(layers.files.config) or _tied(layers.files.text_config):
        return None
    found = [
        name
        for name in _heads(layers)
        if not quantized(layers.modules[name]) and not layers.ignored.holds(name)
    ]
    if not found:
        return None
    fix = Fix(f"add lm_head to {layers.ignored.key}")
    return about_layers(ctx, f"a head in BF16, but not in {layers.ignored.key}", found, fix)


def _tied(config: Mapping[str, Any]) -> bool:
    return config.get("tie_word_embeddings") is True


RULES: tuple[Rule, ...] = (head_not_read, head_not_ignored)

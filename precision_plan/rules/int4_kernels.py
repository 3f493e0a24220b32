"""PP805 to PP807: INT4 kernels of the engines against group sizes, widths and activation order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from precision_plan.facts.versions import VersionRange
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS
from precision_plan.rules.shapes_rollout import engine_tp
from precision_plan.rules.vllm_engine import CONFIG, engine_dtype, serves

_LAYERS = "vllm/model_executor/layers"
_TILE = 128
"""Inputs that one thread block of Marlin takes."""


@rule(
    "PP805",
    "int4-inputs-cut-through-marlin-tiles",
    "error",
    stage="worker",
    source=(
        f"vllm@0.12.0:{_LAYERS}/quantization/utils/marlin_utils.py:25-163",
        f"vllm@0.12.0:{_LAYERS}/quantization/kernels/mixed_precision/marlin.py:57",
        "vllm-project/llm-compressor#1489",
        "vllm-project/vllm#9913",
    ),
    versions={"vllm": VersionRange(None, "0.19")},
    needs=("vllm",),
)
def marlin_tiles(ctx: Context) -> Iterator[Finding]:
    """No INT4 kernel of vLLM up to 0.19 takes a BF16 layer of this width in these groups.

    Why:
        Marlin reads 128 inputs at a time and, until it learned to pad, refuses a layer whose
        inputs on one rank are no multiple. Machete and Conch take groups of 128 only, Exllama
        float16 only. With groups of 32 or 64 in bfloat16 none is left.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.12.0}
        model: {hidden_size: 4096, ffn_hidden_size: 8256}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 64}
        rollout: {dtype: bfloat16}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm, vllm: 0.12.0}
        model: {hidden_size: 4096, ffn_hidden_size: 8192}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 64}
        rollout: {dtype: bfloat16}
    """
    config, model = ctx.plan.checkpoint.quantization_config, ctx.plan.model
    if config is None or config.group_size not in {32, 64} or not serves(ctx):
        return
    if config.quant_method not in {"compressed-tensors", "gptq"} or ctx.target.platform == "rocm":
        return
    if config.format not in {None, "pack-quantized"} or engine_dtype(ctx)[0] != "bfloat16":
        return
    if model.num_experts is not None or model.ffn_hidden_size is None:
        return
    tp, field = engine_tp(ctx)
    size, ranks = model.ffn_hidden_size, tp or 1
    if size % (ranks * config.group_size) or size % (ranks * _TILE) == 0:
        return  # PP803 speaks of cut groups
    yield ctx.found(
        f"{size} / {ranks} inputs of the down projection are not a multiple of {_TILE}",
        "model.ffn_hidden_size",
        f"{CONFIG}.group_size",
        field,
        "software.vllm",
        fix=(
            Fix("leave the layer out of the quantization"),
            set_to(("software.vllm", "0.33.0"), also=" (it pads)"),
        ),
    )


@rule(
    "PP806",
    "ordered-expert-scales-not-sharded",
    "error",
    stage="run",
    source=(
        "vllm-project/vllm#41511",
        "vllm-project/vllm#41161",
        f"vllm@0.23.0:{_LAYERS}/quantization/compressed_tensors/compressed_tensors_moe/"
        "compressed_tensors_moe_wna16_marlin.py:234",
        f"vllm@0.24.0:{_LAYERS}/quantization/compressed_tensors/compressed_tensors_moe/"
        "compressed_tensors_moe_wna16_marlin.py:193-202",
    ),
    versions={"vllm": VersionRange(None, "0.23")},
    needs=("vllm",),
)
def ordered_experts(ctx: Context) -> Found:
    """vLLM up to 0.23 loads the scales of ordered INT4 experts whole on every rank.

    Why:
        Any activation order made the loader keep all scales of the down projection, as if columns
        were permuted while they are computed. `static` and `weight` order the weights beforehand:
        their scales have to be cut with the weights. The kernel infers a smaller group from the
        extra rows and fails, or computes nonsense. 0.24 looks at the kind.

    Bad:
        software: {framework: vllm, vllm: 0.20.0}
        model: {num_experts: 128}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32,
             actorder: static}
        rollout: {tensor_parallel_size: 2}

    Good:
        software: {framework: vllm, vllm: 0.24.0}
        model: {num_experts: 128}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32,
             actorder: static}
        rollout: {tensor_parallel_size: 2}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method != "compressed-tensors" or not serves(ctx):
        return None
    if not ctx.plan.model.num_experts or config.actorder not in {"static", "weight"}:
        return None
    tp, field = engine_tp(ctx)
    if tp is None or tp < 2 or ctx.plan.rollout.enable_expert_parallel:
        return None
    return ctx.found(
        f"expert scales with actorder {config.actorder} are not cut over {tp} ranks",
        f"{CONFIG}.actorder",
        field,
        "software.vllm",
        fix=(
            set_to(("software.vllm", "0.24.0"), also=" or later"),
            set_to(("rollout.enable_expert_parallel", True)),
        ),
    )


@rule(
    "PP807",
    "sglang-int4-fp8-experts-need-groups-of-128",
    "error",
    stage="run",
    source=("sgl-project/sglang#38573", "sgl-project/sglang#21741"),
    frameworks=SGLANG_FRAMEWORKS,
)
def sglang_w4a8(ctx: Context) -> Found:
    """SGLang multiplies INT4 experts with FP8 activations in groups of 128, whatever was stored.

    Why:
        The kernel is called with the number 128, while the scales are made and loaded for the
        checkpoint's group_size. Another group loads without a word and is multiplied by the wrong
        scales.

    Bad:
        software: {framework: slime}
        model: {num_experts: 128}
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights: {num_bits: 4, type: int, strategy: group, group_size: 64}
                  input_activations: {num_bits: 8, type: float, strategy: token}

    Good:
        software: {framework: slime}
        model: {num_experts: 128}
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights: {num_bits: 4, type: int, strategy: group, group_size: 128}
                  input_activations: {num_bits: 8, type: float, strategy: token}
    """
    raw = ctx.checkpoint.quantization_config if ctx.checkpoint is not None else None
    groups = raw.get("config_groups") if raw is not None else None
    if not isinstance(groups, Mapping) or not ctx.plan.model.num_experts:
        return None
    for group in groups.values():
        size = _w4a8_group(group)
        if size not in {None, 128}:
            return ctx.found(
                f"INT4 experts in groups of {size} with FP8 activations",
                f"{CONFIG}.group_size",
                "software.framework",
                fix=(Fix("convert the checkpoint with groups of 128"),),
            )
    return None


def _w4a8_group(group: object) -> object:
    """The group size of INT4 weights beside FP8 activations; ``None`` for any other scheme."""
    if not isinstance(group, Mapping):
        return None
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping) or not isinstance(inputs, Mapping):
        return None
    int4 = weights.get("num_bits") == 4 and weights.get("type") == "int"
    fp8 = inputs.get("num_bits") == 8 and inputs.get("type") == "float"
    return weights.get("group_size") if int4 and fp8 else None


RULES: tuple[Rule, ...] = (marlin_tiles, ordered_experts, sglang_w4a8)

"""What one plan trains and what it serves, in the format names of ``facts.formats``.

``int4_qat`` and ``nvfp4_qat`` are BF16 training with fake quantization, as in
:mod:`precision_plan.facts.pairs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from precision_plan.facts.pairs import online_formats
from precision_plan.plan.environment import FIELD_VARIABLES

if TYPE_CHECKING:
    from precision_plan.plan import PrecisionPlan
    from precision_plan.plan.serving import QuantizationConfig
    from precision_plan.rules.base import Context


SGLANG_FRAMEWORKS = ("slime", "miles")
"""Frameworks whose rollout engine is SGLang: vLLM's rules do not speak of them."""

INT4_FLAG = FIELD_VARIABLES["qat.int4_fake_qat"]
INT4_GROUP = FIELD_VARIABLES["qat.int4_group_size"]
NVFP4_FLAG = FIELD_VARIABLES["qat.nvfp4_fake_qat"]
FP32_SCALES = FIELD_VARIABLES["training.fp8_block_scaling_fp32_scales"]

_FP8_RECIPES: Mapping[str, str] = MappingProxyType(
    {
        "blockwise": "fp8_block",
        "mxfp8": "mxfp8",
        "tensorwise": "fp8_per_tensor",
        "delayed": "fp8_per_tensor",
    }
)

_COMPRESSED: Mapping[str, str] = MappingProxyType(
    {
        "pack-quantized": "int4",
        "nvfp4-pack-quantized": "nvfp4",
        "mxfp8-quantized": "mxfp8",
        "mxfp4-pack-quantized": "mxfp4",
        "int-quantized": "int8",
    }
)


def fake_qat(ctx: Context) -> str | None:
    """``int4_qat`` or ``nvfp4_qat`` if the train actor's environment turns it on.

    The readers compare with the text ``1``; anything else is off.
    """
    env = ctx.train_env
    found = env.get(NVFP4_FLAG)
    if found is not None and found[0] == "1":
        return "nvfp4_qat"
    found = env.get(INT4_FLAG)
    if found is not None and found[0] == "1":
        return "int4_qat"
    return None


def train_format(ctx: Context) -> str:
    """Format of the trainer's GEMMs, or the fake-quantized format that it simulates.

    A custom recipe is ``custom``: what it computes in is its factory's business.
    """
    args = ctx.args
    if args.fp4:
        return "custom" if args.fp4_recipe == "custom" else "nvfp4"
    if args.fp8:
        return _FP8_RECIPES.get(args.fp8_recipe, "custom")
    simulated = fake_qat(ctx)
    if simulated is not None:
        return simulated
    return "fp16" if args.fp16 else "bf16" if args.bf16 else "fp32"


def config_format(config: QuantizationConfig) -> str | None:
    """Format that a ``quantization_config`` describes; ``None`` if it does not say."""
    method, algo = config.quant_method, config.quant_algo or ""
    if method == "fp8":
        return "fp8_block" if config.weight_block_size else "fp8_per_tensor"
    if method in {"mxfp8", "mxfp4", "nvfp4"}:
        return method
    if method is not None and method.startswith("modelopt"):
        if "NVFP4" in algo or method == "modelopt_fp4":
            return "nvfp4"
        if algo == "MXFP8" or method == "modelopt_mxfp8":
            return "mxfp8"
        return "fp8_per_tensor" if algo == "FP8" else None
    if method == "compressed-tensors":
        if config.format == "float-quantized":
            return "fp8_block" if config.weight_block_size else "fp8_per_channel"
        found = _COMPRESSED.get(config.format or "")
        return "int8" if found == "int4" and config.bits == 8 else found
    return None


def rollout_format(plan: PrecisionPlan) -> str | None:
    """Format of the rollout weights; ``None`` if the plan does not say.

    What the checkpoint's ``quantization_config`` says comes first, because frameworks and
    engines read nothing else.
    """
    checkpoint = plan.checkpoint
    if checkpoint.quantization_config is not None:
        found = config_format(checkpoint.quantization_config)
        if found is not None:
            return found
    return plan.weight_sync.weight_format or checkpoint.hf_weight_format


def online_format(ctx: Context) -> str | None:
    """Format that vLLM itself quantizes an unquantized checkpoint to; ``None`` if it does not.

    The weight update then sends BF16 tensors, and the engine quantizes them again.
    """
    plan = ctx.plan
    if ctx.target.framework in SGLANG_FRAMEWORKS or plan.checkpoint.quantization_config is not None:
        return None
    if rollout_format(plan) not in {None, "bf16", "fp16"}:
        return None
    return online_formats().get(plan.rollout.quantization or "")


def served_format(ctx: Context) -> str | None:
    """:func:`rollout_format`, or what the engine makes of it online."""
    return online_format(ctx) or rollout_format(ctx.plan)

"""PP147 and PP824: one side of trainer and rollout rounds otherwise than the other, by choice."""

from __future__ import annotations

from precision_plan.facts.vllm import quant_names
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.pairing_dtypes import trained_and_served
from precision_plan.rules.vllm_engine import FLAG, serves


@rule(
    "PP147",
    "fp16-on-one-side",
    "error",
    stage="policy",
    source=("verl-project/verl#4036", "hiyouga/EasyR1#583"),
)
def fp16_on_one_side(ctx: Context) -> Found:
    """FP16 is set for the trainer or for the engine, and bfloat16 for the other.

    Why:
        FP16 in reinforcement learning is chosen for one purpose, to make the log-probabilities of
        both sides agree. Said for one side only it runs, and has the opposite effect: the sides
        round to other bits and overflow at other values. Both have to be said, because trainer,
        reference and engine are separate programs.

    Bad:
        training: {fp16: true}
        rollout: {dtype: bfloat16}

    Good:
        training: {fp16: true}
        rollout: {dtype: float16}
    """
    sides = trained_and_served(ctx)
    if sides is None or set(sides) != {"fp16", "bf16"}:
        return None
    trained, served = sides
    both = {"fp16": "float16", "bf16": "bfloat16"}[trained]
    return ctx.found(
        f"training in {trained}, rollout in {served}",
        "rollout.dtype",
        f"training.{trained}",
        fix=(set_to(("rollout.dtype", both)),),
    )


@rule(
    "PP824",
    "engine-quantizes-by-its-own-rule",
    "warning",
    stage="run",
    source=(
        "vllm-project/vllm#46400",
        "vllm@0.33.0:vllm/model_executor/layers/quantization/online/base.py:151-264",
    ),
    frameworks=("vime",),
)
def online_rounding(ctx: Context) -> Found:
    """The trainer quantizes by one rule, and the engine quantizes the pushed weights by another.

    Why:
        Training in FP8 is worth its trouble in reinforcement learning if both sides hold the same
        bytes. An engine that quantizes while it loads gets BF16 weights and rounds them itself:
        other reciprocals, another floor under the largest value, another rule for power-of-two
        exponents. A checkpoint that is quantized offline goes through the weight update's own
        quantizer, which follows the trainer's.

    Bad:
        software: {framework: vime, vllm: 0.33.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        rollout: {quantization: fp8_per_block}

    Good:
        software: {framework: vime, vllm: 0.33.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    flag, args = ctx.plan.rollout.quantization, ctx.args
    row = quant_names().get(flag) if flag is not None else None
    if row is None or not serves(ctx) or not (args.fp8 or args.fp4):
        return None
    if ctx.plan.checkpoint.quantization_config is not None:
        return None
    if row.kind != "online" and flag != "fp8":
        return None
    return ctx.found(
        f"{flag} quantizes in the engine, by another rule than the trainer's",
        FLAG,
        "training.fp8_recipe" if args.fp8 else "training.fp4_recipe",
        fix=(set_to((FLAG, None), also=" and serve a checkpoint that is quantized offline"),),
    )


RULES: tuple[Rule, ...] = (fp16_on_one_side, online_rounding)

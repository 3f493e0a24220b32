"""PP1xx: number formats of training."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule

_ARGUMENTS = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py"


@rule(
    "PP101",
    "fp16-with-bf16",
    "error",
    stage="validate",
    source=(
        f"{_ARGUMENTS}:703",
        "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py:916",
    ),
)
def fp16_with_bf16(ctx: Context) -> Found:
    """fp16 and bf16 exclude each other.

    Why:
        A model is trained in one base format. Megatron asserts that only one is on. vime, slime
        and miles set ``bf16 = not fp16`` before Megatron looks and so train in fp16 without a
        word; that is still an error here, because one of the two requests is not met.

    Bad:
        training: {bf16: true, fp16: true}

    Good:
        training: {bf16: true}
    """
    training = ctx.plan.training
    if not (training.fp16 and training.bf16):
        return None
    return Finding(
        "training.fp16 = true and training.bf16 = true exclude each other",
        field="training.fp16",
        because=(ctx.premise("training.bf16"),),
        fix=(
            Fix("remove training.fp16 to train in bf16", {"training.fp16": None}),
            Fix("remove training.bf16 to train in fp16 with loss scaling", {"training.bf16": None}),
        ),
    )


RULES: tuple[Rule, ...] = (fp16_with_bf16,)

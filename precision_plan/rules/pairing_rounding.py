"""PP147: trainer and rollout are told different half-precision formats."""

from __future__ import annotations

from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.pairing_dtypes import trained_and_served


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


RULES: tuple[Rule, ...] = (fp16_on_one_side,)

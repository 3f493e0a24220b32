"""PP508: what a recipe says of its own maturity."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules import pairing
from precision_plan.rules.base import Context, Found, Rule, rule


@rule(
    "PP508",
    "recipe-not-stable",
    "advice",
    stage="policy",
    source=("vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md",),
)
def not_stable(ctx: Context) -> Found:
    """The recipe calls itself beta or experimental.

    Why:
        Every recipe carries its maturity, and whoever launches it must see it. Where the formats
        themselves are the reason, PP501 says so and this rule is silent. The profile
        ``production`` raises both to a warning.

    Bad:
        recipe: {title: a hybrid model with an FP8 cache, maturity: beta}
        training: {bf16: true}

    Good:
        recipe: {title: a BF16 baseline, maturity: stable}
        training: {bf16: true}
    """
    maturity = ctx.plan.recipe.maturity
    if maturity is None or maturity == "stable" or pairing.maturity.check(ctx) is not None:
        return None
    return ctx.found(
        f"this recipe is {maturity}",
        "recipe.maturity",
        fix=(Fix("keep it if you mean it, and validate the model first"),),
    )


RULES: tuple[Rule, ...] = (not_stable,)

"""Plan -> what each program is told. Pure; never validates, never raises for a plan's content."""

from __future__ import annotations

from precision_plan.lower.context import Context
from precision_plan.lower.megatron import megatron_items
from precision_plan.lower.settings import settings
from precision_plan.lower.spelling import command_line
from precision_plan.plan import Lowering, PrecisionPlan
from precision_plan.plan.lowering import MegatronLowering

__all__ = ["lower"]


def lower(plan: PrecisionPlan) -> Lowering:
    """Everything that a launch of ``plan`` needs, each item with its reason.

    What has no form at the declared versions is left out; that it is missing is for the rules
    to say.
    """
    context = Context.of(plan)
    items = megatron_items(context)
    return Lowering(
        megatron=MegatronLowering(
            argv=command_line(items),
            settings=settings(context) if context.trains else {},
            items=items,
        )
    )

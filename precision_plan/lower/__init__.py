"""Plan -> what each program is told. Pure; never validates, never raises for a plan's content."""

from __future__ import annotations

from types import MappingProxyType

from precision_plan.lower.checkpoint import checkpoint
from precision_plan.lower.context import Context
from precision_plan.lower.environment import trainer_variables
from precision_plan.lower.framework import extra_items, framework_items
from precision_plan.lower.megatron import megatron_items
from precision_plan.lower.ray import ray
from precision_plan.lower.roles import roles
from precision_plan.lower.scales import engine_scales
from precision_plan.lower.settings import settings
from precision_plan.lower.spelling import command_line
from precision_plan.lower.te_precision import precision_file
from precision_plan.lower.transformer_engine import transformer_engine
from precision_plan.lower.vllm import vllm
from precision_plan.plan import Lowering, PrecisionPlan
from precision_plan.plan.environment import train_env
from precision_plan.plan.lowering import MegatronLowering, RayLowering
from precision_plan.plan.unknown import settled

__all__ = ["lower"]


def lower(plan: PrecisionPlan) -> Lowering:
    """Everything that a launch of ``plan`` needs, each item with its reason.

    What has no form at the declared versions is left out, and what is not known before a launch;
    that it is missing is for the rules to say.
    """
    plan = settled(plan)
    context = Context.of(plan)
    engine = transformer_engine(context)
    variables = trainer_variables(context)
    recipe = tuple(item for item in engine.items if item.name in engine.env)
    given = {name: value for name, (value, _) in train_env(plan).items()}
    scales = engine_scales(context, {**given, **engine.env})
    job = ray(context, (*variables, *recipe, *scales))
    return Lowering(
        megatron=_megatron(context, job),
        transformer_engine=engine,
        ray=job,
        vllm=vllm(context, job.roles.get("rollout_engine", {})),
        checkpoint=checkpoint(context),
        roles=roles(context),
        layers=() if context.layers is None or context.infers else context.layers.ranges(),
    )


def _megatron(context: Context, job: RayLowering) -> MegatronLowering:
    """The trainer's command line; a framework's own arguments follow Megatron's."""
    if not context.trains:
        return MegatronLowering()
    items = (
        *megatron_items(context),
        *framework_items(context, job.train_env_vars),
        *extra_items(context),
    )
    env = {item.name: item.value for item in trainer_variables(context)}
    return MegatronLowering(
        argv=command_line(items),
        env=MappingProxyType(env),
        settings=settings(context),
        files=MappingProxyType(precision_file(context)),
        items=items,
    )

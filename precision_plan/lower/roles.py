"""The table of tensor roles: what each one is stored or computed in, and what decides that.

A role that the plan does not have is ``none``; what the plan cannot tell is ``unknown``.
"""

from __future__ import annotations

from precision_plan.lower.context import Context
from precision_plan.lower.roles_rollout import rollout_roles
from precision_plan.lower.roles_training import training_roles
from precision_plan.plan import Role


def roles(context: Context) -> tuple[Role, ...]:
    """All rows, training first, in a fixed order."""
    return (*training_roles(context), *rollout_roles(context))

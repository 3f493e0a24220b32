"""Text to plan: the one room that knows Hydra and YAML."""

from precision_plan.compose.composer import LAUNCHERS, OPTIONS, Composer
from precision_plan.compose.composition import Composition
from precision_plan.compose.schema import PlanResult, build_plan

__all__ = ["LAUNCHERS", "OPTIONS", "Composer", "Composition", "PlanResult", "build_plan"]

"""The pipeline, and the one place where composing, rules and lowering meet.

``compile`` turns one recipe into a checked plan with everything that a launch needs; ``lint``
checks any number of recipes and stops before lowering.
"""

from precision_plan.api.comparing import Side, diff, lint_lock, lock
from precision_plan.api.compiling import compile
from precision_plan.api.linting import lint
from precision_plan.api.preflighting import preflight
from precision_plan.api.support import matrix
from precision_plan.api.tracing import why

__all__ = ["Side", "compile", "diff", "lint", "lint_lock", "lock", "matrix", "preflight", "why"]

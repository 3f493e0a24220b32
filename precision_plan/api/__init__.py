"""The pipeline, and the one place where composing, rules and lowering meet.

``compile`` turns one recipe into a checked plan with everything that a launch needs; ``lint``
checks any number of recipes and stops before lowering. Each function is loaded on first use: a
dry run needs nothing of what the others do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precision_plan.api.comparing import Side, diff, lint_lock, lock
    from precision_plan.api.compiling import compile
    from precision_plan.api.importing import import_script
    from precision_plan.api.linting import lint
    from precision_plan.api.preflighting import preflight
    from precision_plan.api.support import matrix
    from precision_plan.api.tracing import why

__all__ = [
    "Side",
    "compile",
    "diff",
    "import_script",
    "lint",
    "lint_lock",
    "lock",
    "matrix",
    "preflight",
    "why",
]

_HOME = {
    "Side": "comparing",
    "compile": "compiling",
    "diff": "comparing",
    "import_script": "importing",
    "lint": "linting",
    "lint_lock": "comparing",
    "lock": "comparing",
    "matrix": "support",
    "preflight": "preflighting",
    "why": "tracing",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"precision_plan.api.{_HOME[name]}"), name)
    globals()[name] = value
    return value

"""Compile one YAML recipe into checked precision settings for Megatron-LM, TE, vLLM and Ray.

The names below are the library's promise. They are loaded on first use, so that importing the
package costs nothing; everything else may change without notice.
"""

from precision_plan._version import __version__

TYPE_CHECKING = False  # importing typing for its constant would cost a third of the start-up
if TYPE_CHECKING:
    from precision_plan.api import compile, lint, matrix
    from precision_plan.plan import Diagnostic, Lowering, Origin, PrecisionPlan
    from precision_plan.plan.compiled import Compiled, LintReport

__all__ = [
    "Compiled",
    "Diagnostic",
    "LintReport",
    "Lowering",
    "Origin",
    "PrecisionPlan",
    "__version__",
    "compile",
    "lint",
    "matrix",
]

_HOME = {
    "Compiled": "precision_plan.plan.compiled",
    "Diagnostic": "precision_plan.plan",
    "LintReport": "precision_plan.plan.compiled",
    "Lowering": "precision_plan.plan",
    "Origin": "precision_plan.plan",
    "PrecisionPlan": "precision_plan.plan",
    "compile": "precision_plan.api",
    "lint": "precision_plan.api",
    "matrix": "precision_plan.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

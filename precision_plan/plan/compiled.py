"""The result of compiling one recipe: what every renderer and every verb starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from precision_plan.plan.codes import is_broken_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from precision_plan.plan.diagnostic import Diagnostic
    from precision_plan.plan.fixes import Fixes
    from precision_plan.plan.leftover import Leftover
    from precision_plan.plan.lowering import Lowering
    from precision_plan.plan.precision_plan import PrecisionPlan


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled recipe.

    ``lowering`` is ``None`` if the input was broken; it is there when rules found errors, so that
    a person can see what would have been launched. ``unchecked`` maps the rules that could not
    speak to what is not known; ``seconds`` is the wall time spent. ``options`` are those of the
    launch that are no part of the plan (``dry_run``, ``launcher``). ``unknown`` says how a script
    writes the values of fields that are not known before it runs.
    """

    name: str
    plan: PrecisionPlan
    diagnostics: tuple[Diagnostic, ...]
    lowering: Lowering | None
    fingerprint: str
    rules_checked: int
    unchecked: Mapping[str, tuple[str, ...]]
    seconds: float
    options: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 clean, 1 errors found, 2 broken input."""
        return exit_code(self.diagnostics)


@dataclass(frozen=True, slots=True)
class BaselineUse:
    """What a baseline file did to a report.

    ``hidden`` are findings that it holds, ``gone`` is the number of its entries that are found no
    more, and ``recorded`` how many findings were written to it, if it was written.
    """

    file: str
    hidden: tuple[Diagnostic, ...] = ()
    gone: int = 0
    recorded: int | None = None


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings over any number of files.

    ``files`` were checked; ``skipped`` are YAML files in the folders that are no recipes, and
    scripts that start nothing. ``leftovers`` are what scripts say and nobody understood.
    ``diagnostics`` are those that count: what a ``baseline`` hides is told there.
    ``fixes`` tells what was fixed before, if anybody asked for that.
    """

    diagnostics: tuple[Diagnostic, ...]
    files: tuple[str, ...]
    rules_checked: int
    unchecked: Mapping[str, tuple[str, ...]]
    seconds: float
    skipped: tuple[str, ...] = ()
    baseline: BaselineUse | None = None
    fixes: Fixes | None = None
    leftovers: tuple[Leftover, ...] = ()


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was looked at before a launch, and what it says about the recipe.

    ``seen`` says in words what was found, by plan field; ``unseen`` names what was not looked at,
    and is therefore unknown. ``diagnostics`` are the findings that rest on what was seen, or those
    of a recipe that cannot be read. The legal sizes are what the checkpoint's layers can be divided
    by, without and with expert parallelism; ``None`` where headers do not tell.
    """

    name: str
    diagnostics: tuple[Diagnostic, ...]
    seen: Mapping[str, str]
    unseen: tuple[str, ...]
    rules_checked: int
    unchecked: Mapping[str, tuple[str, ...]]
    seconds: float
    legal_tensor_parallel_sizes: tuple[int, ...] | None = None
    legal_expert_parallel_sizes: tuple[int, ...] | None = None


def exit_code(diagnostics: tuple[Diagnostic, ...], fail_on: str = "error") -> int:
    """Exit code of a list of findings; ``fail_on`` is ``error``, ``warning`` or ``advice``."""
    if any(is_broken_input(found) for found in diagnostics):
        return 2
    failing = {"error": ("error",), "warning": ("error", "warning")}.get(
        fail_on, ("error", "warning", "advice")
    )
    return int(any(found.severity in failing for found in diagnostics))

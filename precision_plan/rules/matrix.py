"""Fills the support matrix: each cell is a minimal plan, and the rules judge it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from precision_plan.facts.gpus import gpus as known_gpus
from precision_plan.facts.pairs import formats_of, settings_of, train_rollout_pair
from precision_plan.plan import Diagnostic, PrecisionPlan
from precision_plan.plan.matrix import Cell, Matrix, Reason, RuleLine, Status
from precision_plan.rules.engine import check
from precision_plan.rules.pairing import outside_documented_hardware, unsupported_pair
from precision_plan.rules.registry import rules

UNSUPPORTED = frozenset({unsupported_pair.id, outside_documented_hardware.id})
"""Warnings that say: the framework does not support this pair, or not on this GPU."""

_MATURITY: Mapping[str | None, Status] = {
    "stable": "supported",
    "beta": "beta",
    "experimental": "experimental",
}


def matrix(gpus: Sequence[str], frameworks: Sequence[str], versions: Mapping[str, str]) -> Matrix:
    """Judge every pair of formats; ``versions`` are those of packages, what is absent is unknown.

    Raises:
        KeyError: if there is no such GPU.
    """
    table = known_gpus()
    cells = tuple(
        cell_of(framework, gpu, train, rollout, versions)
        for framework in frameworks
        for train in formats_of("train")
        for rollout in formats_of("rollout")
        for gpu in gpus
    )
    named = {reason.id for cell in cells for reason in cell.reasons}
    return Matrix(
        frameworks=tuple(frameworks),
        gpus=tuple(gpus),
        capabilities={gpu: table[gpu].capability_text for gpu in gpus},
        versions=dict(versions),
        cells=cells,
        rules=tuple(
            RuleLine(rule.id, rule.slug, rule.summary, rule.source)
            for rule in rules().values()
            if rule.id in named
        ),
    )


def cell_of(
    framework: str, gpu: str, train: str, rollout: str, versions: Mapping[str, str]
) -> Cell:
    """Build the cell's minimal plan and let the rules judge it.

    Raises:
        KeyError: if there is no such GPU.
    """
    plan: dict[str, dict[str, Any]] = {
        "software": {"framework": framework, **versions},
        "hardware": {"gpu": gpu},
    }
    product = known_gpus()[gpu]
    for row in settings_of("train", train, framework, product):
        _merge(plan, row.settings)
    for row in settings_of("rollout", rollout, framework, product):
        _merge(plan, row.settings)
    found = check(PrecisionPlan.model_validate(plan)).diagnostics
    loud = sorted((each for each in found if each.severity != "advice"), key=_rank)
    pair = train_rollout_pair(train, rollout, framework)
    status: Status = "undocumented" if pair is None else _MATURITY.get(pair.maturity, "unsupported")
    if any(each.severity == "error" for each in loud):
        status = "refused"
    elif any(each.id in UNSUPPORTED for each in loud):
        status = "unsupported"
    return Cell(
        framework=framework,
        gpu=gpu,
        train=train,
        rollout=rollout,
        status=status,
        reasons=tuple(Reason(each.id, each.severity, each.message) for each in loud),
        plan=plan,
        source=None if pair is None else pair.source,
        note=None if pair is None else pair.note,
        needs=() if pair is None else pair.needs,
    )


def _rank(found: Diagnostic) -> tuple[bool, bool, bool, str]:
    """Errors first, then what makes the status; within both the hardware: no other fix helps there.

    A rule that needs the GPU to speak is one about the hardware.
    """
    error = found.severity == "error"
    hardware = "gpu" in rules()[found.id].scope.needs
    return not error, not error and found.id not in UNSUPPORTED, not hardware, found.id


def _merge(plan: dict[str, dict[str, Any]], settings: Mapping[str, Mapping[str, Any]]) -> None:
    for section, values in settings.items():
        plan.setdefault(section, {}).update(_plain(values))


def _plain(value: Any) -> Any:
    """Frozen facts as plain dicts and lists, which a recipe could hold."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value

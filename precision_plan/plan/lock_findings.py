"""What differs between a lock and today's plan, as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from precision_plan._version import __version__
from precision_plan.facts.resume import resume_effects
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.comparison import Change, Comparison, Told
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.lock import Lock
from precision_plan.plan.mask import Mask
from precision_plan.plan.origin import UNKNOWN, Origin
from precision_plan.plan.resume import Resumed, resume, resumed_from

_SHOWN = 4
"""Effects that one finding lists."""


def lock_findings(lock: Lock, found: Comparison) -> Iterator[Diagnostic]:
    """Findings of comparing ``lock`` (the first side) with today's plan (the second)."""
    mask = found.b.mask
    fields = {change.name for change in found.plan}
    for change in found.plan:
        mine = [each for each in found.effects if _asked_by(each, change.name)]
        yield _field_finding(lock, change, mine, mask)
    rest = [each for each in found.effects if not any(_asked_by(each, name) for name in fields)]
    if rest:
        yield _effect_finding(lock, rest, bool(fields), mask)
    loaded = resumed_from(found.b)
    if loaded is not None and found.differs:
        for each in resume(found.a, found.b):
            yield _resume_finding(lock, each, loaded, found)


def _asked_by(effect: Change, field: str) -> bool:
    asked = [told.reason.field for told in (effect.before, effect.after) if told and told.reason]
    return any(name == field or (name or "").startswith(f"{field}.") for name in asked)


def _field_finding(lock: Lock, change: Change, effects: Sequence[Change], mask: Mask) -> Diagnostic:
    now = change.after
    origin = now.origin if now is not None and now.origin is not None else Origin(lock.file)
    return compose_diagnostic(
        "PP030",
        f"{change.name}: {_both(change, mask)}",
        origin,
        field=change.name,
        because=(
            Because(f"locked in {lock.file}"),
            *(Because(f"it lowers to {_effect(each, mask)}") for each in effects[:_SHOWN]),
        ),
        fix=(Fix("set it back, or write the lock again: precision-plan lock RECIPE -o FILE"),),
        stage="policy",
    )


def _effect_finding(
    lock: Lock, effects: Sequence[Change], plan_differs: bool, mask: Mask
) -> Diagnostic:
    shown = [Because(_effect(each, mask)) for each in effects[:_SHOWN]]
    if len(effects) > _SHOWN:
        shown.append(Because(f"and {len(effects) - _SHOWN} more: precision-plan diff LOCK RECIPE"))
    today = f"precision-plan {__version__}"
    if plan_differs:
        message = f"{_settings(effects)} differ along with the plan"
    else:
        message = f"the plan is the same, but {_settings(effects)} differ"
        if lock.written_by != today:
            shown.append(Because(f"{lock.file} was written by {lock.written_by}; this is {today}"))
    return compose_diagnostic(
        "PP031",
        message,
        Origin(lock.file),
        because=tuple(shown),
        fix=(Fix("look at precision-plan diff LOCK RECIPE; if it is meant, write the lock again"),),
        stage="policy",
    )


def _settings(effects: Sequence[Change]) -> str:
    return f"{len(effects)} lowered setting{'s' if len(effects) > 1 else ''}"


def _resume_finding(lock: Lock, found: Resumed, loaded: str, both: Comparison) -> Diagnostic:
    unnoticed = resume_effects()["unnoticed"]
    return compose_diagnostic(
        "PP032" if found.effect.loses else "PP033",
        f"{found.what}: {found.before} in the lock, {found.after} today; {found.effect.effect}",
        both.b.origins.get("checkpoint.load", UNKNOWN),
        field="checkpoint.load",
        because=(
            Because(f"checkpoint.load = {both.b.mask.text(loaded)}", "checkpoint.load"),
            Because(f"its formats are those of {lock.file}"),
            Because(unnoticed.effect),
        ),
        fix=(
            Fix("keep the locked formats"),
            *([Fix("checkpoint.no_load_optim: true")] if found.of_optimizer else ()),
        ),
        source=(*found.effect.source.split("; "), unnoticed.source),
        stage="run",
    )


# Words ----------------------------------------------------------------------------------------
def _effect(change: Change, mask: Mask) -> str:
    seen = f" ({', '.join(change.roles)})" if change.roles else ""
    return f"{change.target} {change.name}{seen}: {_both(change, mask)}"


def _both(change: Change, mask: Mask) -> str:
    before, after = _side(change, change.before, mask), _side(change, change.after, mask)
    return f"{before} in the lock, {after} today"


def _side(change: Change, told: Told | None, mask: Mask) -> str:
    return "not set" if told is None else value_text(mask.named(change.key, told.value))


def value_text(value: Any, limit: int = 80) -> str:
    """A value as one short text."""
    import json

    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."

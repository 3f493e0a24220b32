"""Megatron's flags in the sources against those of the facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from precision_plan.drift.argparse_rules import ENUM_NAME, Flag
from precision_plan.drift.changes import Change, Gap, about_precision
from precision_plan.drift.values import Computed
from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_parser import other_flags
from precision_plan.facts.megatron_shape import shape_flags

_SAME_TYPE = {None: "str", "enum_type_handler": ENUM_NAME}
_TAKES_VALUES = frozenset({"store", "append", "extend"})
_ASPECTS = ("flags", "dest", "action", "type", "nargs", "choices", "default")


def known_flags(megatron_core: str) -> list[MegatronFlag]:
    """Every flag of the facts at one version, each in the form that it has there."""
    every = (*megatron_flags(), *shape_flags(), *other_flags())
    return [flag.at(megatron_core) for flag in every if megatron_core in flag.versions]


def is_export_flag(flag: MegatronFlag) -> bool:
    """True for flags of the export scripts' parser (``add_modelopt_args``)."""
    return (flag.group or "").startswith("post_training")


def compare_flags(
    found: Iterable[Flag], known_ones: Iterable[MegatronFlag], megatron_core: str
) -> Iterator[Change]:
    """Flags that appeared, vanished or changed.

    Two flags are the same if they share a spelling; the one that shares most is taken.

    Args:
        known_ones: flags of the facts that the parsers read should have.
    """
    by_spelling: dict[str, list[Flag]] = {}
    flags = list(found)
    for flag in flags:
        for spelling in flag.flags:
            by_spelling.setdefault(spelling, []).append(flag)
    matched: set[int] = set()
    for known in known_ones:
        candidates = [flag for name in known.flags for flag in by_spelling.get(name, ())]
        if not candidates:
            yield vanished(known)
            continue
        flag = max(candidates, key=candidates.count)
        matched.add(id(flag))
        yield from changed(known, flag)
    for flag in flags:
        if id(flag) not in matched:
            yield appeared(flag, megatron_core)


def vanished(known: MegatronFlag) -> Change:
    """A flag of the facts that the sources lack."""
    return Change("vanished", "flag", known.flags[0], is_precise(known), fact_source=known.source)


def appeared(flag: Flag, megatron_core: str) -> Change:
    """A flag of the sources that the facts lack at this version."""
    return Change(
        "appeared",
        "flag",
        flag.flags[0],
        any(map(about_precision, flag.flags)),
        sources=describe(flag),
        at=flag.source,
        note=_other_versions(flag, megatron_core),
    )


def changed(known: MegatronFlag, flag: Flag) -> Iterator[Change]:
    """What differs between a flag of the facts and the same flag of the sources.

    What only running the sources would tell is not compared, nor is the default of a flag whose
    row has none.
    """
    for aspect in _ASPECTS:
        ours, theirs = getattr(known, aspect), getattr(flag, aspect)
        if isinstance(theirs, Computed) or (aspect == "default" and not known.field):
            continue
        if aspect == "type" and flag.action not in _TAKES_VALUES:
            continue
        if not _same(aspect, ours, theirs):
            yield Change(
                "changed",
                "flag",
                known.flags[0],
                is_precise(known),
                aspect=aspect,
                facts=_listed(ours),
                sources=_listed(theirs),
                at=flag.source,
                fact_source=known.source,
            )


def conditional(changes: Iterable[Change]) -> tuple[list[Gap], list[Change]]:
    """Set apart the flags that exist under a condition and that the facts have for other versions.

    Whether such a flag is there depends on what else is installed; the facts speak of a plain
    installation.

    Returns:
        The flags by condition, and the other changes.
    """
    by_condition: dict[str, list[str]] = {}
    others: list[Change] = []
    for change in changes:
        condition = change.sources.get("condition") if change.kind == "appeared" else None
        if condition is None or change.note is None:
            others.append(change)
        else:
            by_condition.setdefault(condition, []).append(f"{change.name} ({change.note})")
    gaps = [
        Gap(f"flags that exist only if {condition}", tuple(names))
        for condition, names in by_condition.items()
    ]
    return gaps, others


def describe(flag: Flag) -> dict[str, Any]:
    """What a row of the facts would say of a flag of the sources."""
    texts = {aspect: _listed(getattr(flag, aspect)) for aspect in (*_ASPECTS, "condition")}
    return {key: text for key, text in texts.items() if text is not None}


def is_precise(known: MegatronFlag) -> bool:
    """True for the flags of the precision table, and for others that speak of precision."""
    return known.flags[0] in _precise() or any(map(about_precision, known.flags))


@lru_cache(maxsize=1)
def _precise() -> frozenset[str]:
    return frozenset(flag.flags[0] for flag in megatron_flags())


def _same(aspect: str, ours: Any, theirs: Any) -> bool:
    if aspect == "type":
        return bool(_SAME_TYPE.get(ours, ours) == _SAME_TYPE.get(theirs, theirs))
    if aspect in ("flags", "choices") and ours is not None and theirs is not None:
        return {str(item) for item in ours} == set(theirs)
    return (type(ours) is type(theirs) and ours == theirs) or _equal_numbers(ours, theirs)


def _equal_numbers(ours: Any, theirs: Any) -> bool:
    """1 and 1.0 are one default; True and 1 are not."""
    numbers = all(isinstance(side, int | float) for side in (ours, theirs))
    return numbers and not (isinstance(ours, bool) or isinstance(theirs, bool)) and ours == theirs


def _listed(value: Any) -> Any:
    if isinstance(value, Computed):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _other_versions(flag: Flag, megatron_core: str) -> str | None:
    """When the facts have the flag, if they have it at all."""
    spans = [
        str(known.versions)
        for known in (*megatron_flags(), *shape_flags(), *other_flags())
        if set(known.flags) & set(flag.flags)
    ]
    return f"in the facts for {' and '.join(spans)}, not for {megatron_core}" if spans else None

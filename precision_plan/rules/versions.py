"""PP290 and PP291: flags and choices that the declared Megatron version does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_shape import (
    command_line_at,
    megadlm_command_line,
    shape_flags,
)
from precision_plan.facts.versions import VersionRange
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to, shown
from precision_plan.rules.sources import arguments

_OFF = {"store_true": False, "store_false": True}


@dataclass(frozen=True, slots=True)
class _Absent:
    """A field whose flag another version has; ``neutral`` is the value that needs no flag."""

    field: str
    flag: MegatronFlag
    neutral: Any


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """A field that takes fewer values than in some other version."""

    field: str
    flag: MegatronFlag
    choices: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is missing at one version, by section and field name."""

    absent: Mapping[str, tuple[tuple[str, _Absent], ...]]
    narrowed: Mapping[str, tuple[tuple[str, _Narrowed], ...]]


def _all_choices(flag: MegatronFlag) -> set[str]:
    known = set(flag.choices or ())
    for _, delta in flag.changes:
        known.update(delta.get("choices") or ())
    return known


@lru_cache(maxsize=32)
def _frame(megatron_core: str, megadlm: bool) -> _Frame:
    present = megadlm_command_line() if megadlm else command_line_at(megatron_core)
    absent: dict[str, list[tuple[str, _Absent]]] = {}
    narrowed: dict[str, list[tuple[str, _Narrowed]]] = {}
    for flag in (*megatron_flags(), *shape_flags()):
        section, _, name = flag.field.partition(".")
        here = present.get(flag.field)
        if here is None:
            row = _Absent(flag.field, flag, _OFF.get(flag.action))
            absent.setdefault(section, []).append((name, row))
        elif here.choices is not None and _all_choices(flag) - set(here.choices):
            choices = frozenset(here.choices)
            narrowed.setdefault(section, []).append((name, _Narrowed(flag.field, here, choices)))
    return _Frame(
        {section: tuple(rows) for section, rows in absent.items()},
        {section: tuple(rows) for section, rows in narrowed.items()},
    )


def _frame_of(ctx: Context) -> _Frame:
    return _frame(ctx.effective.megatron_core, ctx.target.framework == "megadlm")


def _program(ctx: Context) -> str:
    if ctx.target.framework == "megadlm":
        return "MegaDLM"
    return f"Megatron {ctx.target.package('megatron_core')}"


@rule(
    "PP290",
    "flag-not-in-this-version",
    "error",
    stage="parse",
    source=(arguments(102), arguments(131, "core_v0.19.0")),
    needs=("megatron_core",),
)
def flag_not_in_version(ctx: Context) -> Iterator[Finding]:
    """The declared Megatron version has no flag for this setting.

    Why:
        Flags come and go between versions. Megatron's parser stops at an unknown one; vime and
        slime parse leniently and drop it without a word, and the run goes on without the setting.

    Bad:
        software: {megatron_core: 0.14.0}
        training: {bf16: true, fp4_format: e2m1}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp4_format: e2m1}
    """
    if not ctx.trains:
        return
    for section, rows in _frame_of(ctx).absent.items():
        values = getattr(ctx.plan, section).__dict__
        for name, row in rows:
            value = values.get(name)
            if value is None or value is row.neutral or value == ():
                continue
            flag = row.flag
            exists = "" if ctx.target.framework == "megadlm" else f" (it exists in {flag.versions})"
            yield ctx.found(
                f"{_program(ctx)} has no {flag.flags[0]} for {row.field} = {shown(value)}{exists}",
                row.field,
                "software.megatron_core",
                fix=(set_to((row.field, None)), *_other_version(ctx, flag.versions)),
            )


def _other_version(ctx: Context, versions: VersionRange) -> tuple[Any, ...]:
    wanted = versions.until or versions.since
    if wanted in {None, "HEAD"} or ctx.target.framework == "megadlm":
        return ()
    return (set_to(("software.megatron_core", wanted)),)


@rule(
    "PP291",
    "choice-not-in-this-version",
    "error",
    stage="parse",
    source=(arguments(102), arguments(106, "core_v0.15.3")),
    needs=("megatron_core",),
)
def choice_not_in_version(ctx: Context) -> Iterator[Finding]:
    """The declared Megatron version has the flag, but not with this value.

    Why:
        Choices grow with the versions: ``blockwise`` came with 0.13, ``custom`` with 0.16, bf16
        Adam moments with 0.13. argparse stops at an invalid choice.

    Bad:
        software: {megatron_core: 0.12.1}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        software: {megatron_core: 0.13.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    if not ctx.trains:
        return
    for section, rows in _frame_of(ctx).narrowed.items():
        values = getattr(ctx.plan, section).__dict__
        for name, row in rows:
            value = values.get(name)  # what is not known may be a good choice
            if value is None or value is False or value is True:
                continue
            given = value if isinstance(value, tuple) else (value,)
            if row.choices.issuperset(given):
                continue
            wrong = ", ".join(str(one) for one in given if one not in row.choices)
            yield ctx.found(
                f"{_program(ctx)} does not know {row.field} = {wrong}; it takes "
                f"{', '.join(row.flag.choices or ())}",
                row.field,
                "software.megatron_core",
                fix=(set_to((row.field, None)),),
            )


RULES: tuple[Rule, ...] = (flag_not_in_version, choice_not_in_version)

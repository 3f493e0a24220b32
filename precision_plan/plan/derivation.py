"""What a program takes for a field, step by step: its default, then what is decided in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from precision_plan.facts.env_vars import env_var
from precision_plan.facts.frameworks import RL_FRAMEWORKS, framework_flags
from precision_plan.facts.gpus import gpus
from precision_plan.facts.megatron_shape import command_line_at, megadlm_command_line
from precision_plan.facts.versions import is_version
from precision_plan.facts.vllm import DEFAULT_VERSION, engine_args_at
from precision_plan.plan.effective import Effective, effective
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import Target


@dataclass(frozen=True, slots=True)
class Step:
    """A value that no layer gave, who takes it, and the source that says so.

    A ``default`` is taken because nothing is set, a ``derived`` value follows from another field,
    a ``replaced`` one is put in place of what was there.
    """

    kind: Literal["default", "derived", "replaced"]
    value: Any
    because: str
    source: str | None = None


def derivation(plan: PrecisionPlan, field: str) -> tuple[Step, ...]:
    """How the value that is used comes about, where the plan does not set it or is not heeded.

    Empty for a field that the plan sets and nothing replaces, and for one of which no default is
    known: an unset field of the model or the machine is unknown.
    """
    target = Target.of(plan)
    steps = [*_engine(plan, target, field), *_framework(plan, target, field)]
    steps += [*_variable(plan, field), *_machine(plan, target, field)]
    if target.framework != "vllm":
        steps += _megatron(plan, target, field)
    return tuple(steps)


def _megatron(plan: PrecisionPlan, target: Target, field: str) -> Iterator[Step]:
    """Megatron's default, then every silent override by the framework and by Megatron itself."""
    if target.framework == "megadlm":
        flag = megadlm_command_line().get(field)
        if flag is not None and plan.get(field) is None:
            yield Step("default", flag.default, "the default of MegaDLM's parser", flag.source)
        return
    resolved: Effective = effective(plan, target)
    flag = command_line_at(resolved.megatron_core).get(field)
    if flag is None:
        return
    if plan.get(field) is None:
        because = f"the default of Megatron {resolved.megatron_core}"
        if target.package("megatron_core") is None:
            because += ", which stands in for the version that is not declared"
        yield Step("default", flag.default, because, flag.source)
    for override in resolved.overrides:
        if override.dest == flag.dest:
            yield Step("replaced", override.after, override.step.because, override.step.source)


def _framework(plan: PrecisionPlan, target: Target, field: str) -> Iterator[Step]:
    if target.framework not in RL_FRAMEWORKS or plan.get(field) is not None:
        return
    flag = framework_flags(target.framework).get(field)
    if flag is not None:
        yield Step(
            "default", flag.default, f"the default of {target.framework}'s parser", flag.source
        )


def _engine(plan: PrecisionPlan, target: Target, field: str) -> Iterator[Step]:
    serves = target.framework in ("vime", "vllm") or any(plan.rollout.set_items())
    if not serves or target.framework in ("slime", "miles") or plan.get(field) is not None:
        return
    declared = target.package("vllm")
    version = declared if declared is not None and is_version(declared) else DEFAULT_VERSION
    argument = engine_args_at(version).get(field)
    if argument is not None:
        because = f"the default of vLLM {version}"
        if declared is None:
            because += ", which stands in for the version that is not declared"
        yield Step("default", argument.default, because, argument.source)


def _variable(plan: PrecisionPlan, field: str) -> Iterator[Step]:
    name = FIELD_VARIABLES.get(field)
    row = None if name is None or plan.get(field) is not None else env_var(name)
    if row is not None:
        yield Step("default", row.default, f"what the unset {name} counts as", row.source)


def _machine(plan: PrecisionPlan, target: Target, field: str) -> Iterator[Step]:
    """What the name of the GPU says of the machine."""
    row = gpus().get(target.gpu or "")
    if row is None or plan.get(field) is not None:
        return
    source = row.source[0] if row.source else None
    if field == "hardware.compute_capability" and row.compute_capability is not None:
        yield Step("derived", row.capability_text, f"hardware.gpu = {row.name}", source)
    elif field == "hardware.platform":
        yield Step("derived", row.platform, f"hardware.gpu = {row.name}", source)

"""What every target reads: the plan, its target and the resolved Megatron arguments, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.megatron import MegatronFlag
from precision_plan.facts.megatron_shape import command_line_at, megadlm_command_line
from precision_plan.facts.versions import UnknownVersion, version
from precision_plan.plan import Effective, PrecisionPlan, Target, effective
from precision_plan.plan.layer_map import LayerMap, layer_map
from precision_plan.plan.target import PACKAGES

OLDEST_MEGATRON = "0.12.0"
"""The oldest version whose flags are known; an older one is lowered like this one."""


@dataclass(frozen=True, slots=True)
class Context:
    """The plan with everything that more than one target asks of it.

    ``flags`` maps a plan field to its Megatron flag at the declared version (MegaDLM's own for
    that framework); ``fields`` holds the plan's set fields. ``layers`` is ``None`` where nothing
    is trained.
    """

    plan: PrecisionPlan
    target: Target
    effective: Effective
    flags: Mapping[str, MegatronFlag]
    fields: Mapping[str, Any]
    layers: LayerMap | None

    @classmethod
    def of(cls, plan: PrecisionPlan) -> Context:
        """Resolve ``plan``; a version text that is no version counts as not declared."""
        plan = _with_known_versions(plan)
        target = Target.of(plan)
        resolved = effective(_with_inference_dtype(plan), target)
        flags = (
            megadlm_command_line()
            if target.framework == "megadlm"
            else command_line_at(resolved.megatron_core)
        )
        layers = layer_map(plan, target, resolved)
        return cls(plan, target, resolved, flags, dict(plan.set_fields()), layers)

    @property
    def framework(self) -> str | None:
        """The declared framework."""
        return self.target.framework

    @property
    def is_rl(self) -> bool:
        """True for a framework that runs training and rollout as one Ray job."""
        return self.target.framework in RL_FRAMEWORKS

    @property
    def trains(self) -> bool:
        """False where the plan only serves a model."""
        return self.target.framework != "vllm"

    @property
    def infers(self) -> bool:
        """True where Megatron runs a model without an optimizer."""
        fields = ("inference.quantization", "inference.dtype", "inference.export_quant_cfg")
        return (
            self.trains and not self.is_rl and any(self.get(field) is not None for field in fields)
        )

    def argument(self, dest: str) -> Any:
        """An argument of Megatron after every silent override; ``None`` if it has none."""
        return getattr(self.effective.args, dest, None)

    def get(self, field: str) -> Any:
        """Value of a plan field; ``None`` if it is not set."""
        return self.fields.get(field)


def _with_known_versions(plan: PrecisionPlan) -> PrecisionPlan:
    changes: dict[str, str | None] = {}
    for package in PACKAGES:
        text = getattr(plan.software, package)
        if text is None:
            continue
        try:
            known = version(text)
        except UnknownVersion:
            changes[package] = None
            continue
        if package == "megatron_core" and known < version(OLDEST_MEGATRON):
            changes[package] = OLDEST_MEGATRON
    if not changes:
        return plan
    return plan.model_copy(update={"software": plan.software.model_copy(update=changes)})


def _with_inference_dtype(plan: PrecisionPlan) -> PrecisionPlan:
    """Inference has no dtype of its own: it is said by the flag of the base format."""
    dtype = plan.inference.dtype
    rl = plan.software.framework in RL_FRAMEWORKS
    if rl or dtype not in ("bf16", "fp16") or getattr(plan.training, dtype) is not None:
        return plan
    return plan.model_copy(update={"training": plan.training.model_copy(update={dtype: True})})

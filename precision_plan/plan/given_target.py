"""A target that is given from outside: what a recipe or a checkpoint folder does not declare."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from precision_plan.facts.versions import is_version
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import PACKAGES
from precision_plan.plan.unknown import unknown, with_unknown

TARGET_KEYS: Mapping[str, str] = {
    "gpu": "hardware.gpu",
    "compute_capability": "hardware.compute_capability",
    "platform": "hardware.platform",
    "nodes": "hardware.nodes",
    "gpus_per_node": "hardware.gpus_per_node",
    "framework": "software.framework",
    **{package: f"software.{package}" for package in PACKAGES},
    "quantization": "rollout.quantization",
    "kv_cache_dtype": "rollout.kv_cache_dtype",
    "load_format": "rollout.load_format",
    "tensor_parallel_size": "rollout.tensor_parallel_size",
    "pipeline_parallel_size": "rollout.pipeline_parallel_size",
    "data_parallel_size": "rollout.data_parallel_size",
    "enable_expert_parallel": "rollout.enable_expert_parallel",
}
"""Keys of a target that is given from outside, and the plan fields that they fill."""

_NUMBERS = frozenset(
    {
        "nodes",
        "gpus_per_node",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
    }
)
_FLAGS = frozenset({"enable_expert_parallel"})
_OF_ONE_GPU = ("gpu", "compute_capability", "platform")


def check_target(target: Mapping[str, str]) -> None:
    """Check keys and values of a target that is given from outside.

    Raises:
        ValueError: if a key is none of :data:`TARGET_KEYS`, or the schema refuses a value, or that
            of a package is no version.
    """
    unknown = [key for key in target if key not in TARGET_KEYS]
    if unknown:
        raise ValueError(f"there is no target key {unknown[0]!r}; known: {', '.join(TARGET_KEYS)}")
    for key, value in target.items():
        if key in PACKAGES and not is_version(value):
            raise ValueError(
                f"target {key}={value}: it is no version (expected e.g. 0.16.1 or HEAD)"
            )
        try:
            with_target(PrecisionPlan(), {key: value})
        except ValidationError as error:
            because = error.errors()[0]["msg"]
            raise ValueError(f"target {key}={value}: {because[0].lower()}{because[1:]}") from None


def _typed(key: str, text: str) -> object:
    """A value of ``--target`` as the schema wants it; what is none stays text and is refused."""
    if key in _NUMBERS and text.isdecimal():
        return int(text)
    if key in _FLAGS and text in ("true", "false"):
        return text == "true"
    return text


def _is_open(plan: PrecisionPlan, field: str) -> bool:
    """True for a field that is not set; one that is set to something unknown is."""
    section, _, name = field.partition(".")
    return getattr(plan, section).__dict__.get(name, field) is None


def with_target(plan: PrecisionPlan, target: Mapping[str, str]) -> PrecisionPlan:
    """``plan`` with the fields of ``target`` that it leaves unset; a declared GPU is kept whole.

    Raises:
        ValueError: if the schema refuses a value.
    """
    changes: dict[str, dict[str, object]] = {}
    origins = dict(plan.origins)
    for key, value in target.items():
        field = TARGET_KEYS[key]
        section, _, name = field.partition(".")
        if not _is_open(plan, field):
            continue
        if key in _OF_ONE_GPU and not all(
            _is_open(plan, TARGET_KEYS[each]) for each in _OF_ONE_GPU
        ):
            continue
        changes.setdefault(section, {})[name] = _typed(key, value)
        origins[field] = Origin(f"--target {key}={value}", layer="target")
    if not changes:
        return plan
    sections = {
        section: type(getattr(plan, section)).model_validate(
            {**dict(getattr(plan, section).set_items()), **values}
        )
        for section, values in changes.items()
    }
    filled = plan.model_copy(update={**sections, "origins": origins})
    return with_unknown(
        filled, (name for name in unknown(plan) if name.partition(".")[0] in sections)
    )

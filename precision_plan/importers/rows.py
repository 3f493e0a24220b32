"""One row of ``lint --jsonl``: declared versions, GPU, environment and argv -> plan.

The values come from a table-driven parser and are of the right types already, so the sections are
built without validating again; ranges are the rules' business here, as they are the real
program's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from precision_plan.facts.megatron import DEFAULT_VERSION
from precision_plan.facts.megatron_parser import parser_at
from precision_plan.facts.vllm import DEFAULT_VERSION as DEFAULT_VLLM
from precision_plan.importers.argv import Parsed, parse
from precision_plan.importers.framework_argv import parse_framework_arguments
from precision_plan.importers.hf_config import (
    model_of,
    quantization_config_in,
    quantization_of,
)
from precision_plan.importers.vllm_argv import parse_engine_arguments
from precision_plan.plan import CheckpointFiles, PrecisionPlan
from precision_plan.plan.base import Section
from precision_plan.plan.serving import QuantizationConfig

_SECTIONS: Mapping[str, type[Section]] = {
    name: info.annotation
    for name, info in PrecisionPlan.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Section)
}
_EMPTY: Mapping[str, Section] = {name: section() for name, section in _SECTIONS.items()}
_EMPTY_PLAN = PrecisionPlan()


def plan_of(sections: Mapping[str, Mapping[str, Any]]) -> PrecisionPlan:
    """Build a plan from typed values by section, without validating them again."""
    built = {}
    for name, values in sections.items():
        if values:
            built[name] = _EMPTY[name].model_copy(update=values)
    return _EMPTY_PLAN.model_copy(update=built)


def takes(section: str, name: str, value: Any) -> bool:
    """True if a field of the plan may hold ``value``."""
    if isinstance(value, (str, int, float)):
        return _takes(section, name, value, type(value).__name__)
    return _SECTIONS[section].takes(name, value)


@lru_cache(maxsize=4096)
def _takes(section: str, name: str, value: Any, kind: str) -> bool:
    """``kind`` keeps ``1`` and ``true`` apart, which are equal."""
    return _SECTIONS[section].takes(name, value)


def megatron_row(row: Mapping[str, Any]) -> tuple[PrecisionPlan, Parsed]:
    """Plan of a row whose ``argv`` is Megatron's.

    What the row does not declare stays unknown; a declared but empty ``env`` is known to be empty.
    """
    versions = dict(row.get("versions") or {})
    parsed = parse(row.get("argv") or (), parser_at(versions.get("megatron_core", DEFAULT_VERSION)))
    sections: dict[str, dict[str, Any]] = {
        "hardware": _hardware(row),
        "software": {"framework": row.get("framework"), **versions},
    }
    for field, value in parsed.values.items():
        section, _, name = field.partition(".")
        sections.setdefault(section, {})[name] = value
    if parsed.others:
        sections["launch"] = {"extra_args": parsed.others}
    if row.get("env") is not None:
        sections["env"] = {"train_actor": dict(row["env"])}
    return plan_of(sections), parsed


def framework_row(row: Mapping[str, Any]) -> tuple[PrecisionPlan, Parsed]:
    """Plan of a row of an RL framework: Megatron's, its own and the engine's arguments."""
    versions = dict(row.get("versions") or {})
    parsed = parse_framework_arguments(
        row.get("argv") or (),
        row["framework"],
        versions.get("megatron_core", DEFAULT_VERSION),
        versions.get("vllm", DEFAULT_VLLM),
    )
    sections: dict[str, dict[str, Any]] = {
        "hardware": _hardware(row),
        "software": {"framework": row["framework"], **versions},
    }
    others = _fill(sections, parsed, "vllm_")
    if others:
        sections["launch"] = {**sections.get("launch", {}), "extra_args": others}
    if row.get("env") is not None:
        sections["env"] = {"all": dict(row["env"])}
    return plan_of(sections), parsed


def _fill(sections: dict[str, dict[str, Any]], parsed: Parsed, prefix: str = "") -> dict[str, Any]:
    """Put values into their sections; returns those that a parser takes and no plan can hold.

    ``prefix`` is what a framework puts before the engine's arguments.
    """
    others = dict(parsed.others)
    for field, value in parsed.values.items():
        section, _, name = field.partition(".")
        if _SECTIONS[section].takes(name, value):
            sections.setdefault(section, {})[name] = value
        else:
            others[f"{prefix}{name}" if section == "rollout" else name] = value
    return others


def vllm_row(row: Mapping[str, Any]) -> tuple[PrecisionPlan, Parsed, CheckpointFiles | None]:
    """Plan of a row whose ``argv`` is that of ``vllm serve``, and the configuration beside it."""
    versions = {"vllm": DEFAULT_VLLM, **(row.get("versions") or {})}
    parsed = parse_engine_arguments(row.get("argv") or (), versions["vllm"])
    checkpoint = _checkpoint(row)
    sections: dict[str, dict[str, Any]] = {
        "hardware": _hardware(row),
        "software": {"framework": "vllm", **versions},
    }
    others = _fill(sections, parsed)
    if others:
        sections["launch"] = {"extra_args": others}
    if row.get("env") is not None:
        sections["env"] = {"vllm_worker": dict(row["env"])}
    if checkpoint is not None:
        sections["model"] = model_of(checkpoint.config)
        config_file = _overridden(checkpoint, others)
        if config_file is not None:
            values = quantization_of(config_file)
            config = QuantizationConfig().model_copy(update=values)
            sections["checkpoint"] = {"quantization_config": config}
    return plan_of(sections), parsed, checkpoint


def _overridden(checkpoint: CheckpointFiles, others: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The quantization config as the engine sees it: --hf-overrides replaces the whole of it."""
    overrides = others.get("hf_overrides")
    given = overrides.get("quantization_config") if isinstance(overrides, Mapping) else None
    return given if isinstance(given, Mapping) else checkpoint.quantization_config


def _checkpoint(row: Mapping[str, Any]) -> CheckpointFiles | None:
    config = row.get("model_config")
    if config is None:
        return None
    beside = row.get("quantization_config")
    if beside is not None:
        config = {**config, "quantization_config": beside}
    found = quantization_config_in(config)
    return CheckpointFiles("", config, quantization_config=found.config, quantization_key=found.key)


def _hardware(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gpu": row.get("gpu"),
        "compute_capability": row.get("compute_capability"),
        "platform": row.get("platform"),
    }
    if row.get("world_size") is not None:
        found.update(nodes=1, gpus_per_node=row["world_size"])
    return found

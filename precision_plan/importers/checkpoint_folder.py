"""A checkpoint folder as a plan: what its files say of model and quantization, with positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.hf_config import config_keys
from precision_plan.importers.hf_config import model_of, quantization_of
from precision_plan.plan import CheckpointFiles, Origin, PrecisionPlan
from precision_plan.plan.sections import Model
from precision_plan.plan.serving import QuantizationConfig
from precision_plan.plan.unknown import known, unknown, with_unknown


def interpreted(files: CheckpointFiles) -> CheckpointFiles:
    """``files`` with what they say in the plan's terms; what the plan refuses is left out."""
    raw = files.quantization_config
    return dataclasses.replace(
        files,
        read_model=_accepted(Model, model_of(files.config)),
        read_quantization={}
        if raw is None
        else _accepted(QuantizationConfig, quantization_of(raw)),
    )


def plan_of(files: CheckpointFiles, framework: str | None = None) -> PrecisionPlan:
    """The plan of an engine that serves the folder: its model, its format, and nothing else.

    ``framework`` is who loads it; vLLM by itself if nobody says.
    """
    checkpoint: dict[str, Any] = {"hf_checkpoint": files.folder}
    if files.quantization_config is not None:
        checkpoint["quantization_config"] = dict(files.read_quantization)
        checkpoint["quantization_config_key"] = files.quantization_key
    plan = PrecisionPlan.model_validate(
        {
            "software": {"framework": framework or "vllm"},
            "model": dict(files.read_model),
            "checkpoint": checkpoint,
        }
    )
    return plan.model_copy(update={"origins": dict(_origins(files))})


_OF_THE_FILES = ("hf_architecture", "hf_model_type", "hf_torch_dtype")
"""What a trainer knows of its model from config.json; the rest its own arguments must say."""


def with_folder(plan: PrecisionPlan, files: CheckpointFiles) -> PrecisionPlan:
    """``plan`` with what the files say of model and quantization, where it is silent itself.

    For a launch that names the folder: no recipe stands beside it to describe the checkpoint.
    """
    engine = known(plan.software, "framework") == "vllm"
    model = {k: v for k, v in files.read_model.items() if engine or k in _OF_THE_FILES}
    checkpoint: dict[str, Any] = {}
    if files.quantization_config is not None:
        checkpoint["quantization_config"] = dict(files.read_quantization)
        checkpoint["quantization_config_key"] = files.quantization_key
    open_fields = unknown(plan)
    changes: dict[str, Any] = {}
    for section, values in (("model", model), ("checkpoint", checkpoint)):
        given = dict(getattr(plan, section).set_items())
        taken = {f"{section}.{name}" for name in given} | set(open_fields)
        more = {k: v for k, v in values.items() if f"{section}.{k}" not in taken}
        if more:
            changes[section] = type(getattr(plan, section)).model_validate({**given, **more})
    if not changes:
        return plan
    changes["origins"] = {**dict(_origins(files)), **plan.origins}
    filled = plan.model_copy(update=changes)
    return with_unknown(filled, (name for name in open_fields if name.partition(".")[0] in changes))


def _accepted(
    section: type[Model | QuantizationConfig], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that the section takes, one by one: the file is anybody's."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = getattr(section.model_validate({name: value}), name)
        except ValueError:
            continue
    return found


def _origins(files: CheckpointFiles) -> Iterator[tuple[str, Origin]]:
    keys = {row.field: row.keys for row in config_keys()}
    for name in files.read_model:
        field = f"model.{name}"
        yield field, files.config_position(*keys.get(field, ()))
    if files.quantization_config is not None:
        section = "checkpoint.quantization_config"
        yield section, files.quantization_position()
        for name in files.read_quantization:
            yield f"{section}.{name}", files.quantization_position(name)

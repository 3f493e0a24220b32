"""What a plan becomes: settings for each program, every one with the reason it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_plan.plan.layer_map import LayerRange

ROLES = ("driver", "train_actor", "rollout_engine", "vllm_worker", "converter")
"""Process roles of an RL job, in the order in which they start."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an item is emitted: the plan field that asks for it, or the fact that demands it.

    ``fact`` is a source (``repo@version:path:line``) where no plan field asked.
    """

    text: str
    field: str | None = None
    fact: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One lowered setting. ``value`` is ``True`` for a flag without a value."""

    name: str
    value: Any
    reason: Reason


@dataclass(frozen=True, slots=True)
class MegatronLowering:
    """Command line of the trainer.

    ``settings`` maps megatron-core dataclass names (``TransformerConfig``, ``OptimizerConfig``,
    ``DistributedDataParallelConfig``) to constructor keywords; dtypes are texts such as
    ``"float32"`` because this room does not know torch. ``files`` maps the name of a file that
    ``argv`` names to its content: whoever launches puts it where the command starts.
    """

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class TransformerEngineLowering:
    """The recipe class and its keywords (``None`` if nothing is quantized), and NVTE variables."""

    recipe: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class RayLowering:
    """The job's ``runtime_env`` and what each process role finally sees; values are strings."""

    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    train_env_vars: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class VllmLowering:
    """Engine arguments by field name, their command line, the framework's prefixed passthrough."""

    args: Mapping[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointLowering:
    """What ``config.json`` of the rollout checkpoint must hold and the tensors beside a weight.

    ``tensors`` maps a suffix (``weight_scale_inv``) to its dtype and shape as text.
    """

    quantization_config: Mapping[str, Any] | None = None
    ignore: tuple[str, ...] = ()
    tensors: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """One row of the printed table: a tensor role, its dtype and where that comes from.

    ``bytes_per_element`` counts scales in; ``None`` where it cannot be known before launch, or
    where modules differ. ``dtype`` is ``"unknown"`` rather than a guess, and names every format
    (``bf16, nvfp4``) where modules differ.
    """

    name: str
    dtype: str
    bytes_per_element: float | None
    origin: str


@dataclass(frozen=True, slots=True)
class Lowering:
    """Everything that a launch needs, by target.

    ``layers`` is the layer map in rows: the format of every linear module of every layer, and
    what decides it. It is empty where nothing is trained or the number of layers is not known.
    """

    megatron: MegatronLowering = field(default_factory=MegatronLowering)
    transformer_engine: TransformerEngineLowering = field(default_factory=TransformerEngineLowering)
    ray: RayLowering = field(default_factory=RayLowering)
    vllm: VllmLowering = field(default_factory=VllmLowering)
    checkpoint: CheckpointLowering = field(default_factory=CheckpointLowering)
    roles: tuple[Role, ...] = ()
    layers: tuple[LayerRange, ...] = ()

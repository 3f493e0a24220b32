"""Short spellings of what nearly every Megatron rule cites: upstream lines and version ranges."""

from __future__ import annotations

from collections.abc import Mapping

from precision_plan.facts.versions import VersionRange

DEFAULT_TAG = "core_v0.16.1"


def megatron(path: str, tag: str = DEFAULT_TAG) -> str:
    """``NVIDIA/Megatron-LM@TAG:megatron/PATH``; ``path`` holds the line (``core/x.py:12``)."""
    return f"NVIDIA/Megatron-LM@{tag}:megatron/{path}"


def arguments(line: int | str, tag: str = DEFAULT_TAG) -> str:
    """A line of ``validate_args`` or of the argument parser."""
    return megatron(f"training/arguments.py:{line}", tag)


def transformer_config(line: int | str, tag: str = DEFAULT_TAG) -> str:
    """A line of the checks of ``TransformerConfig``."""
    return megatron(f"core/transformer/transformer_config.py:{line}", tag)


def optimizer_config(line: int | str, tag: str = DEFAULT_TAG) -> str:
    """A line of the checks of ``OptimizerConfig``."""
    return megatron(f"core/optimizer/optimizer_config.py:{line}", tag)


def ddp_config(line: int | str, tag: str = DEFAULT_TAG) -> str:
    """A line of the checks of ``DistributedDataParallelConfig``."""
    return megatron(f"core/distributed/distributed_data_parallel_config.py:{line}", tag)


def core(since: str | None = None, until: str | None = None) -> Mapping[str, VersionRange]:
    """A range of megatron-core versions, as a rule's ``versions``."""
    return {"megatron_core": VersionRange(since, until)}

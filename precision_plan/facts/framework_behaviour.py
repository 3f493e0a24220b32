"""How each framework treats its command line, and where a process role's environment comes from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table

EnvLayer = Literal[
    "raylet",
    "shell",
    "job_runtime_env",
    "framework_default",
    "train_env_vars",
    "framework_final",
    "engine",
    "process",
]


class FrameworkBehaviour(NamedTuple):
    """The manners of one framework's parser.

    ``unknown_flags``: a misspelt flag is ``rejected`` or ``ignored`` without a message.
    ``abbreviations``: where a unique prefix of a flag
    matches it, too: nowhere, or among the engine's arguments only. ``forwards_defaults``: an engine
    argument that equals the engine's default still reaches the engine (``None``: no engine
    behind a prefix).
    """

    framework: str
    engine: Literal["vllm", "sglang"] | None
    unknown_flags: Literal["rejected", "ignored"]
    abbreviations: Literal["none", "engine"]
    forwards_defaults: bool | None
    source: str
    note: str | None = None


class EnvPrecedence(NamedTuple):
    """The layers of one role's environment; a later one wins."""

    role: str
    layers: tuple[EnvLayer, ...]
    source: str
    note: str | None = None


@lru_cache(maxsize=1)
def framework_behaviours() -> Mapping[str, FrameworkBehaviour]:
    """Every framework by name."""
    rows = table("framework_behaviour")
    return MappingProxyType({row["framework"]: record(FrameworkBehaviour, row) for row in rows})


@lru_cache(maxsize=1)
def env_precedence() -> Mapping[str, EnvPrecedence]:
    """The order of the environment's layers by process role."""
    return MappingProxyType(
        {row["role"]: record(EnvPrecedence, row) for row in table("env_precedence")}
    )

"""RL frameworks (vime, slime, miles): their arguments by plan field, and what they add to an
actor's environment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import parse_capability

RL_FRAMEWORKS = ("vime", "slime", "miles")
"""Frameworks that train with Megatron and roll out with an engine of their own, under Ray."""


class FrameworkFlag(NamedTuple):
    """One argument of a framework's own parser.

    ``meaning`` says in a phrase what it decides. ``action`` is argparse's; ``boolean`` is the
    pair ``--x`` and ``--no-x``.
    """

    flags: tuple[str, ...]
    field: str
    meaning: str
    frameworks: tuple[str, ...]
    action: Literal["store", "store_true", "boolean"]
    default: Any
    source: str
    type: str | None = None
    choices: tuple[str, ...] | None = None
    nargs: str | None = None
    note: str | None = None


class FrameworkVariable(NamedTuple):
    """One variable that a framework puts into an actor's environment, or takes out of it.

    ``how``: a ``default`` gives way to the job's value; ``forced`` replaces it; ``final`` also
    replaces a trainer-only variable; ``removed`` takes it away. ``when`` names the launch
    option without which it does not happen; ``min_cc`` and ``below_cc`` bound the compute
    capability.
    """

    name: str
    value: str | None
    roles: tuple[str, ...]
    frameworks: tuple[str, ...]
    how: Literal["default", "forced", "final", "removed"]
    source: str
    when: Literal["colocate", "offload_train"] | None = None
    min_cc: str | None = None
    below_cc: str | None = None
    note: str | None = None

    def holds(self, compute_capability: tuple[int, int] | None) -> bool:
        """True if the row is about this capability; a bounded row never is about an unknown one."""
        if self.min_cc is None and self.below_cc is None:
            return True
        if compute_capability is None:
            return False
        if self.min_cc is not None and compute_capability < parse_capability(self.min_cc):
            return False
        return self.below_cc is None or compute_capability < parse_capability(self.below_cc)


class EnginePassthrough(NamedTuple):
    """How a framework registers the engine's own arguments on its command line.

    ``dropped`` are the engine arguments that it does not register; with the prefix they vanish
    without a message.
    """

    framework: str
    engine: Literal["vllm", "sglang"]
    prefix: str
    dropped: tuple[str, ...]
    source: str


@lru_cache(maxsize=8)
def engine_passthrough(framework: str) -> EnginePassthrough | None:
    """The engine passthrough of one framework; ``None`` for one that has none."""
    for row in table("engine_passthrough"):
        if row["framework"] == framework:
            return record(EnginePassthrough, row)
    return None


@lru_cache(maxsize=8)
def framework_flags(framework: str) -> Mapping[str, FrameworkFlag]:
    """The arguments of one framework by plan field; empty for one that has none."""
    rows = (record(FrameworkFlag, row) for row in table("framework_flags"))
    return MappingProxyType({row.field: row for row in rows if framework in row.frameworks})


@lru_cache(maxsize=8)
def framework_env(framework: str) -> tuple[FrameworkVariable, ...]:
    """What one framework does to the environment of its actors, in order."""
    rows = (record(FrameworkVariable, row) for row in table("framework_env"))
    return tuple(row for row in rows if framework in row.frameworks)

"""A finding as a frozen value; formatters are pure functions of a list of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from precision_plan.plan.origin import UNKNOWN, Origin

Severity = Literal["error", "warning", "advice"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice")

Stage = Literal[
    "compose",  # the recipe itself: syntax, unknown keys, wrong types
    "parse",  # Megatron's argument parser
    "validate",  # Megatron's validate_args
    "transformer_config",  # the dataclasses' own checks
    "ddp_config",
    "optimizer_config",
    "te_recipe",  # building the Transformer Engine recipe
    "te_hardware",  # Transformer Engine's support check on the GPU
    "fused_adam",  # TE FusedAdam's constructor
    "engine_config",  # vLLM's engine configuration
    "attention_backend",  # vLLM's attention backend choice
    "worker",  # vLLM's workers: kernels, layers and weight loading, after the engine started
    "build",  # fails later, while the model or optimizer is built (read from source)
    "run",  # fails or trains something else later still
    "policy",  # this project's own law
]
"""Where the real program would notice: the first thing that a person would see fail."""


@dataclass(frozen=True, slots=True)
class Because:
    """One premise of a finding: a text and, where it is a setting, its field and position."""

    text: str
    field: str | None = None
    origin: Origin = UNKNOWN


@dataclass(frozen=True, slots=True)
class Fix:
    """A way out. ``edits`` maps plan fields to new values (``None`` removes the key).

    Of a script, a key may be an option as it is written, which gets another spelling.

    Only a ``safe`` fix is applied by ``lint --fix``: one that cannot change what is trained or
    served, or that spells a refused key or value as it can only have been meant. ``comment`` is
    the position of a comment that goes.
    """

    text: str
    edits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    applicability: Literal["safe", "suggested"] = "suggested"
    comment: Origin | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: what, where, because, and the ways out.

    ``field`` is the plan field (``section.name``) that the finding is about, ``stage`` where the
    real program would notice, ``source`` the upstream lines or issues that say so, and
    ``resolved`` the values that the framework would silently put in place of what was asked.
    """

    id: str
    slug: str
    severity: Severity
    message: str
    field: str | None = None
    origin: Origin = UNKNOWN
    because: tuple[Because, ...] = ()
    fix: tuple[Fix, ...] = ()
    source: tuple[str, ...] = ()
    stage: Stage = "compose"
    resolved: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def docs(self) -> str:
        """Path of the rule's page in the repository."""
        return f"docs/rules/{self.id}.md"

    @property
    def safe_fix(self) -> Fix | None:
        """The fix that ``lint --fix`` applies: the first one, if it is safe."""
        first = self.fix[0] if self.fix else None
        if first is None or first.applicability != "safe":
            return None
        return first if first.edits or first.comment else None

    def sort_key(self) -> tuple[int, str, int, int, str]:
        """Errors first, then by position."""
        where = self.origin
        return (SEVERITIES.index(self.severity), where.file, where.line, where.column, self.id)

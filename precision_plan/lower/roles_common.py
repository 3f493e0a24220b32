"""What both halves of the role table share."""

from __future__ import annotations

from precision_plan.facts.formats import formats
from precision_plan.lower.context import Context
from precision_plan.plan import Role

UNKNOWN = "unknown"
NONE = "none"


def row(name: str, format: str, origin: str, *, activation: bool = False, note: str = "") -> Role:
    """A row of one number format; its size counts the scales in."""
    known = formats().get(format)
    size = None
    if known is not None:
        size = known.activation_bytes_per_element if activation else known.bytes_per_element
    return Role(name, f"{format} {note}".rstrip(), size, origin)


def absent(name: str, why: str) -> Role:
    """A role that this plan does not have."""
    return Role(name, NONE, 0.0, why)


def unknown(name: str, why: str) -> Role:
    """A role that the plan cannot tell."""
    return Role(name, UNKNOWN, None, why)


def decided_by(context: Context, dest: str) -> str:
    """Who decides a Megatron argument: a plan field, a silent override or the default."""
    resolved = context.effective
    override = next((o for o in reversed(resolved.overrides) if o.dest == dest), None)
    if override is not None:
        return override.step.because
    field = resolved.given.get(dest)
    if field is not None:
        return field
    if context.framework == "megadlm":
        return "default of MegaDLM"
    return f"default of Megatron {resolved.megatron_core}"

"""Profiles grade strictness; one may raise a severity or drop advice, never lower an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from precision_plan.plan import Severity

if TYPE_CHECKING:
    from precision_plan.rules.base import Rule

Profile = Literal["explore", "ci", "production"]
PROFILES: tuple[Profile, ...] = ("explore", "ci", "production")


def severity_under(profile: Profile, rule: Rule) -> Severity | None:
    """Severity of a rule's findings under ``profile``; ``None`` silences them.

    ``explore`` shows errors only, ``production`` raises advice (experimental features among it)
    to warnings.
    """
    if profile == "explore" and rule.severity != "error":
        return None
    if profile == "production" and rule.severity == "advice":
        return "warning"
    return rule.severity

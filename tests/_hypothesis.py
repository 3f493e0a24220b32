"""How many examples the property tests generate.

The profile ``ci`` is the default: the same examples in every run. ``HYPOTHESIS_PROFILE=thorough``
generates new ones, as many as an hour takes.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FILTERED = (HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large)


def load_profile() -> None:
    """Register both profiles and load the one that the environment names."""
    settings.register_profile("ci", derandomize=True, deadline=None, print_blob=False)
    settings.register_profile("thorough", max_examples=20_000, deadline=None, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def examples(number: int) -> settings:
    """``number`` examples, or those of a thorough profile where they are more."""
    return settings(
        max_examples=max(number, settings().max_examples), suppress_health_check=_FILTERED
    )

"""What goes with what: the support matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from precision_plan.plan.given_target import check_target
from precision_plan.plan.target import PACKAGES

if TYPE_CHECKING:
    from precision_plan.plan.matrix import Matrix


def matrix(
    gpus: Sequence[str],
    *,
    frameworks: Sequence[str],
    versions: Mapping[str, str] | None = None,
) -> Matrix:
    """Which trained format goes with which rollout format: every cell judged by the rules.

    Args:
        gpus: names as in ``hardware.gpu``.
        frameworks: RL frameworks, names as in ``software.framework``.
        versions: of packages (:data:`plan.target.PACKAGES`); what is absent is unknown.

    Raises:
        KeyError: if there is no such GPU.
        ValueError: if a version is impossible or of another thing than a package.
    """
    from precision_plan.rules.matrix import matrix as judge

    other = [name for name in versions or {} if name not in PACKAGES]
    if other:
        raise ValueError(f"{other[0]!r} is no package; known: {', '.join(PACKAGES)}")
    check_target(versions or {})
    return judge(gpus, frameworks, versions or {})

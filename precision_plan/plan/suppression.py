"""A comment that silences a finding, with the reason that it must give."""

from __future__ import annotations

from dataclasses import dataclass

from precision_plan.plan.origin import Origin


@dataclass(frozen=True, slots=True)
class Suppression:
    """``# precision-plan: ignore[PP204, PP301] reason``.

    It covers findings whose field (or a premise of theirs) stands on ``line``: the comment's own
    line, or the next one if the comment stands alone. ``line`` 0 covers the whole file
    (``ignore-file[...]``). An empty ``reason`` is itself a finding.
    """

    ids: tuple[str, ...]
    reason: str
    line: int
    origin: Origin

"""What linting a number of scripts gives; apart, so that recipes need none of their readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from precision_plan.plan import Diagnostic
from precision_plan.plan.leftover import Leftover


@dataclass(frozen=True, slots=True)
class Scripts:
    """``files`` start something or have something wrong; ``skipped`` and ``foreign`` neither.

    ``foreign`` were named by a person, who must hear that nothing is in them.
    """

    diagnostics: tuple[Diagnostic, ...] = ()
    files: tuple[Path, ...] = ()
    skipped: tuple[Path, ...] = ()
    foreign: tuple[Path, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    rules: int = 0
    unchecked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

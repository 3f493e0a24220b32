"""What ``lint --fix`` does, or would do, to the files that it was given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from precision_plan.plan.diagnostic import Diagnostic, Fix


@dataclass(frozen=True, slots=True)
class Fixed:
    """A finding that is gone, and the fix that was applied; its position is the one before."""

    diagnostic: Diagnostic
    fix: Fix


@dataclass(frozen=True, slots=True)
class Unfixed:
    """A finding whose safe fix could not be applied; ``why`` is a part of a sentence."""

    diagnostic: Diagnostic
    fix: Fix
    why: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after; ``name`` is how messages call it. A byte order mark is text."""

    path: Path
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Fixes:
    """All of it: what is fixed, what could not be, and the files that change.

    ``proposed`` are changes of files that are never written, only shown: launch scripts;
    ``proposals`` are the findings that they would end.
    ``written`` is false for a dry run.
    """

    fixed: tuple[Fixed, ...] = ()
    unfixed: tuple[Unfixed, ...] = ()
    changes: tuple[FileChange, ...] = ()
    proposed: tuple[FileChange, ...] = ()
    proposals: tuple[Fixed, ...] = ()
    written: bool = False

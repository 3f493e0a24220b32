"""What the formats for CI know of a run besides its findings."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from precision_plan.plan.compiled import exit_code
from precision_plan.plan.diagnostic import SEVERITIES
from precision_plan.plan.origin import UNKNOWN
from precision_plan.render._layout import printable

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic, Origin
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._mask import Mask
    from precision_plan.render._pages import Page

_NO_FILE = frozenset({"override", "target"})
"""Layers whose origin is the text of an argument."""


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run took place and what decides its exit code.

    ``here`` is the folder that relative paths of a report start in, ``root`` the one that a
    reader's paths start in: the repository. ``pages`` maps the id of a rule to its page.
    """

    here: str = ""
    root: str = ""
    fail_on: str = "error"
    pages: Mapping[str, Page] = field(default_factory=dict)

    def exit_code(self, report: LintReport) -> int:
        """The exit code that goes with the report."""
        return exit_code(report.diagnostics, self.fail_on)

    def fails(self, found: Diagnostic) -> bool:
        """True if the finding alone makes the run fail."""
        return exit_code((found,), self.fail_on) != 0

    def path(self, file: str) -> str:
        """``file`` below :attr:`root`, with ``/``; absolute if it lies elsewhere."""
        path = posixpath.normpath(posixpath.join(_slashes(self.here), _slashes(file)))
        root = _slashes(self.root)
        if root and path == root:
            return "."
        inside = f"{root.rstrip('/')}/"
        return path[len(inside) :] if root and path.startswith(inside) else path

    def place(self, origin: Origin, mask: Mask) -> Place | None:
        """Where an origin is; ``None`` if it is not in a file."""
        if origin == UNKNOWN or not origin.file or origin.layer in _NO_FILE:
            return None
        return Place(mask.text(self.path(origin.file)), origin.line, origin.column)

    def place_of(self, found: Diagnostic, mask: Mask) -> Place | None:
        """Where a finding is: its own place, else that of the first premise that has one."""
        for origin in (found.origin, *(premise.origin for premise in found.because)):
            place = self.place(origin, mask)
            if place is not None:
                return place
        return None


class Place(NamedTuple):
    """A file as a reader of the repository names it; line and column count from 1, 0 is none."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = (str(number) for number in (self.line, self.column) if number)
        return ":".join((printable(self.path), *parts))


def in_order(report: LintReport) -> list[Diagnostic]:
    """Errors first: some readers show the first few findings only."""
    return sorted(report.diagnostics, key=lambda found: SEVERITIES.index(found.severity))


def _slashes(path: str) -> str:
    return path.replace(os.sep, "/")  # elsewhere than on Windows a backslash is part of a name

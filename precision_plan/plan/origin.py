"""Where a value came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Position of a key: ``line`` and ``column`` count from 1; 0 means *no position*.

    ``layer`` names who set it: ``recipe``, ``config``, a group choice such as
    ``hardware=h100``, ``override`` (a command-line override; ``file`` is then its text),
    ``argv``, ``env`` or ``script``.
    """

    file: str
    line: int = 0
    column: int = 0
    layer: str = ""

    def __str__(self) -> str:
        if not self.line:
            return self.file
        if not self.column:
            return f"{self.file}:{self.line}"
        return f"{self.file}:{self.line}:{self.column}"


UNKNOWN = Origin("<unknown>")

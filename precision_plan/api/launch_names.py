"""How a launch of a script is named: ``run.sh``, or ``run.sh#2`` if there are several."""

from __future__ import annotations

from pathlib import Path

from precision_plan.compose.discovery import is_script


def names_script(source: str | Path) -> bool:
    """True for a shell script, also with the number of a launch behind it."""
    try:
        return is_script(numbered(source)[0])
    except (OSError, ValueError):
        return False


def numbered(source: str | Path) -> tuple[Path, int | None]:
    """``run.sh#2`` as path and number."""
    head, mark, number = str(source).rpartition("#")
    if mark and number.isdecimal() and len(number) < 5 and not Path(source).exists():
        return Path(head), int(number)
    return Path(source), None

"""Where text goes: a terminal, a pipe or a file, and whether it may be coloured."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from precision_plan.cli._arguments import UsageError

PIPE_WIDTH = 80


def use_color(choice: str, stream: TextIO) -> bool:
    """Decide on colour: the option first, then NO_COLOR and FORCE_COLOR, then the terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def width(stream: TextIO) -> int:
    """Columns to lay text out for: ``COLUMNS``, the terminal's, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError):
        return PIPE_WIDTH


def emit(text: str, destination: str | None = None) -> None:
    """Print ``text``, or write it to the file ``destination``.

    Raises:
        UsageError: if the file cannot be written.
    """
    if destination is None or destination == "-":
        _print(text)
        return
    try:
        replace_file(Path(destination), text)
    except OSError as error:
        raise UsageError(f"cannot write {destination}: {error.strerror}") from error


def replace_file(path: Path, text: str) -> None:
    """Write beside ``path``, then rename: a reader sees the old file or the new, never half.

    A symbolic link is followed, and the mode of a file that exists is kept.
    """
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8", newline="")
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o7777)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _print(text: str) -> None:
    """Print to stdout; a reader that has gone away (``| head``) is not an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # a terminal that cannot show a character still gets the rest
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send what is left to nowhere: the interpreter flushes stdout once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

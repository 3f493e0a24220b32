"""Opens scripts: bounded, text only, and never anything but a regular file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from precision_plan.compose.reading import display_path
from precision_plan.importers.shell.state import Shell
from precision_plan.importers.texts import Source, Text

SCRIPT_LIMIT = 1 << 20
"""Bytes of the largest script that is read; a longer file is data or an accident."""

_PARENTS = 4
"""Folders above a script in which a path without a known start is looked for."""


class Unreadable(Exception):
    """A script that cannot be read; the text says why."""


def read_script_file(path: Path, *, binary: bool = False) -> bytes:
    """The bytes of a script; ``binary`` allows NUL bytes, as between a process's arguments.

    Raises:
        Unreadable: if it is no regular file, too large, not permitted, or not text.
    """
    try:
        if not path.exists():
            broken = path.is_symlink()
            raise Unreadable("it is a link that leads nowhere" if broken else "it does not exist")
        if not path.is_file():
            raise Unreadable("it is no regular file")
        size = path.stat().st_size
        if size > SCRIPT_LIMIT:
            raise Unreadable(f"it has {size:,} bytes, more than any script ({SCRIPT_LIMIT:,})")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable((error.strerror or str(error)).lower()) from None
    if b"\0" in data and not binary:
        raise Unreadable("it is no text: it holds NUL bytes")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 (byte {error.start})") from None
    return data.replace(b"\r\n", b"\n") if b"\r\n" in data else data


@lru_cache(maxsize=64)
def _source(shown: str, data: bytes) -> Source:
    """A file that scripts have in common is parsed once."""
    return Source(shown, data)


def source_file(shell: Shell, name: Text) -> Source | str:
    """The file that a script sources, or why it is not read.

    A relative path is looked for below the folder of the script, then where the tool runs, then
    below the folders above the script: scripts are started from a repository's root.
    """
    value = name.value
    if value is None:
        return "its name is not known"
    if "\0" in value or not value:
        return "its name is empty"
    top = Path(shell.top.file).parent
    starts = [Path(), top, *list(top.absolute().parents)[:_PARENTS]]
    candidates = [start / value for start in starts]  # an absolute value stays itself
    reason = "there is no such file"
    for candidate in candidates:
        shown = display_path(candidate)
        if shown in shell.instead:
            return Source(shown, shell.instead[shown])
        try:
            data = read_script_file(candidate)
        except Unreadable as error:
            if candidate.exists():
                reason = str(error)
            continue
        return _source(shown, data)
    return reason

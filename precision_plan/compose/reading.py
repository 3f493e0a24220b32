"""Reads a file that a person named: bounded, never blocking, one message for each obstacle."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import Origin

FILE_LIMIT = 1 << 20
"""Bytes. The largest recipe that is read; those in use are below 20 kB."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "its name is too long",
}
_MARK = "\ufeff"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Unreadable(Exception):
    """The file cannot be used; ``diagnostic`` (PP010, PP011 or PP012) says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def read_text(path: Path, shown: str) -> str:
    """Return the text of a regular UTF-8 file, without a byte order mark.

    Raises:
        Unreadable: as :func:`read_source` does.
    """
    return read_source(path, shown).removeprefix(_MARK)


def read_source(path: Path, shown: str) -> str:
    """Return the text of a regular UTF-8 file as it is: a byte order mark is its first character.

    ``shown`` is the name that messages use for it.

    Raises:
        Unreadable: if it is missing, not a regular file, not permitted, larger than
            :data:`FILE_LIMIT` or not text in UTF-8.
    """
    origin = Origin(shown)
    data = _read_bytes(path, origin)
    if data.startswith(_WIDE_MARKS):
        raise _refused("PP010", "the file is text in UTF-16", origin, "save it as UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused(
            "PP010",
            f"the file is not text in UTF-8: byte 0x{data[error.start]:02x} at offset "
            f"{error.start}",
            Origin(shown, line),
            "save it as UTF-8, or name another file",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _refused(
            "PP010",
            "the file is binary data: it contains NUL bytes",
            Origin(shown, line),
            "name a YAML file",
        )
    return text


def _read_bytes(path: Path, origin: Origin) -> bytes:
    try:
        # A named pipe without a writer would block a plain open for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        leads_nowhere = isinstance(error, FileNotFoundError) and path.is_symlink()
        reason = "its symbolic link leads nowhere" if leads_nowhere else _reason(error)
        raise _refused("PP010", f"cannot read {origin}: {reason}", origin) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "special")
            raise _refused(
                "PP010", f"cannot read {origin}: it is {kind}, not a regular file", origin
            )
        data = os.read(descriptor, FILE_LIMIT + 1)
        while len(data) <= FILE_LIMIT and (more := os.read(descriptor, FILE_LIMIT + 1)):
            data += more
    except OSError as error:
        raise _refused("PP010", f"cannot read {origin}: {_reason(error)}", origin) from None
    finally:
        os.close(descriptor)
    if len(data) > FILE_LIMIT:
        size = max(status.st_size, len(data))
        raise _refused(
            "PP012",
            f"the file has {size:,} bytes; a recipe has at most {FILE_LIMIT:,}",
            origin,
            "name a recipe, not data",
        )
    return data


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return _REASONS.get(error.errno or 0, (error.strerror or "it cannot be opened").lower())
    return "its name contains a NUL byte"


def _refused(code: str, message: str, origin: Origin, fix: str | None = None) -> Unreadable:
    fixes = (Fix(fix),) if fix else ()
    return Unreadable(compose_diagnostic(code, message, origin, fix=fixes))


def is_folder(path: Path) -> bool:
    """True for a folder; false for everything else, names that no system takes among it."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long


def display_path(path: Path) -> str:
    """``path`` as messages show it: relative to the current folder where it lies inside it."""
    text = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links, unlike Path.resolve
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # the current folder was removed
        return text
    prefix = here.rstrip(os.sep) + os.sep
    return text[len(prefix) :] if text.startswith(prefix) else text

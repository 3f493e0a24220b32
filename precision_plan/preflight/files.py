"""Opens the files of a folder that somebody named: regular files only, never blocking, bounded."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LFS_MARK = b"version https://git-lfs"
"""First bytes of the text that Git puts in place of a file kept by Git LFS."""

_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "its name is too long",
}


class Refused(Exception):
    """A file that cannot be used; the text says why."""


@contextmanager
def regular_file(path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file that is open for reading.

    Raises:
        Refused: if it cannot be opened or read, or is no regular file.
    """
    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            is_folder = stat.S_ISDIR(status.st_mode)
            raise Refused("it is a folder" if is_folder else "it is not a regular file")
        yield descriptor, status.st_size
    except OSError as error:
        raise Refused(_reason(error)) from None
    finally:
        os.close(descriptor)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
    found = os.pread(descriptor, length, offset)
    while len(found) < length and (
        more := os.pread(descriptor, length - len(found), offset + len(found))
    ):
        found += more
    return found


def read_whole(path: Path, limit: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        Refused: if it cannot be read or is longer than ``limit``.
    """
    with regular_file(path) as (descriptor, size):
        if size > limit:
            raise Refused(f"it has {size:,} bytes; at most {limit:,} are read")
        return read_at(descriptor, limit, 0) if size == 0 else read_at(descriptor, size, 0)


def _open(path: Path) -> int:
    try:
        # A named pipe without a writer would block a plain open for ever.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            raise Refused("its symbolic link leads nowhere") from None
        raise Refused(_reason(error)) from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return _REASONS.get(error.errno or 0, (error.strerror or "it cannot be read").lower())
    return "its name contains a NUL byte"

"""Version keys and version ranges of the packages that a fact or a rule is about.

A version is compared as ``packaging.version.Version``; the development head of a
repository (``HEAD``, ``HEAD-2026-08-22``, ``main``) is newer than every release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

_HEAD = Version("9999")


class UnknownVersion(ValueError):
    """A version text that is neither PEP 440 nor a name of the development head."""


@lru_cache(maxsize=1024)
def version(text: str) -> Version:
    """Return the comparable form of ``text``.

    Raises:
        UnknownVersion: if ``text`` is neither a PEP 440 version nor ``HEAD``/``main``.
    """
    if text.split("-", 1)[0].lower() in {"head", "main"}:
        return _HEAD
    try:
        return Version(text)
    except InvalidVersion as error:
        raise UnknownVersion(f"{text!r} is not a version (expected e.g. 0.16.1 or HEAD)") from error


@lru_cache(maxsize=1024)
def is_version(text: str) -> bool:
    """True if :func:`version` can read ``text``."""
    try:
        version(text)
    except UnknownVersion:
        return False
    return True


class VersionRange(NamedTuple):
    """A closed range of versions; ``None`` means that this side is open.

    ``until`` is inclusive and covers the whole release named: a range until ``0.16.1``
    holds ``0.16.1.post1``, and one until ``0.16`` holds every ``0.16.x``.
    """

    since: str | None = None
    until: str | None = None

    def __contains__(self, text: object) -> bool:
        if not isinstance(text, str):
            return False
        return _contains(self.since, self.until, text)

    @property
    def is_open(self) -> bool:
        """True if every version is inside, so that the version need not be known."""
        return self.since is None and self.until is None

    def __str__(self) -> str:
        if self.is_open:
            return "every version"
        if self.until is None:
            return f"{self.since} and later"
        if self.since is None:
            return f"up to {self.until}"
        return self.since if self.since == self.until else f"{self.since} to {self.until}"


EVERY_VERSION = VersionRange()


@lru_cache(maxsize=8192)
def _contains(since: str | None, until: str | None, text: str) -> bool:
    found = version(text)
    if since is not None and found < version(since):
        return False
    if until is None or until == "HEAD":
        return True
    last = version(until)
    return found.release[: len(last.release)] <= last.release if found != _HEAD else False

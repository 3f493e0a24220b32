"""Unified diffs: what a fix changes in a file, for a person to read or for ``patch -p1``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from precision_plan.plan.secrets import is_secret
from precision_plan.plan.text_edits import TextEdit, edited_bytes
from precision_plan.render._mask import HIDDEN, Mask

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified(name: str, before: str, after: str) -> str:
    """The diff between two versions of the file ``name``; empty if they are equal.

    Line endings and a byte order mark are part of the lines. An absolute path stays as it is, so
    that ``patch`` finds the file; any other gets git's ``a/`` and ``b/`` before it.
    """
    if before == after:
        return ""
    old, new = (name, name) if name.startswith("/") else (f"a/{name}", f"b/{name}")
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def unified_bytes(name: str, before: bytes, after: bytes) -> str:
    """The same for data; bytes that are not UTF-8 become lone surrogates (``surrogateescape``)."""
    return unified(
        name,
        before.decode("utf-8", "surrogateescape"),
        after.decode("utf-8", "surrogateescape"),
    )


def of_edits(name: str, data: bytes, edits: Iterable[TextEdit]) -> str:
    """The diff that edits of a file make; their positions are bytes of ``data``.

    Raises:
        ValueError: if two edits overlap, or one lies outside the data.
    """
    return unified_bytes(name, data, edited_bytes(data, edits))


_VALUE = re.compile(
    r"""([A-Za-z_][\w.-]*)(["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}#"']+)"""
)


def without_secrets(text: str) -> str:
    """A diff whose lines do not show the values of names that hold secrets."""
    return Mask().text(_VALUE.sub(_hidden, text))


def _hidden(match: re.Match[str]) -> str:
    name, colon, value = match.groups()
    if not is_secret(name.rpartition(".")[2]) or value.strip("\"'").startswith("$"):
        return match.group()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{colon}{quote}{HIDDEN}{quote}"


def _lines(text: str) -> list[str]:
    """Lines as ``patch`` counts them: only a line feed ends one."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [
        rest for rest in (text.rpartition("\n")[2],) if rest
    ]

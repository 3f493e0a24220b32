"""Words of a launch that are not all known: what of them is, and what they may become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from precision_plan.importers.jobs import Command
from precision_plan.importers.texts import Text
from precision_plan.plan import Diagnostic, Fix
from precision_plan.plan.codes import compose_diagnostic


def unquoted(command: Command) -> tuple[Command, tuple[Diagnostic, ...]]:
    """``ray job submit -- "python train.py"`` as it was meant, and that it does not run."""
    words = command.words
    if len(words) < 4 or [word.value for word in words[:3]] != ["ray", "job", "submit"]:
        return command, ()
    last = words[-1]
    if words[-2].value != "--" or " " not in last.shown.strip() or _QUOTES.search(last.shown):
        return command, ()
    meant = (last.part(*found.span()) for found in _WORD.finditer(last.shown))
    return replace(command, words=(*words[:-1], *meant)), (quoted_entrypoint(last),)


_QUOTES, _WORD = re.compile(r"[\"'\\]"), re.compile(r"\S+")


def quoted_entrypoint(word: Text) -> Diagnostic:
    """The finding about a command that is one word."""
    return compose_diagnostic(
        "PP909",
        f"the job's command is one word: {word.shown[:60]}",
        word.origin,
        fix=(Fix("write the command after -- without quotes"),),
        source=("ray@2.60.0:dashboard/modules/job/cli.py:300-304",),
        stage="run",
    )


def splits(word: Text) -> bool:
    """True for a word that may be several: one that is nothing but an unknown piece."""
    return word.splits and not any(piece.known and piece.text for piece in word.pieces)


def is_filled(word: Text, unread: bool) -> bool:
    """True for what is hardly empty: the output of a command, or a variable of an unread file.

    A variable that nothing sets is empty unless whoever starts the script exports it; so are
    ``$1`` and its like.
    """
    names = [piece.name for piece in word.pieces if not piece.known]
    return "" in names or (unread and any(name.isidentifier() for name in names))


def is_of_a_model(name: str) -> bool:
    """True for a field that model files set: ``MODEL_ARGS`` holds shapes and experts."""
    section, _, key = name.partition(".")
    return section == "model" or key.startswith("moe_")


def before(word: Text) -> str:
    """The text of a word up to its first unknown piece."""
    found = []
    for piece in word.pieces:
        if not piece.known:
            break
        found.append(piece.text)
    return "".join(found)


def reference(value: Any) -> Any:
    """A value that holds something unknown, so that it says so."""
    if isinstance(value, str):
        return value if "$" in value else f"$({value})"
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return tuple(reference(each) if "$" not in str(each) else each for each in value)
    return value

"""Scripts that a command hands to another shell: ``bash -c``, ``ssh HOST <<EOF``, ``sbatch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precision_plan.importers.launch_words import prefix_environment
from precision_plan.importers.texts import Piece, Source, Text

SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_ENDS = tuple(sorted(SHELLS))
_REMOTE = frozenset({"ssh", "pdsh", "clush", "pssh", "parallel-ssh", "tmux"})
"""Their last word is a command line, which a shell elsewhere reads."""
_WRAP = "--wrap"


class Nested(Source):
    """A script inside a word of another: its positions are the word's."""

    __slots__ = ("_text",)

    def __init__(self, text: Text) -> None:
        super().__init__(str(text.origin), text.shown.encode())
        self._text = text

    def origin(self, offset: int):  # type: ignore[no-untyped-def]
        """Where the character was written in the outer script."""
        return self._text.origin_at(len(self.data[:offset].decode("utf-8", "replace")))


def inner_script(found: Sequence[Text]) -> tuple[Text, int] | None:
    """The text that a shell of its own reads, and how many words stand before it."""
    for index, word in enumerate(found[:-1]):
        if word.shown.endswith(_ENDS) and _name(word) in SHELLS:
            for later, option in enumerate(found[index + 1 : -1], index + 1):
                shown = option.shown
                if not shown.startswith("-"):
                    break
                if not shown.startswith("--") and shown.endswith("c"):
                    return found[later + 1], later
    name = _name(found[0])
    if name in _REMOTE:
        rest = [at for at, word in enumerate(found) if at and not word.shown.startswith("-")]
        spaced = [at for at in rest[1:] if " " in found[at].shown.strip()]
        if spaced and (name == "tmux" or spaced[-1] == rest[-1]):
            return found[spaced[-1]], spaced[-1]
    if name == "sbatch":
        for at, word in enumerate(found):
            if word.shown == _WRAP and at + 1 < len(found):
                return found[at + 1], at
            if word.shown.startswith(f"{_WRAP}="):
                return word.part(len(_WRAP) + 1), at
    return None


def reads_script(found: Sequence[Text]) -> bool:
    """True if the command runs what it reads from its input."""
    name = _name(found[0])
    shells = [at for at, word in enumerate(found) if _name(word) in SHELLS]
    if shells:
        rest = found[shells[-1] + 1 :]
        return all(word.shown.startswith("-") and not _is_command(word) for word in rest)
    operands = [word for word in found[1:] if not word.shown.startswith("-")]
    if name == "ssh":
        return len([word for word in operands if "=" not in word.shown]) == 1
    return name == "sbatch" and not any(
        word.shown.endswith((".sh", ".sbatch", ".slurm")) for word in operands
    )


def environment_of(
    found: Sequence[Text], before: int, env: Mapping[str, Text]
) -> Mapping[str, Text]:
    """What a shell behind ``before`` words sees of ``env``: ``ssh`` and containers pass nothing."""
    if _name(found[0]) in _REMOTE:
        return {}
    return prefix_environment(tuple(found[:before]), env)


def with_spaces(found: Sequence[Text]) -> Text:
    """Words as the one text that ``eval`` makes of them."""
    pieces: list[Piece] = []
    for word in found:
        pieces += (Piece(" "), *word.pieces) if pieces else word.pieces
    return Text(tuple(pieces))


def _is_command(word: Text) -> bool:
    return not word.shown.startswith("--") and word.shown.endswith("c")


def _name(word: Text) -> str:
    shown = word.shown
    return shown.rpartition("/")[2] if "/" in shown else shown

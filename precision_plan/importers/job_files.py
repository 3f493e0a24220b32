"""Launches that were written down without a script: arguments, and processes that run already.

A saved ``ps`` has lost its quotes: where a word ends is then a guess, except inside of braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from precision_plan.facts.launches import launch_programs
from precision_plan.importers.jobs import Command, Leftover, ScriptReading
from precision_plan.importers.texts import Source, Text, literal

PROCESS_LAYER = "ps"
"""Layer of the positions in a list of processes."""

_COMMAND_COLUMN = re.compile(rb"\b(CMD|COMMAND)\b")
_WORD = re.compile(rb"\S+")
_PROGRAM = re.compile(r"(.*/)?python[23]?(\.\d+)?")
_LONGEST_JSON = 1 << 16


def read_words(words: Sequence[str], shown: str = "argv") -> ScriptReading:
    """A command line whose words are known, as one launch of a script without anything else."""
    source = Source(shown, " ".join(words).encode(), layer="argv")
    found, offset = [], 0
    for word in words:
        found.append(literal(word, source, offset))
        offset += len(word.encode()) + 1
    return _reading(source, [_command(found)] if found else [], [])


def read_processes(source: Source) -> ScriptReading:
    """The commands of a saved ``ps -ef`` or ``ps aux``, or of a ``/proc/PID/cmdline``.

    Processes that were started alike (the ranks of one node) count once.
    """
    source.layer = PROCESS_LAYER
    if b"\0" in source.data:
        words = [
            literal(part.group().decode("utf-8", "replace"), source, part.start())
            for part in re.finditer(rb"[^\0]+", source.data)
        ]
        return _reading(source, [_command(words)] if words else [], [])
    commands: dict[tuple[str, ...], Command] = {}
    leftovers = []
    columns: int | None = None
    start = 0
    for line in source.data.splitlines(keepends=True):
        header = _COMMAND_COLUMN.search(line) if b"PID" in line else None
        if header is not None:
            columns = len(line[: header.start()].split())
        elif line.strip():
            words = _rejoined(_words(line, start, source), source)
            words = words[_begins(words) if columns is None else columns :]
            key = tuple(word.shown for word in words)
            if not words:
                shown = line.decode("utf-8", "replace").strip()
                leftovers.append(Leftover("command", shown, source.origin(start), "no command"))
            elif key not in commands:
                commands[key] = _command(words)
        start += len(line)
    return _reading(source, commands.values(), leftovers)


def _reading(
    source: Source, commands: Iterable[Command], left: Sequence[Leftover]
) -> ScriptReading:
    return ScriptReading(tuple(commands), tuple(left), (), (source,))


def _command(words: Sequence[Text]) -> Command:
    return Command(tuple(words), origin=words[0].origin)


def _words(line: bytes, start: int, source: Source) -> list[tuple[int, bytes]]:
    return [(start + word.start(), word.group()) for word in _WORD.finditer(line)]


def _begins(words: Sequence[Text]) -> int:
    """Where the command begins in a line without a header: at a program that is known."""
    for index, word in enumerate(words):
        if _PROGRAM.fullmatch(word.shown) or word.shown.rpartition("/")[2] in launch_programs():
            return index
    return len(words)


def _rejoined(parts: list[tuple[int, bytes]], source: Source) -> list[Text]:
    """Words; what stands between the braces of a JSON object is one."""
    words: list[Text] = []
    index = 0
    while index < len(parts):
        offset, word = parts[index]
        index += 1
        if b"{" in word:
            end = index
            whole = word
            while whole.count(b"{") > whole.count(b"}") and end < len(parts):
                at, following = parts[end]
                whole = source.data[offset : at + len(following)]
                end += 1
                if len(whole) > _LONGEST_JSON:
                    break
            if whole.count(b"{") == whole.count(b"}"):
                word, index = whole, end
        words.append(literal(word.decode("utf-8", "replace"), source, offset))
    return words

"""Workflow commands as the runner of GitHub Actions reads them.

After ``ActionCommand.TryParseV2`` of actions/runner.
"""

from __future__ import annotations

from typing import NamedTuple

COMMANDS = frozenset({"error", "warning", "notice", "debug", "add-mask", "group", "endgroup"})


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    data: str


def read(line: str) -> Command | None:
    """The command of one line of output; ``None`` if the runner takes it for text."""
    line = line.lstrip()
    end = line.find("::", 2)
    if not line.startswith("::") or end < 0:
        return None
    name, _, rest = line[2:end].partition(" ")
    if name not in COMMANDS:
        return None
    pairs = (part.split("=", 1) for part in rest.strip().split(",") if part)
    properties = {pair[0]: unescaped(pair[1], ":,") for pair in pairs if len(pair) == 2 and pair[1]}
    return Command(name, properties, unescaped(line[end + 2 :], ""))


def unescaped(text: str, more: str) -> str:
    for char in ("\r", "\n", *more, "%"):  # the per cent sign last
        text = text.replace(f"%{ord(char):02X}", char)
    return text

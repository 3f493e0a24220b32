"""A baseline: the findings of a day, so that later runs fail only for new ones.

An entry is known by rule, file, field and message and holds a count. Lines are no part of it,
since they move with every edit above them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

VERSION = "1"


class Key(NamedTuple):
    """What a finding is known by; ``file`` and ``field`` are empty where there is none."""

    file: str
    id: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Entry:
    """How often a finding was there, and how severe it was (for a person who reads the file)."""

    severity: str
    count: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """``paths`` are those that were linted when it was written."""

    paths: tuple[str, ...]
    entries: Mapping[Key, Entry]


Judged = Callable[[Key, Entry], bool]
"""True for an entry that today's run would find again if it still held."""


def parse(text: str) -> Baseline:
    """Read the text of a baseline file.

    Raises:
        ValueError: if it is none; the message says what is wrong.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or data.keys() != {"schema_version", "paths", "findings"}:
        raise ValueError("it is no object of schema_version, paths and findings")
    if data["schema_version"] != VERSION:
        raise ValueError(f"schema_version is {data['schema_version']!r}, not {VERSION!r}")
    paths, findings = data["paths"], data["findings"]
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("paths is no list of texts")
    if not isinstance(findings, list):
        raise ValueError("findings is no list")
    entries: dict[Key, Entry] = {}
    for number, item in enumerate(findings, 1):
        key, entry = _entry(item, number)
        if key in entries:
            raise ValueError(f"finding {number} is there twice: raise its count instead")
        entries[key] = entry
    return Baseline(tuple(paths), entries)


def _entry(item: Any, number: int) -> tuple[Key, Entry]:
    texts = ("id", "severity", "file", "field", "message")
    if not isinstance(item, dict) or item.keys() != {*texts, "count"}:
        raise ValueError(f"finding {number} is no object of {', '.join(texts)} and count")
    for name in texts:
        if not isinstance(item[name], str):
            raise ValueError(f"{name} of finding {number} is no text")
    count = item["count"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"count of finding {number} is {count!r}, not 1 or more")
    return Key(*(item[name] for name in Key._fields)), Entry(item["severity"], count)


def dump(baseline: Baseline) -> str:
    """The text of a baseline file: sorted, one finding a line, so that a change is easy to read."""
    findings = [
        json.dumps(
            {
                "id": key.id,
                "severity": entry.severity,
                "file": key.file,
                "field": key.field,
                "message": key.message,
                "count": entry.count,
            }
        )
        for key, entry in sorted(baseline.entries.items())
    ]
    listed = ",\n".join(f"    {line}" for line in findings)
    return (
        f'{{\n  "schema_version": "{VERSION}",\n  "paths": {json.dumps(sorted(baseline.paths))},\n'
        f'  "findings": [{f"{chr(10)}{listed}{chr(10)}  " if listed else ""}]\n}}\n'
    )


def hidden(found: Sequence[Key], baseline: Baseline) -> tuple[bool, ...]:
    """For each finding whether the baseline holds it; of more than it counts, the last are new."""
    seen: Counter[Key] = Counter()
    flags = []
    for key in found:
        seen[key] += 1
        entry = baseline.entries.get(key)
        flags.append(entry is not None and seen[key] <= entry.count)
    return tuple(flags)


def gone(found: Iterable[Key], baseline: Baseline, judged: Judged) -> int:
    """How many entries are found less often than they count."""
    seen = Counter(found)
    return sum(
        1
        for key, entry in baseline.entries.items()
        if seen[key] < entry.count and judged(key, entry)
    )


def updated(
    found: Iterable[tuple[Key, str]], paths: Iterable[str], old: Baseline | None, judged: Judged
) -> Baseline:
    """A baseline of what is found today, and of the old entries that today says nothing about."""
    entries = {}
    if old is not None:
        entries = {key: entry for key, entry in old.entries.items() if not judged(key, entry)}
    today: dict[Key, Entry] = {}
    for key, severity in found:
        known = today.get(key)
        today[key] = Entry(severity, known.count + 1 if known else 1)
    return Baseline(tuple(paths), {**entries, **today})

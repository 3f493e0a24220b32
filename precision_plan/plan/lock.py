"""A lock file: one plan and what it lowers to, written down to be compared with later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from precision_plan._version import __version__
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.mask import Mask
from precision_plan.plan.origin import Origin
from precision_plan.plan.snapshot import Accepted, Snapshot

if TYPE_CHECKING:
    from precision_plan.plan.suppression import Suppression

KIND = "precision-plan lock"
SCHEMA_VERSION = 1
"""Raised when a key is renamed or changes its meaning."""

_OBJECTS = (
    ("megatron", "flags"),
    ("megatron", "files"),
    ("transformer_engine", "kwargs"),
    ("ray", "runtime_env"),
    ("vllm", "args"),
)
"""Parts of ``lowered`` that are compared key by key."""

_RELOCK = Fix("write it again: precision-plan lock RECIPE -o FILE")


class BrokenLock(Exception):
    """The text is no lock that can be read; ``diagnostic`` says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as it was read: its snapshot, the overrides that belong to it, who wrote it."""

    file: str
    snapshot: Snapshot
    overrides: tuple[str, ...]
    written_by: str


def lock_text(
    snapshot: Snapshot, overrides: Sequence[str] = (), suppressions: Sequence[Suppression] = ()
) -> str:
    """The lock of a snapshot: sorted keys, secrets hidden, the same text for the same plan.

    ``overrides`` are texts that may be shown.
    """
    hidden = snapshot.hidden()
    data: dict[str, Any] = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "written_by": f"precision-plan {__version__}",
        "recipe": snapshot.mask.text(snapshot.name),
        "about": snapshot.mask.data(snapshot.about),
        "overrides": list(overrides),
        "fingerprint": snapshot.fingerprint,
        "versions": snapshot.versions,
        "plan": hidden.plan,
        "lowered": hidden.lowered,
        "accepted": [
            {"id": each.id, "severity": each.severity, "field": each.field}
            for each in snapshot.findings
        ],
        "suppressed": sorted(
            {(id, snapshot.mask.text(each.reason)) for each in suppressions for id in each.ids}
        ),
    }
    if snapshot.unknown:
        data["unknown"] = list(snapshot.unknown)
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n"


def is_lock(text: str) -> bool:
    """True for a text that says of itself, near its end or beginning, that it is a lock."""
    return text.lstrip()[:1] == "{" and f'"{KIND}"' in text


def read_lock(text: str, file: str) -> Lock:
    """Read a lock.

    Raises:
        BrokenLock: if the text is no lock, or one of another schema version.
    """
    data = _parsed(text, file)
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise _broken(file, f'{file} is no lock: it does not say "kind": "{KIND}"')
    _check_version(data.get("schema_version"), data.get("written_by"), file)
    try:
        return _lock(data, file)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise _broken(file, f"{file} is a lock with a part that cannot be read: {what}") from None


def _parsed(text: str, file: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise _broken(file, f"{file} is not JSON: {error.msg}", error.lineno, error.colno) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise _broken(file, f"{file} cannot be read: {reason}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return found


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no number of a plan")


def _check_version(found: Any, writer: Any, file: str) -> None:
    if type(found) is int and found == SCHEMA_VERSION:
        return
    if type(found) is not int:
        raise _broken(file, f"{file} is a lock without a schema version")
    age = "an older" if found < SCHEMA_VERSION else "a newer"
    raise BrokenLock(
        compose_diagnostic(
            "PP035",
            f"{file} is a lock of schema version {found}, {age} one than {SCHEMA_VERSION}, which "
            "this program reads",
            Origin(file),
            because=(Because(f"it was written by {str(writer)[:60]}"),),
            fix=(
                _RELOCK
                if found < SCHEMA_VERSION
                else Fix("use the precision-plan that wrote it, or write it again"),
            ),
        )
    )


def _lock(data: Mapping[str, Any], file: str) -> Lock:
    plan, lowered = _sections(data["plan"], "plan"), _sections(data["lowered"], "lowered")
    for program, key in _OBJECTS:
        _object(lowered.get(program, {}).get(key, {}), f"lowered.{program}.{key}")
    for role, variables in _sections(lowered.get("environment", {}), "lowered.environment").items():
        if any(not isinstance(value, str) for value in variables.values()):
            raise TypeError(f"lowered.environment.{role} holds something else than texts")
    layers = lowered.get("layers", [])
    if not isinstance(layers, list) or any(not isinstance(row, dict) for row in layers):
        raise TypeError("lowered.layers is no list of objects")
    snapshot = Snapshot(
        name=_text(data["recipe"], "recipe"),
        kind="lock",
        plan=plan,
        about=_object(data.get("about", {}), "about"),
        lowered=lowered,
        versions=_sections(data["versions"], "versions"),
        findings=tuple(
            Accepted(
                _text(each["id"], "accepted.id"),
                _text(each["severity"], "accepted.severity"),
                each["field"],
            )
            for each in data["accepted"]
        ),
        fingerprint=_text(data["fingerprint"], "fingerprint"),
        mask=Mask(),
        masked=True,
        unknown=tuple(_words(data.get("unknown", []), "unknown")),
    )
    return Lock(
        file,
        snapshot,
        tuple(_words(data["overrides"], "overrides")),
        _text(data.get("written_by", "unknown"), "written_by"),
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is no object")
    return value


def _sections(value: Any, what: str) -> dict[str, Any]:
    """An object of objects; ``lowered`` also holds one list."""
    found = _object(value, what)
    for key, inner in found.items():
        if not isinstance(inner, dict) and f"{what}.{key}" != "lowered.layers":
            raise TypeError(f"{what}.{key} is no object")
    return found


def _words(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or any(not isinstance(word, str) for word in value):
        raise TypeError(f"{what} is no list of texts")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is no text")
    return value


def _broken(file: str, message: str, line: int = 0, column: int = 0) -> BrokenLock:
    where = Origin(file, line, column)
    return BrokenLock(compose_diagnostic("PP034", message, where, fix=(_RELOCK,)))

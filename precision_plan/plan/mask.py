"""Hides secrets in everything that is printed.

A value is secret if the name it belongs to says so. It is hidden where it stands under that name,
and, if it is long enough not to be an ordinary word, wherever else it turns up: in a message, in
the text of an override, inside the JSON of another argument.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from precision_plan.plan.lowering import Lowering
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.secrets import is_secret

HIDDEN = "***"

_LEAST = 6  # a shorter value may well be an ordinary word of the plan
_CREDENTIALS = re.compile(r"(\w[\w+.-]*://)([^/\s@'\"]+)@")
_ASSIGNMENT = re.compile(
    r"""([A-Za-z_][\w.-]*)(\s*=\s*|\\?['"]\s*:\s*)"""
    r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\"(?:(?!\\").)*\\"|[^\s'",}]+)"""
)
_FLAG = re.compile(r"(--[A-Za-z][\w-]*)([= ]\s*)(\S+)")


class Mask:
    """Hides the secrets of one compiled recipe."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= _LEAST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    @classmethod
    def of(cls, plan: PrecisionPlan, lowering: Lowering | None = None) -> Mask:
        """The mask that knows every value which the plan or its lowering keeps as a secret."""
        values = list(secret_values(plan.env.model_dump(exclude_none=True)))
        values += secret_values(plan.launch.extra_args or {})
        if lowering is not None:
            values += secret_values(lowering.ray.runtime_env)
            values += secret_values(lowering.ray.roles)
        return cls(values)

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        if "://" in text:
            text = _CREDENTIALS.sub(rf"\1{HIDDEN}@", text)
        if "=" in text or ":" in text:
            text = _ASSIGNMENT.sub(_assignment, text)
        if "--" in text:
            text = _FLAG.sub(_flag, text)
        return text

    def data(self, value: Any) -> Any:
        """JSON data without secrets: by key, and inside every string."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): HIDDEN if _hides(str(key), item) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has no word for it
        return value

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line without secrets: ``--wandb-key VALUE`` and ``--wandb-key=VALUE``."""
        hidden: list[str] = []
        for previous, word in zip(("", *argv), argv, strict=False):
            if _takes_secret(previous) and not word.startswith("--"):
                hidden.append(HIDDEN)
            else:
                hidden.append(self.text(word))
        return hidden

    def named(self, name: str, value: Any) -> Any:
        """``value`` as it may be shown beside ``name``."""
        return HIDDEN if _hides(name, value) else self.data(value)


def _hides(name: str, value: Any) -> bool:
    return value is not None and not isinstance(value, (bool, Mapping)) and is_secret(name)


def _takes_secret(flag: str) -> bool:
    return flag.startswith("--") and "=" not in flag and is_secret(flag)


def _assignment(match: re.Match[str]) -> str:
    name, equals = match.groups()
    if not is_secret(name.rpartition(".")[2]):
        return match.group()
    value = match.group()[len(name) + len(equals) :]
    quote = value[: 2 if value.startswith("\\") else 1] if value[0] in "\"'\\" else ""
    return f"{name}{equals}{quote}{HIDDEN}{quote}"


def _flag(match: re.Match[str]) -> str:
    flag, space, value = match.groups()
    if not is_secret(flag) or value.startswith("--"):
        return match.group()
    return f"{flag}{space}{HIDDEN}"


def secret_values(node: Any, name: str = "") -> Iterable[str]:
    """The values that stand under names of secrets in nested data."""
    if isinstance(node, Mapping):
        for key, item in node.items():
            yield from secret_values(item, str(key))
    elif isinstance(node, (list, tuple)):
        for item in node:
            yield from secret_values(item, name)
    elif _hides(name, node):
        yield str(node)

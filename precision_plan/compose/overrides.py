"""Reads command-line overrides by Hydra's grammar.

The everyday forms (``a.b=true``, ``group=name``, ``+a.b=[1,2]``, ``~a.b``) are read here, because
loading Hydra's parser costs more than all the rest of a dry run. Everything else is handed to
Hydra; tests hold both to the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from precision_plan.compose.suggest import printable
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import Origin
from precision_plan.plan.secrets import is_secret

TEXT_LIMIT = 1 << 16
"""Characters of one override."""

HIDDEN = "***"
"""What messages show in place of a secret."""

Kind = Literal["change", "add", "force_add", "delete"]
_KINDS: dict[str, Kind] = {"": "change", "+": "add", "++": "force_add", "~": "delete"}


@dataclass(frozen=True, slots=True)
class Override:
    """One override. ``key`` is a dotted key or a group; ``text`` what was typed.

    ``written`` is the value as it was typed, if it is a number.
    """

    kind: Kind
    key: str
    value: Any
    text: str
    package: str | None = None
    written: str | None = None

    @property
    def origin(self) -> Origin:
        """The override's text in place of a file; the value of a secret is not shown."""
        return Origin(self.shown, layer="override")

    @property
    def shown(self) -> str:
        """The text without the values of secrets, those inside of ``{...}`` among them."""
        text = shown_text(self.text)
        if isinstance(self.value, (dict, list)):
            from precision_plan.plan.mask import secret_values

            for value in filter(None, secret_values(self.value)):
                text = text.replace(value, HIDDEN)
        return text


_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_INT = r"(?:0|[1-9](?:_?[0-9])*)"
_POINT = rf"(?:{_INT}\.|{_INT}?\.[0-9](?:_?[0-9])*)"
_EVERYDAY = re.compile(
    rf"(?P<sign>\+\+|\+|~|)(?P<key>{_NAME}(?:(?:\.(?:{_NAME}|{_INT}))*|(?:/{_NAME})+))"
    rf"(?:@(?P<package>{_NAME}(?:\.{_NAME})*))?"
    r"(?:=(?P<value>.*))?"
)
_INTEGER = re.compile(rf"[+-]?{_INT}")
_FLOATING = re.compile(
    rf"[+-]?(?:{_POINT}|(?:{_POINT}|{_INT})[eE][+-]?[0-9](?:_?[0-9])*|[Ii][Nn][Ff]|[Nn][Aa][Nn])"
)
_PLAIN = re.compile(r"[A-Za-z0-9_/+.%*@?|:-]+")
_QUOTED = re.compile(r"'([^'\\$]*)'|\"([^\"\\$]*)\"")
_LIST = re.compile(r"\[([A-Za-z0-9_/+.%*@?|:,-]*)\]")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


class _NotEveryday(Exception):
    """The text needs the whole grammar."""


def parse_overrides(texts: Iterable[str]) -> tuple[tuple[Override, ...], list[Diagnostic]]:
    """Parse overrides; those that cannot be read are reported (PP009, PP012) and left out."""
    found: list[Override] = []
    problems: list[Diagnostic] = []
    for text in texts:
        try:
            found.append(_parse(text))
        except _Refused as error:
            problems.append(error.diagnostic)
    return tuple(found), problems


class _Refused(Exception):
    def __init__(self, code: str, message: str, text: str, fix: str) -> None:
        origin = Origin(_short(shown_text(text)), layer="override")
        self.diagnostic = compose_diagnostic(code, message, origin, fix=(Fix(fix),))


def _parse(text: str) -> Override:
    if len(text) > TEXT_LIMIT:
        raise _Refused("PP012", f"an override of {len(text):,} characters; at most {TEXT_LIMIT:,} "
                       "are read", text, "write it into a recipe")  # fmt: skip
    try:
        return _everyday(text)
    except _NotEveryday:
        return _by_hydra(text)
    except ValueError:  # more digits than Python turns into a number
        raise _Refused("PP012", "an override holds a number without end", text,
                       "quote it if it is a text") from None  # fmt: skip


def _everyday(text: str) -> Override:
    match = _EVERYDAY.fullmatch(text)
    if match is None:
        raise _NotEveryday
    kind, written = _KINDS[match["sign"]], match["value"]
    if written is None:
        if kind != "delete":
            raise _NotEveryday
        return Override(kind, match["key"], None, text, match["package"])
    value = _value(written)
    number = written if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return Override(kind, match["key"], value, text, match["package"], number)


def _value(text: str) -> Any:
    if not text:
        return ""
    if (listed := _LIST.fullmatch(text)) is not None:
        items = listed[1].split(",") if listed[1] else []
        return [_primitive(item) for item in items]
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        return quoted[1] if quoted[1] is not None else quoted[2]
    return _primitive(text)


def _primitive(text: str) -> Any:
    if _PLAIN.fullmatch(text) is None:
        raise _NotEveryday
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOATING.fullmatch(text) else text


def _by_hydra(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException

    kinds: dict[OverrideType, Kind] = {
        OverrideType.CHANGE: "change",
        OverrideType.ADD: "add",
        OverrideType.FORCE_ADD: "force_add",
        OverrideType.DEL: "delete",
    }
    try:
        parsed = OverridesParser.create().parse_override(text)
    except (HydraException, ValueError) as error:
        shown = shown_text(text)
        reason = str(error).strip().partition("\n")[0] if shown == text else "its value"
        raise _Refused(
            "PP009",
            f"cannot read the override {_short(shown)!r}: {reason}",
            text,
            "write key=value, +key=value or ~key; quote special characters: key='\"a b\"'",
        ) from None
    except RecursionError:
        raise _Refused("PP012", "an override is nested too deeply", text,
                       "write it into a recipe") from None  # fmt: skip
    if parsed.is_sweep_override():
        raise _Refused("PP009", f"{_short(shown_text(text))!r} is a sweep over values", text,
                       "write a list as key=[a,b], or sweep with launch.py -m")  # fmt: skip
    return Override(kinds[parsed.type], parsed.key_or_group, parsed.value(), text, parsed.package)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown_text(text: str) -> str:
    """The text of an override as messages show it: ``env.all.HF_TOKEN=***``."""
    text = printable(text)
    key, equals, value = text.partition("=")
    name = key.rpartition(".")[2].partition("@")[0]
    return f"{key}={HIDDEN}" if equals and value and is_secret(name) else text

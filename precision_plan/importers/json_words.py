"""JSON inside a word of a script, with the position of each key and what is not known in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from precision_plan.importers.texts import Text
from precision_plan.plan import Origin
from precision_plan.plan.json_text import keys

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STAND_INS = 0xE000
"""Characters for private use: each stands for one unknown piece while the text is parsed."""
_MOST = 0xF8FF - _STAND_INS


class Fault(NamedTuple):
    """What is wrong with a text, and where."""

    message: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class JsonText:
    """What a text says: ``value`` (``None`` if it cannot be read), and where its keys stand.

    A string that holds something unknown has its source text (``${X}``) there. ``fault`` is why
    it cannot be read; without one it is only not known: unknown parts are more than values.
    """

    value: Any
    origins: Mapping[str, Origin] = field(default_factory=dict)
    repeated: tuple[Fault, ...] = ()
    fault: Fault | None = None


def read_json(text: Text) -> JsonText:
    """Parse a text as Python's ``json.loads`` does."""
    clean, places, stand_ins, open_ended = cleaned(text)
    try:
        value = json.loads(clean)
    except json.JSONDecodeError as error:
        if open_ended:
            return JsonText(None)
        return JsonText(None, fault=_fault(text, places, error))
    except (ValueError, RecursionError):
        return JsonText(None, fault=Fault("it is nested too deeply, or a number is", text.origin))
    origins: dict[str, Origin] = {}
    repeated = []
    if isinstance(value, dict):
        for key in keys(clean):
            where = text.origin_at(place_of(places, key.offset))
            origins[key.path] = where
            if key.repeated:
                repeated.append(Fault(key.path, where))
    if stand_ins:
        value = _restored(value, stand_ins)
        origins = {_text(path, stand_ins): origin for path, origin in origins.items()}
    return JsonText(value, origins, tuple(repeated))


def _fault(text: Text, places: list[int] | None, error: json.JSONDecodeError) -> Fault:
    at = min(error.pos, max(len(error.doc) - 1, 0))
    message = error.msg[:1].lower() + error.msg[1:]
    return Fault(message, text.origin_at(place_of(places, at)))


def place_of(places: list[int] | None, at: int) -> int:
    """The character of the shown text that one of the parsed text stands for."""
    if places is None:
        return at
    return places[at] if at < len(places) else places[-1] if places else 0


def cleaned(text: Text) -> tuple[str, list[int] | None, dict[str, str], bool]:
    """The text that can be parsed, its places in the shown text, what the stand-ins stand for, and
    whether an unknown piece is outside of a string."""
    if text.known:
        return text.shown, None, {}, False
    letters: list[str] = []
    places: list[int] = []
    stand_ins: dict[str, str] = {}
    at = 0
    for piece in text.pieces:
        if piece.known or len(stand_ins) >= _MOST:
            letters += piece.text
            places += range(at, at + len(piece.text))
        else:
            letter = chr(_STAND_INS + len(stand_ins))
            stand_ins[letter] = piece.text if "$" in piece.text else f"$({piece.text})"
            letters.append(letter)
            places.append(at)
        at += len(piece.text)
    joined = "".join(letters)
    inside: set[int] = set()
    for string in _STRING.finditer(joined):
        inside.update(range(*string.span()))
    outside = [at for at, letter in enumerate(joined) if letter in stand_ins and at not in inside]
    for at in reversed(outside):  # a value of its own: as if it were written as a string
        letters[at : at + 1] = ['"', letters[at], '"']
        places[at : at + 1] = [places[at]] * 3
    return "".join(letters), places, stand_ins, bool(outside)


def _restored(value: Any, stand_ins: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _text(value, stand_ins)
    if isinstance(value, list):
        return [_restored(each, stand_ins) for each in value]
    if isinstance(value, dict):
        return {_text(key, stand_ins): _restored(each, stand_ins) for key, each in value.items()}
    return value


def _text(value: str, stand_ins: Mapping[str, str]) -> str:
    return "".join(stand_ins.get(letter, letter) for letter in value)

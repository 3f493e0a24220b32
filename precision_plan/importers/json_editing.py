"""Edits of JSON that stands in a word of a script: an entry goes, or gets another name or value."""

from __future__ import annotations

import json
from typing import NamedTuple

from precision_plan.compose.unedited import CannotEdit
from precision_plan.importers.json_words import cleaned, place_of
from precision_plan.importers.shell.editing import Place
from precision_plan.importers.texts import Text
from precision_plan.plan.json_text import keys
from precision_plan.plan.text_edits import TextEdit

_BLANK = " \t\n\r"


class Entry(NamedTuple):
    """One entry of an object in a JSON text: where its key and its value begin and end.

    ``before`` is the last character before it that is no blank, ``after`` the first behind it.
    """

    key: int
    key_end: int
    value: int
    end: int
    before: int
    after: int


class JsonEdit:
    """The entries of one JSON text of a script."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.clean, self.places, _, _ = cleaned(text)

    def has(self, path: str) -> bool:
        """True if the text has a key at a dotted path."""
        try:
            value = json.loads(self.clean)
        except (ValueError, RecursionError):
            return False
        if not isinstance(value, dict):
            return False
        return any(key.path == path for key in keys(self.clean))

    def removed(self, path: str) -> tuple[Place, TextEdit]:
        """The entry goes, with a comma that would be one too many."""
        entry = self._entry(path)
        if self.clean[entry.after] == ",":
            following = entry.after + 1
            while self.clean[following] in _BLANK:
                following += 1
            return self._edit(entry.key, following, "")
        first = entry.before if self.clean[entry.before] == "," else entry.before + 1
        return self._edit(first, entry.end, "")

    def renamed(self, path: str, name: str) -> tuple[Place, TextEdit]:
        """The key gets another name."""
        entry = self._entry(path)
        return self._edit(entry.key + 1, entry.key_end - 1, name, inside=True)

    def changed(self, path: str, value: str) -> tuple[Place, TextEdit]:
        """The value becomes a text; quotes are written like those of the key."""
        entry = self._entry(path)
        if not value.isprintable() or set(value) & set("\"'\\$`"):
            raise CannotEdit(f"{value!r} needs quotes of its own")
        if self.clean[entry.value] == '"':
            return self._edit(entry.value + 1, entry.end - 1, value, inside=True)
        place, _ = self._edit(entry.key, entry.key + 1, "")
        mark = place.source.data[place.start : place.end].decode("utf-8", "replace")
        return self._edit(entry.value, entry.end, mark + value + mark)

    def _entry(self, path: str) -> Entry:
        found = [key for key in keys(self.clean) if key.path == path]
        if len(found) != 1:
            raise CannotEdit(f"{path.rpartition('.')[2]} stands there twice")
        clean, start = self.clean, found[0].offset
        decoder = json.JSONDecoder()
        key_end = decoder.raw_decode(clean, start)[1]
        value = key_end
        while clean[value] in _BLANK + ":":
            value += 1
        end = decoder.raw_decode(clean, value)[1]
        before, after = start - 1, end
        while clean[before] in _BLANK:
            before -= 1
        while clean[after] in _BLANK:
            after += 1
        return Entry(start, key_end, value, end, before, after)

    def _edit(
        self, start: int, end: int, text: str, *, inside: bool = False
    ) -> tuple[Place, TextEdit]:
        """Put ``text`` for some characters; a backslash before the first of them goes as well.

        ``inside``: what follows is a quote whose backslash stays.
        """
        low, high = self._end_of(start - 1), self._end_of(end - 1)
        if low.source.file != high.source.file or low.end > high.end:
            raise CannotEdit("it is put together from several texts of the script")
        place = Place(low.source, low.end, high.end)
        raw = place.source.data[place.start : place.end].decode("utf-8", "replace")
        if inside and raw != self.clean[start:end]:
            raise CannotEdit("it is not written letter by letter")
        return place, TextEdit(place.start, place.end, text)

    def _end_of(self, at: int) -> Place:
        """The place of one character of the clean text."""
        if at < 0:
            raise CannotEdit("the text is no object")
        index = place_of(self.places, at)
        for piece in self.text.pieces:
            if index < len(piece.text):
                if piece.source is None or not piece.known or not piece.exact or piece.assumed:
                    raise CannotEdit("it is put together from several texts of the script")
                start = piece.offset + len(piece.text[:index].encode())
                return Place(piece.source, start, start + len(piece.text[index].encode()))
            index -= len(piece.text)
        raise CannotEdit("the text ends before")

"""Edits of a YAML text that keep everything else: comments, order, quotes and line endings.

Nothing is written anew. A value is replaced where it stands, a key goes with its line and the
comment on that line, a new key is put at the end of its section. The result is read back and
compared with the same edit of the plain data; an edit that would do anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from precision_plan.compose.document import Document, parse_document
from precision_plan.compose.inserting import insertion
from precision_plan.compose.layout import Node, Place, layout, places
from precision_plan.compose.reading import Unreadable
from precision_plan.compose.removing import removal, trailing_comment
from precision_plan.compose.scalars import Loader, NotAScalar, scalar
from precision_plan.compose.unedited import CannotEdit
from precision_plan.compose.written import written
from precision_plan.plan.text_edits import TextEdit, edited


def edit(text: str, changes: Mapping[str, Any]) -> str:
    """``text`` with new values for dotted keys of its own; ``None`` removes a key.

    A key that is removed while its neighbour is set changes its name in place. A mapping whose
    last key goes is removed with it. A byte order mark at the beginning is kept.

    Raises:
        CannotEdit: if the edit would touch more than these keys, or cannot be made without
            losing comments; the reason is a part of a sentence.
    """
    if text.startswith("\ufeff"):
        return "\ufeff" + edit(text[1:], changes)
    before = _parsed(text)
    renamed = _renamed(before, changes)
    result = text
    for old, new in renamed.items():
        same = _same(_at(before.data, old), _plain(changes[new]))
        result = _step(result, old, _rename, new, None if same else _plain(changes[new]))
    moved = _moved_comment(result, before, changes, renamed)
    for key, value in changes.items():
        if value is not None and key not in renamed.values():
            result = _step(result, key, _set, _plain(value), moved)
    for key, value in changes.items():
        if value is None and key not in renamed and _at(before.data, key) is not _ABSENT:
            result = _step(result, key, _remove)
    _verify(before, result, changes)
    return result


def _step(text: str, key: str, change: Any, *details: Any) -> str:
    """One change, on a fresh layout of the text."""
    root = layout(text)
    if root is None or root.kind != "mapping":
        raise CannotEdit("the file holds no keys")
    found = places(root)
    if found.get(key, _ABSENT) is None:
        raise CannotEdit(f"two keys are called {key}")
    return edited(text, change(text, root, found, key, *details))


def without_comments(text: str, places: Iterable[tuple[int, int]]) -> str:
    """``text`` without the comments that begin at these lines and columns, counted from 1.

    A line that holds nothing else goes with its comment.

    Raises:
        CannotEdit: if no comment stands there.
    """
    if text.startswith("\ufeff"):
        return "\ufeff" + without_comments(text[1:], places)
    lines = text.splitlines(keepends=True)
    for line, column in places:
        found = lines[line - 1] if line <= len(lines) else ""
        before, comment = found[: column - 1], found[column - 1 :]
        if not comment.startswith("#"):
            raise CannotEdit("there is no comment in this place")
        ending = comment[len(comment.rstrip("\r\n")) :]
        lines[line - 1] = before.rstrip() + ending if before.strip() else ""
    result = "".join(lines)
    _verify(_parsed(text), result, {})
    return result


# -- single changes -------------------------------------------------------------------------


def _rename(
    text: str, root: Node, found: Mapping[str, Place | None], key: str, new: str, value: Any
) -> list[TextEdit]:
    place = found.get(key)
    if place is None or place.pair.key.anchor:
        raise CannotEdit(f"{key} is not written out in this file")
    name = new.rpartition(".")[2]
    written_key = place.pair.key
    edits = [TextEdit(written_key.start, written_key.end, written(name, written_key.style))]
    if value is not None:
        edits.append(_replacement(text, place, value, key))
    return edits


def _set(
    text: str,
    root: Node,
    found: Mapping[str, Place | None],
    key: str,
    value: Any,
    comment: str,
) -> list[TextEdit]:
    place = found.get(key)
    if place is None:
        return insertion(text, root, found, key, value, comment)
    return [_replacement(text, place, value, key)]


def _remove(text: str, root: Node, found: Mapping[str, Place | None], key: str) -> list[TextEdit]:
    place = found.get(key)
    if place is None:
        raise CannotEdit(f"{key} is not written out in this file but brought in by an alias")
    anchors = {node.anchor for node in place.pair.value.walk()} - {None}
    if any(node.kind == "alias" and node.text in anchors for node in root.walk()):
        raise CannotEdit(f"other keys refer to {key} by an alias")
    return removal(text, place)


def _replacement(text: str, place: Place, value: Any, key: str) -> TextEdit:
    """The edit that puts ``value`` in the place of a value that is written out."""
    old = place.pair.value
    if old.kind == "alias" or any(node.anchor for node in old.walk()):
        raise CannotEdit(f"the value of {key} is an alias or has an anchor")
    if place.pair.colon is None:
        raise CannotEdit(f"{key} has no value of its own")
    new = written(value, old.style if isinstance(value, str) and old.style in "'\"" else "")
    if old.kind == "scalar" and old.style in "'\"" and _says(old.text, value):
        new = old.text  # only the quotes go
    if old.empty:
        return TextEdit(place.pair.colon, place.pair.colon, f" {new}")
    block = old.kind in ("mapping", "list") and not old.flow
    start = place.pair.colon if block else old.start
    heading = text[start : old.end].partition("\n")[0] if old.style in ("|", ">") else ""
    if "#" in heading or (old.kind != "scalar" and "#" in text[start : old.end]):
        raise CannotEdit(f"the value of {key} has comments in it")
    return TextEdit(start, old.end, f" {new}" if block else new)


# -- plain data -----------------------------------------------------------------------------

_ABSENT = object()


def _parsed(text: str) -> Document:
    try:
        document = parse_document(text, Path(), "the file")
    except Unreadable as error:
        raise CannotEdit(error.diagnostic.message) from None
    if document.problems:
        raise CannotEdit(document.problems[0].message)
    return document


def _renamed(document: Document, changes: Mapping[str, Any]) -> dict[str, str]:
    """Keys that go while a new one comes into the same mapping: old name to new name."""
    gone = [key for key, value in changes.items() if value is None]
    found: dict[str, str] = {}
    for new, value in changes.items():
        if value is None or _at(document.data, new) is not _ABSENT:
            continue
        for old in gone:
            there = _at(document.data, old) is not _ABSENT and old in document.marks
            if old not in found and there and old.rpartition(".")[0] == new.rpartition(".")[0]:
                found[old] = new
                break
    return found


def _moved_comment(
    text: str, document: Document, changes: Mapping[str, Any], renamed: Mapping[str, str]
) -> str:
    """The comment that goes along when one key moves to another mapping with its value."""
    gone = [key for key, value in changes.items() if value is None and key not in renamed]
    new = [key for key in changes if changes[key] is not None and key not in renamed.values()]
    if len(gone) != 1 or len(new) != 1 or _at(document.data, new[0]) is not _ABSENT:
        return ""
    if not _same(_at(document.data, gone[0]), _plain(changes[new[0]])):
        return ""
    root = layout(text)
    place = places(root).get(gone[0]) if root is not None else None
    while place and place.parent and place.mapping.flow and len(place.mapping.pairs) == 1:
        place = place.parent
    return "" if place is None else trailing_comment(text, place.pair)


def _verify(before: Document, text: str, changes: Mapping[str, Any]) -> None:
    """Raise unless ``text`` says what ``before`` says, with the changes made."""
    after = _parsed(text)
    wanted: Any = before.data
    for key, value in changes.items():
        wanted = _changed(wanted, key.split("."), value)
    entries = [entry.raw() for entry in before.entries]
    if (
        not _same(after.data, wanted)
        or [entry.raw() for entry in after.entries] != entries
        or after.package != before.package
    ):
        raise CannotEdit("the edit would change other keys, too")


def _changed(data: Mapping[str, Any], parts: list[str], value: Any) -> dict[str, Any]:
    """``data`` with one key set or removed (``None``), and without mappings that this empties."""
    result = dict(data)
    key = _key(result, parts)
    if key is None:
        if value is not None:
            rest = ".".join(parts[1:])
            result[parts[0]] = _changed({}, parts[1:], value) if rest else _plain(value)
        return result
    name, rest_of = key
    if not rest_of:
        if value is None:
            del result[name]
        else:
            result[name] = _plain(value)
        return result
    inner = result[name]
    if not isinstance(inner, Mapping):
        if value is not None:
            result[name] = _changed({}, rest_of, value)
        return result
    changed = _changed(inner, rest_of, value)
    if changed or not inner:
        result[name] = changed
    else:
        del result[name]
    return result


def _key(data: Mapping[str, Any], parts: list[str]) -> tuple[Any, list[str]] | None:
    """The key that ``parts`` begin with (it may have dots itself), and the parts behind it."""
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        for key in data:
            if str(key) == name:
                return key, parts[length:]
    return None


def _at(data: Any, key: str) -> Any:
    parts = key.split(".")
    while parts:
        found = _key(data, parts) if isinstance(data, Mapping) else None
        if found is None:
            return _ABSENT
        data, parts = data[found[0]], found[1]
    return data


def _plain(value: Any) -> Any:
    """Plan values as YAML has them: lists for tuples."""
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _same(one: Any, other: Any) -> bool:
    """Equal, and of equal types: neither ``1`` and ``true``, nor ``1`` and ``1.0``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or one is other or one != one)


def _says(text: str, value: Any) -> bool:
    """True if ``text`` without quotes is ``value``."""
    return bool(re.fullmatch(r"[\w.+-]+", text)) and _same(_resolved(text), value)


def _resolved(text: str) -> Any:
    try:
        node = yaml.compose(text, Loader)
        return scalar(node.tag, node.value) if isinstance(node, yaml.ScalarNode) else _ABSENT
    except (yaml.YAMLError, NotAScalar):
        return _ABSENT

"""Merges layers and overrides into one mapping by OmegaConf's rules, keeping who set what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from precision_plan.compose.composition import origin_of
from precision_plan.compose.defaults import Layer
from precision_plan.compose.document import Document
from precision_plan.compose.overrides import Override, shown_text
from precision_plan.compose.syntax import DEPTH_LIMIT
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.history import Word
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import SECTIONS

MISSING = "???"
"""A value that some later layer must give."""
_MAPPINGS = frozenset({*SECTIONS, "recipe"})
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


class Draft:
    """The composition while it grows: ``data``, and by dotted key its origin and written number.

    ``history`` keeps what a later layer replaced or removed, first to last.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.texts: dict[str, str] = {}
        self.history: dict[str, list[Word]] = {}
        self.problems: list[Diagnostic] = []

    # -- layers -----------------------------------------------------------------------------

    def add_layer(self, layer: Layer) -> None:
        """Merge a file over what is there."""
        document, package = layer.document, layer.package
        if package.partition(".")[0] == "hydra":
            self._configures_hydra(layer)
            return
        source = document.data if package else self._sections(layer)
        target = self.data
        path = ""
        for part in package.split(".") if package else ():
            path = f"{path}.{part}" if path else part
            if not isinstance(target.get(part), dict):
                self._forget(path, target.get(part))
                target[part] = {}
            self.origins.setdefault(path, document.origin("", layer.label))
            target = target[part]
        self._merge(target, source, path, "", _Source(document, layer.label))

    def _sections(self, layer: Layer) -> Mapping[str, Any]:
        """Top-level keys of a global file; a section that is no mapping is reported, left out."""
        kept = {}
        for key, value in layer.document.data.items():
            if key == "hydra":
                if layer.label != "config":
                    self._configures_hydra(layer, key)
                continue
            if key not in _MAPPINGS or isinstance(value, dict):
                kept[key] = value
                continue
            where = layer.document.origin(key, layer.label)
            if value is None:
                self._problem("PP005", f"{key} holds nothing, which would erase what other layers "
                              "set", where, "remove the line, or indent keys below it")  # fmt: skip
            else:
                kind = "list" if isinstance(value, list) else "single value"
                self._problem("PP005", f"{key} is a {kind}; a mapping of keys belongs here", where,
                              f"indent 'key: value' lines below {key}:")  # fmt: skip
        return kept

    def _configures_hydra(self, layer: Layer, key: str = "") -> None:
        """Hydra's settings can name code to run, so that only ``config.yaml`` may hold them."""
        self._problem("PP015", "only config.yaml may configure Hydra",
                      layer.document.origin(key, layer.label), "remove it")  # fmt: skip

    def _merge(
        self,
        target: dict[str, Any],
        source: Mapping[str, Any],
        path: str,
        inner: str,
        origin: _Source,
    ) -> None:
        """Merge ``source`` (at ``inner`` of its document) into ``target`` (at ``path``)."""
        for key, value in source.items():
            here = f"{path}.{key}" if path else str(key)
            there = f"{inner}.{key}" if inner else str(key)
            old = target.get(key)
            if isinstance(old, str) and isinstance(value, dict):
                old = self._referenced(old, here, target, key)
            if isinstance(value, dict):
                if isinstance(old, list):
                    self._conflict(here, "list", "mapping", origin.at(there))
                    continue
                if not isinstance(old, dict):
                    self._forget(here, old)
                    old = target[key] = {}
                self.origins[here] = origin.at(there)
                self._merge(old, value, here, there, origin)
                continue
            if isinstance(value, list) and isinstance(old, dict):
                self._conflict(here, "mapping", "list", origin.at(there))
                continue
            if value == MISSING and key in target:
                continue
            self._forget(here, old)
            target[key] = copied(value)
            self.origins[here] = origin.at(there)
            origin.copy_texts(there, here, value, self.texts)

    def _referenced(self, text: str, path: str, target: dict[str, Any], key: str) -> Any:
        """A mapping over an interpolation to a mapping goes over a copy of the latter."""
        match = _REFERENCE.fullmatch(text)
        found = self.at(match[1]) if match else None
        if not isinstance(found, dict):
            return text
        self._forget(path, text)
        target[key] = copied(found)
        return target[key]

    # -- overrides --------------------------------------------------------------------------

    def apply(self, override: Override) -> None:
        """Apply one override of a key, as ``OmegaConf.update`` does."""
        parts = override.key.split(".")
        origin = override.origin
        if any(part == "_target_" for part in parts) or _holds_target(override.value):
            self._problem("PP015", f"{override.key} asks for code to be run", origin,
                          "remove it: a recipe is data")  # fmt: skip
        elif override.kind == "delete":
            self._delete(override)
        elif (
            override.kind == "add"
            and self.at(override.key) not in (None, MISSING)
            and not isinstance(override.value, (dict, list))
        ):
            self._problem(
                "PP009",
                f"{override.key} is set already, so it cannot be added",
                origin,
                f"write {shown_text(override.text)[1:]}",
                because=(Because(f"{override.key} is set", origin=self.origin(override.key)),),
            )
        else:
            self._update(override, parts, origin)

    def _update(self, override: Override, parts: list[str], origin: Origin) -> None:
        node: Any = self.data
        path = ""
        for part in parts[:-1]:
            path = f"{path}.{part}" if path else part
            is_open = isinstance(self._child(node, part), (dict, list))
            if not is_open and not self._put(node, part, path, {}, origin):
                return
            node = self._child(node, part)
        here = override.key
        value = override.value
        old = self._child(node, parts[-1])
        if isinstance(value, dict) and isinstance(old, dict):
            self._merge(old, value, here, "", _Typed(origin))
            return
        containers = isinstance(value, (dict, list)) and isinstance(old, (dict, list))
        if containers and type(value) is not type(old):
            kinds = ("mapping", "list") if isinstance(old, dict) else ("list", "mapping")
            self._conflict(here, *kinds, origin)
            return
        if self._put(node, parts[-1], here, value, origin) and override.written is not None:
            self.texts[here] = override.written

    def _put(self, node: Any, part: str, path: str, value: Any, origin: Origin) -> bool:
        if isinstance(node, list):
            if not part.lstrip("-").isdigit() or not -len(node) <= int(part) < len(node):
                self._problem(
                    "PP009",
                    f"{path}: the list has {len(node)} items, counted from 0",
                    origin,
                    "name an index of the list, or set the whole list",
                )
                return False
            self._note(path, node[int(part)], self.origin(path))
            node[int(part)] = copied(value)
        else:
            self._forget(path, node.get(part))
            node[part] = copied(value)
        self._place(path, value, origin)
        return True

    def _place(self, path: str, value: Any, origin: Origin) -> None:
        self.origins[path] = origin
        self.texts.pop(path, None)
        if isinstance(value, dict):
            for key, inner in value.items():
                self._place(f"{path}.{key}", inner, origin)

    def _delete(self, override: Override) -> None:
        parent_key, _, last = override.key.rpartition(".")
        parent = self.at(parent_key) if parent_key else self.data
        old = self._child(parent, last)
        if old in (None, MISSING):
            self._problem("PP009", f"{override.key} is not set, so it cannot be removed",
                          override.origin, "leave the override out")  # fmt: skip
        elif override.value is not None and override.value != old:
            self._problem(
                "PP009",
                f"{override.key} has another value than this, so it is not removed",
                override.origin,
                f"write ~{override.key}",
            )
        elif isinstance(parent, list):
            self._note(override.key, old, self.origin(override.key))
            self._note_removal(override.key, None, override.origin)
            place = self.origins.pop(parent_key, None) or self.origin(parent_key)
            self._forget(parent_key, parent)  # the items that follow change their places
            self.origins[parent_key] = place
            del parent[int(last)]
        else:
            del parent[last]
            self._forget(override.key, old)
            self._note_removal(override.key, old, override.origin)

    # -- reading ----------------------------------------------------------------------------

    def at(self, key: str) -> Any:
        """Value of a dotted key, or ``None``."""
        node: Any = self.data
        for part in key.split("."):
            node = self._child(node, part)
        return node

    def origin(self, key: str) -> Origin:
        """Origin of a dotted key, or of the closest enclosing key that has one."""
        return origin_of(self.origins, key)

    @staticmethod
    def _child(node: Any, part: str) -> Any:
        if isinstance(node, dict):
            return node.get(part)
        if isinstance(node, list) and part.lstrip("-").isdigit():
            index = int(part)
            return node[index] if -len(node) <= index < len(node) else None
        return None

    # -- bookkeeping ------------------------------------------------------------------------

    def _forget(self, path: str, old: Any) -> None:
        """Drop what is known of a key with the value ``old``, and of everything below it.

        What was said of it goes to the history.
        """
        origin = self.origins.pop(path, None)
        self.texts.pop(path, None)
        if origin is not None and not isinstance(old, dict):
            self._note(path, old, origin)
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(old, dict):
            items = old.items()
        elif isinstance(old, list):
            items = enumerate(old)
        for key, value in items:
            self._forget(f"{path}.{key}", value)

    def _note(self, path: str, value: Any, origin: Origin, removed: bool = False) -> None:
        self.history.setdefault(path, []).append(Word(copied(value), origin, removed))

    def _note_removal(self, path: str, old: Any, origin: Origin) -> None:
        if isinstance(old, dict):
            for key, value in old.items():
                self._note_removal(f"{path}.{key}", value, origin)
        else:
            self._note(path, None, origin, removed=True)

    def _conflict(self, path: str, old: str, new: str, origin: Origin) -> None:
        self._problem(
            "PP005",
            f"{path} is a {new} here and a {old} in an earlier layer",
            origin,
            f"write a {old}",
            because=(Because(f"{path} is a {old}", origin=self.origin(path)),),
        )

    def _problem(
        self,
        code: str,
        message: str,
        origin: Origin,
        fix: str,
        because: tuple[Because, ...] = (),
    ) -> None:
        self.problems.append(
            compose_diagnostic(code, message, origin, fix=(Fix(fix),), because=because)
        )


class _Source:
    """Origins of the keys of a document."""

    def __init__(self, document: Document, label: str) -> None:
        self.document = document
        self.label = label

    def at(self, key: str) -> Origin:
        return self.document.origin(key, self.label)

    def copy_texts(self, key: str, path: str, value: Any, texts: dict[str, str]) -> None:
        """Note at ``path`` how the numbers of ``value`` are written at ``key`` of the document."""
        written = self.document.texts.get(key)
        if written is not None:
            texts[path] = written
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.copy_texts(f"{key}.{index}", f"{path}.{index}", item, texts)


class _Typed(_Source):
    """Origins of the keys of a mapping that was typed as an override: all the same."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin

    def at(self, key: str) -> Origin:
        return self.origin

    def copy_texts(self, key: str, path: str, value: Any, texts: dict[str, str]) -> None:
        pass  # the parser of overrides keeps no digits of nested values


def copied(value: Any) -> Any:
    """A deep copy of plain data."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _holds_target(value: Any, depth: int = 0) -> bool:
    if depth > DEPTH_LIMIT:
        return False
    if isinstance(value, dict):
        return any(
            key == "_target_" or _holds_target(inner, depth + 1) for key, inner in value.items()
        )
    return isinstance(value, list) and any(_holds_target(item, depth + 1) for item in value)

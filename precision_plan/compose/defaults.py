"""Expands defaults lists into an ordered list of files, by the rules of Hydra.

Hydra's own expansion stops at the first problem, forgets where an entry stands and takes most of
a start-up to import. This one follows the same rules (held to them by tests that compare the
result with ``hydra.compose``), keeps the position of every entry and goes on after a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from precision_plan.compose.document import Document
from precision_plan.compose.entries import Entry
from precision_plan.compose.overrides import Override
from precision_plan.compose.placed import Placed
from precision_plan.compose.reading import display_path
from precision_plan.compose.search_path import PRIMARY, RECIPE_GROUP, SearchPath
from precision_plan.compose.suggest import closest, listed
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.history import Word
from precision_plan.plan.origin import Origin

INCLUDE_LIMIT = 500
"""Files of one composition, each counted as often as it is included; a recipe has some fifteen."""

_SELF = Entry("self", "_self_")
_INTERPOLATION = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Layer:
    """One file in the order of composition; ``package`` is the dotted key that it fills."""

    document: Document
    package: str
    label: str


@dataclass(frozen=True, slots=True)
class Expansion:
    """The layers, first to last, the choice made for each group, and who made and lost it.

    The last of a group's ``words`` is the one that was heard.
    """

    layers: tuple[Layer, ...]
    choices: Mapping[str, str]
    problems: tuple[Diagnostic, ...]
    words: Mapping[str, tuple[Word, ...]]


def expand(search_path: SearchPath, overrides: Sequence[Override]) -> Expansion:
    """Expand the primary config under the group overrides among ``overrides``."""
    expander = _Expander(search_path, overrides)
    root = Placed(Entry("config", PRIMARY), "", "")
    layers = expander.expand(root, ())
    expander.report_unused()
    chosen = {key: name for key, name in reversed(expander.known.items()) if name is not None}
    words = {key: tuple(reversed(said)) for key, said in expander.words.items()}
    return Expansion(tuple(layers), chosen, tuple(expander.problems), words)


class _Expander:
    def __init__(self, search_path: SearchPath, overrides: Sequence[Override]) -> None:
        self.search_path = search_path
        self.problems: list[Diagnostic] = []
        self.known: dict[str, str | None] = {}
        self.placed: dict[str, Entry] = {}
        self.appended: list[Entry] = []
        self.asked: dict[str, tuple[str | tuple[str, ...] | None, Origin]] = {}
        self.deleted: dict[str, tuple[str | None, Origin]] = {}
        self.words: dict[str, list[Word]] = {}
        self.used: set[str] = set()
        self.leaves: set[str] = set()
        self.count = 0
        for override in overrides:
            self._take(override)

    def _take(self, override: Override) -> None:
        """Sort a group override into what it asks for."""
        value = override.value
        choice = tuple(value) if isinstance(value, list) else value
        key = override.key if override.package is None else f"{override.key}@{override.package}"
        if override.kind == "delete":
            self.deleted[key] = (choice if isinstance(choice, str) else None, override.origin)
        elif override.kind == "add":
            package = "" if override.package == "_here_" else override.package
            self.appended.append(
                Entry("group", override.key, choice, package, appended=True, origin=override.origin)
            )
        else:
            self.asked[key] = (choice, override.origin)
            self._said(key, choice, override.origin)

    # -- the tree ---------------------------------------------------------------------------

    def expand(self, node: Placed, chain: tuple[str, ...]) -> list[Layer]:
        """Layers of ``node`` and of what it includes; ``chain`` holds the files above it."""
        is_root = not chain
        self.count += 1
        if self.count > INCLUDE_LIMIT:
            self._too_many(node)
            return []
        key = node.override_key
        is_group = node.entry.kind == "group"
        if is_group and key in self.deleted and self.deleted[key][0] in (None, node.choice):
            self.used.add(f"~{key}")
            self.words[key].insert(0, Word(None, self.deleted[key][1], removed=True))
            return []
        if is_group and not self._settle(node, key):
            return []
        if is_group and node.choice is None:
            return []
        if node.choice == "???":
            self._missing_choice(node)
            return []
        document = self._load(node)
        if document is None:
            return []
        path = node.config_path
        if path in chain:
            self._cycle(node, (*chain[chain.index(path) :], path))
            return []
        node.header = _header(document, path)
        entries = self._entries(document, is_root)
        self._note_overrides(node, entries)
        layer = Layer(document, node.final_package(), self._label(node))
        if not any(entry.kind == "self" or not entry.override for entry in entries):
            if is_group and key in self.leaves:
                self._twice(node, key)
            elif is_group:
                self.leaves.add(key)
            return [layer]
        return self._children(node, layer, entries, (*chain, path))

    def _children(
        self, node: Placed, own: Layer, entries: Sequence[Entry], chain: tuple[str, ...]
    ) -> list[Layer]:
        """Expand entries last to first: a later entry's overrides reach the earlier ones."""
        parts: list[list[Layer]] = []
        deferred: list[tuple[int, Placed]] = []
        for entry in reversed(entries):
            if entry.kind == "self":
                parts.append([own])
                continue
            if entry.override:
                continue
            child = self._place(entry, node)
            names = child.entry.value
            if isinstance(names, tuple):
                parts.append(self._options(child, names, node, chain))
            elif "${" in (child.entry.name if child.entry.kind == "config" else names or ""):
                deferred.append((len(parts), child))
                parts.append([])
            else:
                parts.append(self.expand(child, chain))
        for index, child in deferred:
            if self._interpolate(child):
                parts[index] = self.expand(child, chain)
        return [layer for part in reversed(parts) for layer in part]

    def _place(self, entry: Entry, parent: Placed) -> Placed:
        node = Placed(entry, parent.group, parent.final_package())
        key = node.override_key
        if entry.kind == "group":
            self._said(key, entry.value, entry.origin)
        if entry.kind == "group" and key in self.asked:
            choice, origin = self.asked[key]
            node.entry = replace(node.entry, value=choice, origin=origin)
            self.used.add(key)
        return node

    def _options(
        self, child: Placed, names: tuple[str, ...], parent: Placed, chain: tuple[str, ...]
    ) -> list[Layer]:
        parts = []
        for name in reversed(names):
            entry = Entry(
                "config",
                f"{child.entry.name}/{name}",
                package=child.entry.package,
                optional=child.entry.optional,
                origin=child.entry.origin,
            )
            parts.append(self.expand(Placed(entry, parent.group, parent.final_package()), chain))
        return [layer for part in reversed(parts) for layer in part]

    def _entries(self, document: Document, is_root: bool) -> Sequence[Entry]:
        """The entries with ``_self_`` made explicit; the root also has those that were appended."""
        entries = list(document.entries)
        if not entries and not (is_root and self.appended):
            return ()
        selves = [entry for entry in entries if entry.kind == "self"]
        for extra in selves[1:]:
            self._problem("PP016", "_self_ appears twice in the defaults list", extra.origin,
                          "keep one")  # fmt: skip
            entries.remove(extra)
        if not entries or (not selves and any(not entry.override for entry in entries)):
            entries.append(_SELF)
        if is_root:
            entries.extend(self.appended)
        return entries

    def _note_overrides(self, node: Placed, entries: Iterable[Entry]) -> None:
        """Take what the list overrides; the first to ask wins, so the outermost file does."""
        seen: Entry | None = None
        for entry in entries:
            if entry.override:
                seen = entry
                if entry.name.removeprefix("/").startswith("hydra/"):
                    continue
                placed = Placed(entry, node.group, node.final_package())
                self.asked.setdefault(placed.override_key, (entry.value, entry.origin))
                self._said(placed.override_key, entry.value, entry.origin)
            elif seen is not None and entry.kind != "self" and not entry.appended:
                self._problem(
                    "PP016",
                    f"'override {seen.name}' stands before '{entry.name}'; overrides end the list",
                    seen.origin,
                    "move it to the end of the defaults list",
                )

    def _said(self, key: str, choice: str | tuple[str, ...] | None, origin: Origin) -> None:
        """Note one more who asked for a choice, after the one that outranks it."""
        self.words.setdefault(key, []).append(Word(choice, origin))

    # -- single entries ---------------------------------------------------------------------

    def _settle(self, node: Placed, key: str) -> bool:
        """Note the choice of a group; false if another entry has made another choice already.

        The tree is walked last to first, so it is the entry placed before that is one too many.
        """
        if key not in self.placed:
            self.known[key] = node.choice
            self.placed[key] = node.entry
            return True
        if self.known[key] == node.choice:
            return True
        self._twice(node, key)
        return False

    def _twice(self, node: Placed, key: str) -> None:
        extra, choice = self.placed[key], self.known[key]
        text = f"{key}={_shown(choice)}"
        by_hand = extra.origin.layer == "override"
        fix = text if by_hand else f"- override /{key}: {_shown(choice)}"
        self._problem(
            "PP016",
            f"the defaults lists have an entry for {key} already",
            extra.origin,
            f"write '{fix}'" + ("" if by_hand else " at the end of the list"),
            because=(Because(f"{key}: {_shown(node.choice)}", origin=node.entry.origin),),
        )

    def _load(self, node: Placed) -> Document | None:
        path = self.search_path.find(node.config_path)
        if path is not None:
            return self.search_path.read(path)
        if not node.entry.optional:
            self._not_found(node)
        return None

    def _not_found(self, node: Placed) -> None:
        group, choice = node.group, node.choice or ""
        if not group:
            message = f"no folder of the search path holds {node.config_path}.yaml"
            folders = ", ".join(display_path(folder) for folder in self.search_path.folders)
            self._problem("PP006", message, node.entry.origin,
                          because=(Because(f"searched: {folders}"),))  # fmt: skip
            return
        choices = self.search_path.choices(group)
        what = "recipe" if group == RECIPE_GROUP else f"choice for {group}"
        near = closest(choice, choices)
        fix = f"did you mean {near}?" if near else None
        because = (
            (Because(f"there are: {listed(choices)}"),)
            if choices
            else (Because(f"no folder of the search path has a folder {group}"),)
        )
        self._problem(
            "PP006", f"there is no {what} named {choice!r}", node.entry.origin, fix, because=because
        )

    def _missing_choice(self, node: Placed) -> None:
        choices = self.search_path.choices(node.group)
        self._problem(
            "PP006",
            f"a choice for {node.group} must be made",
            node.entry.origin,
            f"add {node.override_key}=... ({listed(choices)})",
        )

    def _too_many(self, node: Placed) -> None:
        if self.count == INCLUDE_LIMIT + 1:
            message = f"the defaults lists lead to more than {INCLUDE_LIMIT} files"
            self._problem("PP012", message, node.entry.origin)

    def _cycle(self, node: Placed, chain: tuple[str, ...]) -> None:
        self._problem(
            "PP007",
            f"defaults lists include each other: {' -> '.join(chain)}",
            node.entry.origin,
            "remove one of these entries",
        )

    def _interpolate(self, node: Placed) -> bool:
        """Replace ``${group}`` in an entry by the choice made for that group."""
        text = node.entry.name if node.entry.kind == "config" else str(node.entry.value)
        unknown = [name for name in _INTERPOLATION.findall(text) if not self.known.get(name)]
        if unknown:
            self._problem(
                "PP014",
                f"{text} names {unknown[0]}, for which no choice is made",
                node.entry.origin,
                f"known here: {listed(sorted(key for key, name in self.known.items() if name))}",
            )
            return False
        text = _INTERPOLATION.sub(lambda match: str(self.known[match[1]]), text)
        if node.entry.kind == "config":
            node.entry = replace(node.entry, name=text)
        else:
            node.entry = replace(node.entry, value=text)
        return True

    def _label(self, node: Placed) -> str:
        path = node.config_path
        if path == PRIMARY:
            return "config"
        if node.group == RECIPE_GROUP and node.entry.appended:
            return "recipe"
        if node.entry.kind == "group":
            return f"{node.override_key}={node.choice}"
        return f"{node.group}={node.choice}" if node.group else path

    def report_unused(self) -> None:
        """Report group overrides that met no entry to change."""
        for key, (choice, origin) in self.asked.items():
            if key in self.used:
                continue
            group = key.partition("@")[0]
            near = [known for known in self.known if known.partition("@")[0] == group]
            absolute = group.rpartition("/")[2]
            if near:
                fix = f"name {listed(near)}"
            elif absolute in self.known and origin.layer != "override":
                fix = f"write '- override /{absolute}: {_shown(choice)}' with the slash"
            else:
                fix = f"write +{key}={_shown(choice)}"
            self._problem("PP016", f"no defaults list has an entry {key} to override", origin, fix)
        for key, (name, origin) in self.deleted.items():
            if f"~{key}" not in self.used:
                text = key if name is None else f"{key}={name}"
                self._problem("PP016", f"no defaults list has an entry {text} to remove", origin)

    def _problem(
        self,
        code: str,
        message: str,
        origin: Origin,
        fix: str | None = None,
        because: tuple[Because, ...] = (),
    ) -> None:
        fixes = (Fix(fix),) if fix else ()
        self.problems.append(compose_diagnostic(code, message, origin, because=because, fix=fixes))


def _header(document: Document, config_path: str) -> str | None:
    """Package header as an absolute package; a recipe without one is global."""
    header = document.package
    if header is None:
        return "_global_" if config_path.startswith(f"{RECIPE_GROUP}/") else None
    if header == "_global_" or header.startswith("_global_."):
        return header
    return f"_global_.{header}"


def _shown(choice: str | tuple[str, ...] | None) -> str:
    if choice is None:
        return "null"
    return choice if isinstance(choice, str) else f"[{','.join(choice)}]"

"""Where everything of a YAML text stands, to the character: what an edit of the text needs.

PyYAML's nodes forget aliases, and a block ends for them where the next one begins. Its events
know better; this tree is made of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from precision_plan.compose.scalars import Loader

_COLON = re.compile(r"[ \t]*:")
MERGE = "<<"


@dataclass(slots=True, eq=False)
class Node:
    """A scalar, mapping, list or alias.

    ``start`` is the index of its first character, an anchor and a tag among them; ``end`` lies
    behind its last one: comments and blank lines that follow are not part of it. ``style`` is
    that of a scalar: empty, a quote, ``|`` or ``>``. ``text`` is what a scalar says, or the name
    of the anchor that an alias leads to.
    """

    kind: Literal["scalar", "mapping", "list", "alias"]
    start: int
    end: int
    flow: bool = False
    style: str = ""
    anchor: str | None = None
    text: str = ""
    pairs: list[Pair] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """True for a value that is not written at all (``key:``)."""
        return self.kind == "scalar" and self.start == self.end

    def walk(self) -> Iterator[Node]:
        """The node and everything in it."""
        yield self
        for pair in self.pairs:
            yield from pair.key.walk()
            yield from pair.value.walk()
        for item in self.items:
            yield from item.walk()


@dataclass(slots=True, eq=False)
class Pair:
    """A key with its value; ``colon`` is the index behind the colon, if it follows the key."""

    key: Node
    value: Node
    colon: int | None

    @property
    def start(self) -> int:
        """Index of its first character."""
        return self.key.start

    @property
    def end(self) -> int:
        """Index behind its last character."""
        if not self.value.empty:
            return self.value.end
        return self.key.end if self.colon is None else self.colon


def layout(text: str) -> Node | None:
    """The tree of the one document in ``text``; ``None`` if it is empty.

    Raises:
        yaml.YAMLError: if the text is no YAML.
    """
    events: Iterator[Any] = yaml.parse(text, Loader)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return _node(next(events), events, text, False)
    return None


def _node(event: Any, events: Iterator[Any], text: str, inside_flow: bool) -> Node:
    start, end = event.start_mark.index, event.end_mark.index
    if isinstance(event, yaml.AliasEvent):
        return Node("alias", start, end, inside_flow, text=str(event.anchor))
    if isinstance(event, yaml.ScalarEvent):
        style = event.style or ""
        if style in ("|", ">"):  # the breaks behind a block scalar are not part of it
            end = start + len(text[start:end].rstrip())
        return Node("scalar", start, end, inside_flow, style, event.anchor, event.value)
    is_mapping = isinstance(event, yaml.MappingStartEvent)
    kind: Literal["mapping", "list"] = "mapping" if is_mapping else "list"
    node = Node(kind, start, end, event.flow_style, anchor=event.anchor)
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            end = _end(event)
            break
        child = _node(event, events, text, node.flow)
        if not is_mapping:
            node.items.append(child)
            continue
        match = _COLON.match(text, child.end)
        value = _node(next(events), events, text, node.flow)
        node.pairs.append(Pair(child, value, match.end() if match else None))
    if node.flow:
        node.end = end
    elif node.pairs or node.items:
        node.end = node.pairs[-1].end if node.pairs else node.items[-1].end
    return node


def _end(event: Any) -> int:
    return int(event.end_mark.index)


@dataclass(slots=True, eq=False)
class Place:
    """Where a key stands: its mapping, its pair, and the place of the key that holds both."""

    mapping: Node
    pair: Pair
    parent: Place | None


def places(root: Node) -> dict[str, Place | None]:
    """Every key by its dotted name; ``None`` where two keys have the same one.

    What an alias or a merge key brings in is not written here, and left out.
    """
    found: dict[str, Place | None] = {}
    pending: list[tuple[str, Node, Place | None]] = [("", root, None)]
    while pending:
        path, node, parent = pending.pop()
        for pair in node.pairs:
            if pair.key.kind != "scalar" or (pair.key.text == MERGE and not pair.key.style):
                continue
            here = f"{path}.{pair.key.text}" if path else pair.key.text
            place = Place(node, pair, parent)
            found[here] = None if here in found else place
            if pair.value.kind == "mapping":
                pending.append((here, pair.value, place))
    return found

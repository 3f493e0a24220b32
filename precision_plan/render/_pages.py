"""What a rule's page holds, and how a terminal shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from precision_plan.plan import Severity
from precision_plan.render._layout import Style, hanging, table, wrap

_INDENT = 15


@dataclass(frozen=True, slots=True)
class Page:
    """One rule as its page tells it.

    ``sections`` maps a heading (``Why``, ``Bad``, ``Good``) to its text; ``Bad`` and ``Good`` are
    YAML. ``scope`` lists label and text of where and since when the rule holds.
    """

    id: str
    slug: str
    severity: Severity
    summary: str
    sections: Mapping[str, str] = field(default_factory=dict)
    scope: tuple[tuple[str, str], ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of a flag or variable: rows of label and text.

    ``names`` are all its names, by which rules may speak of it.
    """

    title: str
    kind: str
    rows: tuple[tuple[str, str], ...]
    names: tuple[str, ...] = ()

    def with_rows(self, label: str, texts: Iterable[str]) -> Card:
        """The card with one more row for each of ``texts``."""
        return replace(self, rows=(*self.rows, *((label, text) for text in texts)))


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items of a docstring section, each on one line."""
    for block in re.split(r"\n\s*\n|\n(?=\s*- )", text.strip()):
        yield " ".join(block.split())


def page_text(page: Page, *, width: int = 80, color: bool = False) -> str:
    """One page for a terminal."""
    style = Style(color)
    head = f"{page.severity}[{page.id}]"
    lines = [f"{style(page.severity, head)} {style('title', page.slug)}"]
    lines += ["  " + line for line in wrap(page.summary, width - 2)]
    for heading, text in page.sections.items():
        lines += ["", style("title", heading)]
        if heading in ("Bad", "Good"):
            lines += [f"  {line}".rstrip() for line in text.splitlines()]
            continue
        for paragraph in paragraphs(text.replace("``", "`")):
            lines += ["  " + line for line in wrap(paragraph, width - 2)]
    rows = (*page.scope, *(("source", source) for source in page.source))
    return "\n".join([*lines, "", *_rows(rows, width, style)]) + "\n"


def card_text(card: Card, *, width: int = 80, color: bool = False) -> str:
    """One card for a terminal."""
    style = Style(color)
    head = f"{style('title', card.title)}  {style('dim', card.kind)}"
    return "\n".join([head, *_rows(card.rows, width, style)]) + "\n"


def _rows(rows: Iterable[tuple[str, str]], width: int, style: Style) -> list[str]:
    lines: list[str] = []
    last = ""
    for label, text in rows:
        plain = f"  {label if label != last else ''}"
        indent = max(_INDENT, len(plain) + 2)
        lines += hanging(plain, text, width, indent=indent, painted=style("dim", plain))
        last = label
    return lines


def list_text(pages: Iterable[Page], *, width: int = 80, color: bool = False) -> str:
    """All rules, one row each."""
    style = Style(color)
    rows = [(page.id, page.severity, page.slug, page.summary) for page in pages]
    lines = table(rows, (5, 7, max(width * 2 // 5, 20)), width, indent=0)
    counts: dict[str, int] = {}
    for _, severity, _, _ in rows:
        counts[severity] = counts.get(severity, 0) + 1
    total = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    return "\n".join([*lines, "", style("dim", f"{len(rows)} rules: {total}")]) + "\n"


def page_data(page: Page) -> dict[str, object]:
    """One page as JSON data."""
    return {
        "id": page.id,
        "slug": page.slug,
        "severity": page.severity,
        "summary": page.summary,
        "sections": dict(page.sections),
        "scope": dict(page.scope),
        "source": list(page.source),
        "docs": f"docs/rules/{page.id}.md",
    }

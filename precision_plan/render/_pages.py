"""What a rule's page holds, and how a terminal shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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
    lines.append("")
    for label, text in (*page.scope, *(("source", source) for source in page.source)):
        plain = f"  {label}"
        lines += hanging(plain, text, width, indent=_INDENT, painted=style("dim", plain))
    return "\n".join(lines) + "\n"


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

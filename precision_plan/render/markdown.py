"""Pages of the rules, as they stand in ``docs/rules``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from precision_plan.render._pages import Page, paragraphs

_GITHUB_FILE = re.compile(r"([\w.-]+/[\w.-]+)@([^:\s]+):([^:\s]+?)(?::(\d+)(?:-(\d+))?)?")
_GITHUB_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_FAMILIES = {
    "0": "Composition and schema",
    "1": "Training formats",
    "2": "Hardware and toolkit",
    "3": "Optimizer and parameters",
    "4": "Rollout, KV cache and state cache",
    "5": "Training against rollout",
    "6": "Environment",
    "7": "Checkpoint",
    "8": "Shapes and memory",
    "9": "Import leftovers",
}


def pages(rules: Iterable[Page]) -> Mapping[str, str]:
    """File name to text: one page per rule and ``README.md``, the index."""
    known = tuple(rules)
    files = {f"{page.id}.md": rule_page(page) for page in known}
    return {"README.md": index(known), **files}


def rule_page(page: Page) -> str:
    """One rule's page."""
    lines = [f"# {page.id} {page.slug}", "", f"**{page.severity}**: {_prose(page.summary)}.", ""]
    if page.scope:
        lines += ["| | |", "|---|---|"]
        lines += [f"| {label} | {_cell(text)} |" for label, text in page.scope]
        lines.append("")
    for heading, text in page.sections.items():
        lines += [f"## {heading}", ""]
        if heading in ("Bad", "Good"):
            lines += ["```yaml", text.rstrip(), "```", ""]
        else:
            for paragraph in paragraphs(text):
                lines += [_prose(paragraph), ""]
    if page.source:
        lines += ["## Source", "", *(f"- {_link(source)}" for source in page.source), ""]
    return "\n".join(lines)


def index(rules: Iterable[Page]) -> str:
    """The table of contents, by family."""
    lines = [
        "# Rules",
        "",
        "Written by `precision-plan rules --format markdown -o docs/rules`.",
        "`precision-plan explain ID` shows a page in the terminal.",
    ]
    family = ""
    for page in rules:
        if page.id[2] != family:
            family = page.id[2]
            lines += [
                "",
                f"## {_FAMILIES[family]}",
                "",
                "| id | rule | severity | |",
                "|---|---|---|---|",
            ]
        summary = _cell(page.summary)
        lines.append(f"| [{page.id}]({page.id}.md) | {page.slug} | {page.severity} | {summary} |")
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return _prose(text).replace("|", r"\|")


def address(source: str) -> str:
    """The address of a source, to the very lines, where its form tells it; else nothing."""
    if source.startswith("https://"):
        return source.partition(" ")[0]
    issue = _GITHUB_ISSUE.fullmatch(source)
    if issue:
        return f"https://github.com/{issue[1]}/issues/{issue[2]}"
    file = _GITHUB_FILE.fullmatch(source)
    if file:
        repository, commit, path, first, last = file.groups()
        lines = f"#L{first}" + (f"-L{last}" if last else "") if first else ""
        return f"https://github.com/{repository}/blob/{commit}/{path}{lines}"
    return ""


def _link(source: str) -> str:
    """The source as a link, where it has an address."""
    link = address(source)
    if not link:
        return f"`{source}`"
    if source.startswith("https://"):
        return f"<{link}> {source.partition(' ')[2]}".rstrip()
    return f"[{source}]({link})"

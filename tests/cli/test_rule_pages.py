"""docs/rules holds what ``rules --format markdown`` writes, one page per rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_plan.__main__ import main
from precision_plan.cli._pages import pages
from precision_plan.plan.codes import CODES
from precision_plan.render.markdown import pages as markdown_pages
from precision_plan.render.markdown import rule_page
from precision_plan.rules.registry import rules

DOCS = Path(__file__).parents[2] / "docs" / "rules"
PAGES = {page.id: page for page in pages()}


def test_every_rule_and_code_has_a_page() -> None:
    assert PAGES.keys() == CODES.keys() | rules().keys()
    assert all(page.sections.get("Why") for page in PAGES.values())
    assert all(PAGES[id].sections.keys() == {"Why", "Bad", "Good"} for id in rules())


@pytest.mark.parametrize("name", ["README.md", *(f"{id}.md" for id in PAGES)])
def test_the_committed_pages_are_up_to_date(committed, name: str) -> None:
    committed(DOCS / name, markdown_pages(PAGES.values())[name])


def test_no_page_of_a_rule_that_is_gone() -> None:
    assert {path.stem for path in DOCS.glob("PP*.md")} == set(PAGES)


def test_the_index_links_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    assert set(re.findall(r"\]\((PP\d+)\.md\)", index)) == set(PAGES)


def test_a_page() -> None:
    text = rule_page(PAGES["PP101"])
    assert text.startswith("# PP101 fp16-with-bf16\n\n**error**: ")
    assert "## Bad\n\n```yaml\ntraining: {bf16: true, fp16: true}\n```\n" in text
    assert (
        "(https://github.com/NVIDIA/Megatron-LM/blob/core_v0.16.1/megatron/training/arguments.py"
        "#L703)" in text
    )


def test_the_verb_writes_what_differs_and_removes_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "PP999.md").write_text("gone")
    (tmp_path / "notes.md").write_text("mine")
    assert main(["rules", "--format", "markdown", "-o", str(tmp_path)]) == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written.pop("notes.md") == "mine"
    assert written == markdown_pages(PAGES.values())

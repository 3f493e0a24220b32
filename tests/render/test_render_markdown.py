"""The job summary, as a reader of Markdown renders it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from markdown_it import MarkdownIt

from precision_plan.plan.compiled import LintReport
from precision_plan.render import job_summary, render_lint
from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask
from precision_plan.render._run import in_order
from precision_plan.render._told import told
from tests.render.ci_samples import CLEAN, NOWHERE, REPORT, REPORTS, RUN, WITH_BASELINE
from tests.render.samples import ERROR, RECIPE

SNAPSHOTS = Path(__file__).parent / "snapshots"
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


class Reader(HTMLParser):
    """Collects the elements, and the text of every ``<code>``."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.codes: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs, (tag, attrs)
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)
        if tag == "code":
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "code":
            self.codes[-1] += data


def rendered(report: LintReport) -> Reader:
    reader = Reader()
    reader.feed(READER.render(render_lint(report, "markdown", run=RUN)))
    reader.close()
    assert reader.open == []
    return reader


def test_what_is_written(committed) -> None:
    committed(SNAPSHOTS / "lint.md", render_lint(REPORT, "markdown", run=RUN))
    committed(SNAPSHOTS / "lint-baseline.md", render_lint(WITH_BASELINE, "markdown", run=RUN))


def test_a_clean_report() -> None:
    assert render_lint(CLEAN, "markdown", run=RUN) == (
        "## precision-plan: 0 errors, 0 warnings\n\n64 rules, 2 files, 1 skipped\n"
    )


def test_findings_of_a_file_stand_together() -> None:
    other = replace(ERROR, origin=replace(ERROR.origin, file="b.yaml"))
    advice = replace(ERROR, severity="advice", message="last")
    text = render_lint(replace(REPORT, diagnostics=(ERROR, other, advice)), "markdown", run=RUN)
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert headings == ["### <code>conf/recipes/my-mxfp8.yaml</code>", "### <code>b.yaml</code>"]
    assert text.index("last") < text.index("b.yaml")


def test_a_finding_without_a_file() -> None:
    text = render_lint(replace(REPORT, diagnostics=(NOWHERE,)), "markdown", run=RUN)
    assert "\n### Command line\n" in text


def test_what_github_would_refuse_as_too_long_is_cut(monkeypatch) -> None:
    monkeypatch.setattr(job_summary, "LIMIT", 2000)
    many = tuple(replace(ERROR, message=f"finding {number}") for number in range(50))
    text = render_lint(replace(REPORT, diagnostics=many), "markdown", run=RUN)
    shown = text.count("<details>")
    assert len(text) <= 2100 and 0 < shown < 50
    assert f"{50 - shown} findings more do not fit here; the log has them.\n" in text
    assert text.startswith("## precision-plan: 50 errors, 0 warnings\n")


def test_nothing_in_a_recipe_is_markdown_or_html() -> None:
    nasty = "<img src=x> [a](http://b) `c` *d* | e | @team #1 &amp; </code></details> ~~f~~ \\"
    reader = rendered(replace(REPORT, diagnostics=(replace(ERROR, message=nasty),)))
    assert nasty in reader.codes
    assert {"img", "a", "em", "table", "del"}.isdisjoint(reader.tags)


@given(REPORTS)
def test_every_text_arrives(report: LintReport) -> None:
    reader = rendered(report)
    for found in in_order(report):
        words, place = told(found, RUN, Mask()), RUN.place_of(found, Mask())
        assert place is not None
        # What HTML calls white space is one space for whoever reads it.
        for text in (words.message, *(text for _, text in words.rows)):
            assert text in reader.codes
        assert printable(place.path).split() in [code.split() for code in reader.codes]
    plain = {"h2", "h3", "p", "details", "summary", "b", "br", "code", "ul", "li"}
    assert set(reader.tags) <= plain


def test_the_recipe_is_named() -> None:
    assert RECIPE in rendered(REPORT).codes

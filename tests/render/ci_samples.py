"""Reports with whatever a format for CI has to cope with, and the run that they come from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from precision_plan.plan import Because, Diagnostic, Fix, Origin
from precision_plan.plan.compiled import BaselineUse, LintReport
from precision_plan.render._pages import Page
from precision_plan.render._run import Run
from tests.render.samples import ADVICE, ERROR, RECIPE, WARNING

PAGE = Page(
    "PP204",
    "mxfp8-needs-sm100",
    "error",
    "MXFP8 training needs a data-center Blackwell GPU",
    {"Why": "The units are not there.\n\nNor will they be.", "Bad": "hardware: {gpu: h200}"},
    (("hardware", "10.0 up to 12.0"),),
    ("a.py: read from source", "NVIDIA/TransformerEngine#1939"),
)
RUN = Run(here="/work/repository", root="/work/repository", pages={"PP204": PAGE})

OF_ARGUMENT = Diagnostic(
    id="PP802",
    slug="layers-cut-through-fp8-blocks",
    severity="error",
    message="256 / 4 = 64 input columns, 50% of a block",
    field="rollout.tensor_parallel_size",
    origin=Origin("--target tensor_parallel_size=4", layer="target"),
    because=(Because("64 heads", "model.num_attention_heads", Origin("m/config.json", 10, 3)),),
)
NOWHERE = Diagnostic("PP010", "unreadable-file", "error", "an empty path names no file or folder")
BROKEN = Diagnostic("PP001", "broken-yaml", "error", "a tab", origin=Origin("other.yaml", 2, 1))

REPORT = LintReport(
    diagnostics=(ADVICE, ERROR, WARNING, OF_ARGUMENT),  # not in order
    files=(RECIPE, "conf/recipes/clean.yaml"),
    rules_checked=64,
    unchecked={"PP211": ("vllm",), "PP212": ("gpu", "vllm")},
    seconds=0.5,
    skipped=("conf/notes.yaml",),
)
CLEAN = replace(REPORT, diagnostics=(), unchecked={})
WITH_BASELINE = replace(
    REPORT,
    diagnostics=(ADVICE,),
    unchecked={},
    baseline=BaselineUse("ci/baseline.json", hidden=(ERROR, WARNING), gone=1),
)
FORMATS = ("text", "json", "github", "sarif", "junit", "markdown")

TEXT = st.text(max_size=60)
PATH = st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text)
FINDINGS = st.builds(
    Diagnostic,
    id=st.just("PP204"),
    slug=st.just("mxfp8-needs-sm100"),
    severity=st.sampled_from(("error", "warning", "advice")),
    message=TEXT,
    field=st.none() | TEXT,
    origin=st.builds(Origin, PATH, st.integers(0, 9), st.integers(0, 9)),
    because=st.tuples(st.builds(Because, TEXT, origin=st.builds(Origin, PATH, st.integers(0, 9)))),
    fix=st.tuples(st.builds(Fix, TEXT)),
    resolved=st.dictionaries(TEXT, TEXT, max_size=1),
)
REPORTS = st.builds(
    lambda findings, files: replace(REPORT, diagnostics=tuple(findings), files=tuple(files)),
    st.lists(FINDINGS, max_size=3),
    st.lists(PATH, max_size=2),
)

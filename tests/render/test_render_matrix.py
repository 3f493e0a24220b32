"""The support matrix as a person and a program see it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from precision_plan.plan.matrix import STATUSES, Cell, Matrix, Reason, RuleLine, Status
from precision_plan.render.matrix import MATRIX_FORMATS, render_matrix

SNAPSHOTS = Path(__file__).parent / "snapshots"

PP204 = Reason("PP204", "error", "training.fp8_recipe = mxfp8 needs compute capability 10.0")
PP502 = Reason("PP502", "warning", "vime does not support MXFP8 training with NVFP4 rollout")


def cell(gpu: str, pair: tuple[str, str], status: Status, *reasons: Reason) -> Cell:
    source = None if status == "undocumented" else "vllm-project/vime@8c1c944:docs/low.md; x@1:y"
    plan = {"software": {"framework": "vime"}, "hardware": {"gpu": gpu}}
    return Cell("vime", gpu, *pair, status, reasons, plan, source)


def asking(cell: Cell) -> Cell:
    return replace(cell, needs=("groups of 128", "a patch"), note="the trainer does not round")


MATRIX = Matrix(
    frameworks=("vime",),
    gpus=("h100", "b200"),
    capabilities={"h100": "9.0", "b200": "10.0"},
    versions={"vllm": "0.33.0"},
    cells=(
        cell("h100", ("bf16", "bf16"), "supported"),
        cell("b200", ("bf16", "bf16"), "supported"),
        asking(cell("h100", ("bf16", "int4"), "beta")),
        asking(cell("b200", ("bf16", "int4"), "beta")),
        cell("h100", ("fp16", "int4"), "undocumented"),
        cell("b200", ("fp16", "int4"), "undocumented"),
        cell("h100", ("mxfp8", "nvfp4"), "refused", PP204, PP502),
        cell("b200", ("mxfp8", "nvfp4"), "unsupported", PP502),
    ),
    rules=(
        RuleLine("PP204", "mxfp8-needs-sm100", "MXFP8 training needs SM100", ("te@2.9.0:a.py:1",)),
        RuleLine(
            "PP502", "train-rollout-pair-unsupported", "No such pair", ("a/b@1:c.md", "d/e#1")
        ),
    ),
)


@pytest.mark.parametrize("width", [60, 100])
def test_text(committed, width: int) -> None:
    text = render_matrix(MATRIX, "text", width=width)
    committed(SNAPSHOTS / f"matrix-{width}.txt", text)
    assert max(map(len, text.splitlines())) <= width


def test_markdown(committed) -> None:
    committed(SNAPSHOTS / "matrix.md", render_matrix(MATRIX, "markdown"))


def test_json(committed) -> None:
    committed(SNAPSHOTS / "matrix.json", render_matrix(MATRIX, "json"))


def test_json_holds_everything() -> None:
    data = json.loads(render_matrix(MATRIX, "json"))
    assert data["schema_version"] == 1
    assert data["statuses"] == STATUSES
    assert [(found["gpu"], found["status"]) for found in data["cells"]][-2:] == [
        ("h100", "refused"), ("b200", "unsupported"),
    ]  # fmt: skip
    assert [each["id"] for each in data["cells"][-2]["reasons"]] == ["PP204", "PP502"]
    assert data["cells"][0]["plan"]["hardware"] == {"gpu": "h100"}


def test_undocumented_pairs_are_counted_or_listed() -> None:
    short, long = (render_matrix(MATRIX, "text", width=100, every=each) for each in (False, True))
    assert "1 more pair that vime does not document" in short and "undocumented  " in short
    assert "fp16" not in short and "fp16" in long and "more pair" not in long


def test_colour_changes_nothing_but_colour() -> None:
    import re

    plain, painted = (render_matrix(MATRIX, "text", color=each) for each in (False, True))
    assert "\x1b[1;31mrefused PP204 +1\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_an_unknown_format() -> None:
    with pytest.raises(ValueError, match="text, markdown, json"):
        render_matrix(MATRIX, "yaml")
    assert MATRIX_FORMATS == ("text", "markdown", "json")

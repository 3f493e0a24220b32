"""Damaged recipes and odd overrides: findings, never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.compose import Composer, build_plan
from tests.compose.conftest import FILES

SEED = FILES["recipes/base.yaml"] + (
    "checkpoint: &c {quantization_config: {bits: 4}, save: 'a/${model.name}'}\n"
    "rollout:\n  <<: *c\n  cudagraph_capture_sizes: [1, 2]\nenv: {all: {A: '1'}}\n"
)
PIECES = [
    *["\n", " ", "- ", ": ", "{", "}", "[", "]", "*c", "&c ", "!!str ", "!x ", "<<", "'", '"'],
    *["|\n", "#", "%", "@", "${", "???", "null", "_self_", "defaults:", "\t", "\0", "\ufeff"],
    *["é", "\x85", "? ", "---\n", "~", "1e5", ".inf", "0x1", "model", "override /", ","],
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The seed with some pieces put in and some stretches taken out."""
    text = SEED
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = start + draw(st.integers(0, 6))
        text = text[:start] + draw(st.sampled_from(["", *PIECES])) + text[stop:]
    data = text.encode()
    if draw(st.integers(0, 9)) == 0:
        start = draw(st.integers(0, len(data)))
        data = data[:start] + draw(st.binary(max_size=3)) + data[start:]
    return data


@settings(max_examples=300, deadline=None)
@given(content=damaged(), texts=st.lists(st.text("a.=+~[]{}/@$:,'x1 _", max_size=10), max_size=2))
def test_damage_is_reported(content: bytes, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder)
        for name, text in FILES.items():
            (conf / name).parent.mkdir(parents=True, exist_ok=True)
            (conf / name).write_text(text, encoding="utf-8")
        (conf / "recipes" / "odd.yaml").write_bytes(content)
        composition = Composer(conf).compose("odd", texts)
        result = build_plan(composition)
    for found in (*composition.diagnostics, *result.diagnostics):
        assert found.message and "\n" not in found.message
    assert result.plan.settings() is not None

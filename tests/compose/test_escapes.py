"""Backslashes before ``${`` mean what they mean to OmegaConf."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from precision_plan.compose import Composer
from precision_plan.compose.written import written

CONF = Path(__file__).parents[2] / "conf"
HERE = str(Path(__file__).resolve())


def load(text: str) -> object:
    recipe = f"recipe: {{title: x}}\nlaunch: {{model_name: v, working_dir: {written(text)}}}\n"
    composition = Composer(CONF, texts={HERE: recipe}).compose(HERE)
    assert [found.message for found in composition.diagnostics] == []
    return composition.data["launch"]["working_dir"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"\${HOME}", "${HOME}"),
        (r"a/\${A}_b", "a/${A}_b"),
        (r"\${oc.env:A}", "${oc.env:A}"),
        (r"\${A:-b}/${launch.model_name}", "${A:-b}/v"),
        (r"\\${launch.model_name}", "\\v"),
        (r"\\\${A}", r"\${A}"),
        (r"$(cat \${A})", "$(cat ${A})"),
        (r"\$A \\ \B", r"\$A \\ \B"),
    ],
)
def test_an_escaped_dollar_is_text(text: str, meant: str) -> None:
    assert load(text) == meant


TOKENS = st.lists(st.sampled_from(["\\", "\\\\", "${launch.model_name}", r"\${X", "$", "}", "a "]))


@settings(max_examples=200, deadline=None)
@given(TOKENS.map("".join))
def test_as_omegaconf_reads_it(text: str) -> None:
    try:
        config = OmegaConf.create({"launch": {"model_name": "v", "working_dir": text}})
        wanted = config.launch.working_dir
    except Exception:  # what OmegaConf cannot read, only must not be read as something else
        return
    assert load(text) == wanted

"""docs/vllm.md names rules that exist, rest on vLLM's sources and have cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from precision_plan.rules.registry import rules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "vllm.md").read_text(encoding="utf-8")
ROWS = [
    (behaviour, said)
    for behaviour, said in re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE, re.M)
    if behaviour != "behaviour"
]
NAMED = sorted(
    {(rule, behaviour) for behaviour, said in ROWS for rule in re.findall(r"PP\d+", said)}
)


def test_every_behaviour_stands_once() -> None:
    behaviours = [behaviour for behaviour, _ in ROWS]
    assert len(behaviours) == len(set(behaviours)) == 50


@pytest.mark.parametrize(("behaviour", "said"), ROWS)
def test_a_behaviour_has_a_rule_or_a_reason(behaviour: str, said: str) -> None:
    assert re.match(r"PP\d+|none: \w+", said), behaviour


@pytest.mark.parametrize(("rule_id", "behaviour"), NAMED)
def test_the_rule_rests_on_vllm_and_has_a_bad_case(rule_id: str, behaviour: str) -> None:
    assert any("vllm" in source for source in rules()[rule_id].source), behaviour
    cases = yaml.safe_load((Path(__file__).parent / rule_id / "cases.yaml").read_text("utf-8"))
    assert any(rule_id in case.get("expect", ()) for case in cases), behaviour

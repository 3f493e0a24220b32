"""The judge itself: each way in which a verdict can be wrong is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases.judging import Case, answer_to, faults, merged, read

FP8 = {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"}
A100 = {"plan": {"hardware": {"gpu": "a100"}, "training": FP8}}
H100 = {"plan": {"hardware": {"gpu": "h100"}}}
REFUSED = {"verdict": "reject", "ids": ["PP202"]}


def case(
    inputs: dict[str, Any] = A100, repaired: dict[str, Any] | None = H100, **expect: Any
) -> Case:
    return Case("case", "A", inputs, {**REFUSED, **expect}, repaired)


def test_a_right_verdict_has_no_fault() -> None:
    expected = sorted(answer_to(A100).of("error", "warning"))
    assert not faults(case(ids=expected))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ids": ["PP204"]}, "silent: PP204"),
        ({"ids": []}, "error PP2"),
        ({"verdict": "warn"}, "is refused"),
        ({"advice": ["PP105"]}, "no advice PP105"),
        ({"fix": "buy another"}, "fix does not say"),
        ({"fix": {"training.fp8_recipe": "mxfp8"}}, "no fix is"),
        ({"verdict": "auto-fix"}, "an auto-fix without a fix"),
        ({"lowered": {"megatron": {"argv": ["--fp16"]}}}, "megatron: --fp16 is missing"),
        ({"lowered": {"megatron": {"absent": ["--bf16"]}}}, "megatron: --bf16 is there"),
        ({"lowered": {"roles": {"train_actor": {"A": "1"}}}}, "train_actor: A is None"),
        ({"resolved": {"fp8": "hybrid"}}, "fp8 is 'e4m3'"),
    ],
)
def test_a_wrong_verdict_is_seen(wrong: dict[str, Any], says: str) -> None:
    assert any(says in text for text in faults(case(**wrong)))


def test_a_twin_that_is_not_silent_is_seen() -> None:
    twin = {"plan": {"hardware": {"gpu": "l40s"}}}
    assert any(text.startswith("repaired: error") for text in faults(case(repaired=twin)))


def test_an_acceptance_with_a_warning_is_seen() -> None:
    inputs = {"plan": {"software": {"vllm": "0.33.0"}, "env": {"all": {"VLLM_USE_V1": "1"}}}}
    found = faults(Case("case", "B", inputs, {"verdict": "accept"}))
    assert len(found) == 1 and "PP604" in found[0]


def test_changes_are_laid_over_inputs() -> None:
    inputs = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert merged(inputs, {"a": {"b": None, "e": 3}, "d": [2]}) == {"a": {"c": 2, "e": 3}, "d": [2]}


@pytest.mark.parametrize(
    "text",
    [
        "expect: {verdict: reject, ids: [PP202]}",  # no inputs
        "plan: {}\nexpect: {verdict: maybe, ids: [PP202]}",
        "plan: {}\nexpect: {verdict: reject, ids: []}",
        "plan: {}\nexpect: {verdict: reject, ids: [PP202]}",  # no twin
        "plan: {}\nexpect: {verdict: accept, ids: [PP202]}",
        "plan: {}\nexpekt: {}",
        "not_expressible: another one",  # that is no reason
    ],
)
def test_a_case_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(f"url: owner/name#1\nfamily: A\nsummary: words\n{text}\n")
    with pytest.raises(AssertionError):
        read(file)


def test_the_benchmark_lists_what_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "case999_wrong"
    folder.mkdir()
    (folder / "case.yaml").write_text(
        "url: owner/name#1\nfamily: A\nsummary: words\nplan: {training: {bf16: true}}\n"
        "expect: {verdict: reject, ids: [PP202]}\nrepaired: {plan: {training: null}}\n"
    )
    program = Path(__file__).parents[2] / "benchmarks" / "cases.py"
    found = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1, found.stderr
    assert "case999_wrong: silent: PP202" in found.stdout

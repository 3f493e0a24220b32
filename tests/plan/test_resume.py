"""What a resumed run loses or converts when the formats have changed since the lock."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.facts.resume import resume_effects
from precision_plan.plan.comparison import compare
from precision_plan.plan.lock import lock_text, read_lock
from precision_plan.plan.lock_findings import lock_findings
from precision_plan.plan.resume import resume, resumed_from
from tests.plan.snapshots import snapshot

DELAYED = {"training": {"fp8_format": "hybrid", "fp8_recipe": "delayed"}}
BLOCKWISE = {"training": {"fp8_format": "e4m3", "fp8_recipe": "blockwise"}}
AWARE = {"optimizer": {"use_precision_aware_optimizer": True}}
HALF_MOMENTS = {
    "optimizer": {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16"},
}
NEW_ENGINE = {"software": {"transformer_engine": "2.18.0"}}
OPT_IN = "NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE"
FP16 = {"training": {"bf16": None, "fp16": True}}
STORED = {"training": {**BLOCKWISE["training"], "fp8_param_gather": True}}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = {
    "the same": (BLOCKWISE, BLOCKWISE, []),
    "another margin": (DELAYED, {"training": {**DELAYED["training"], "fp8_margin": 1}}, []),
    "to delayed scaling": ({}, DELAYED, [("FP8 scaling state", "delayed-without-history")]),
    "from delayed scaling": (DELAYED, BLOCKWISE, [("FP8 scaling state", "delayed-dropped")]),
    "from delayed scaling under a new engine": (
        DELAYED,
        {**BLOCKWISE, **NEW_ENGINE},
        [("FP8 scaling state", "delayed-refused")],
    ),
    "which may be allowed": (
        DELAYED,
        {**BLOCKWISE, **NEW_ENGINE, "env": {"train_actor": {OPT_IN: "1"}}},
        [("FP8 scaling state", "delayed-dropped")],
    ),
    "to fp32 nothing is rounded": (HALF_MOMENTS, {**AWARE, "training": {"bf16": None}}, []),
    "nor out of fp8": (STORED, BLOCKWISE, []),
    "to fp16": ({}, FP16, [("train weights", "weights-cast"), ("loss scaler", "scaler-missing")]),
    "from fp16": (FP16, {}, [("train weights", "weights-cast"), ("loss scaler", "scaler-dropped")]),
    "moments": (AWARE, HALF_MOMENTS, [("Adam first moment", "state-rescaled")]),
    "weights in fp8": (BLOCKWISE, STORED, [("train weights", "weights-requantized")]),
    "remainders": ({}, AWARE, [("main params", "remainder")]),
}


@pytest.mark.parametrize("name", CASES)
def test_effects(name: str) -> None:
    before, after, expected = CASES[name]
    found = list(resume(snapshot(before), snapshot(after)))
    assert [(each.what, each.effect.name) for each in found] == expected


def test_every_effect_has_a_case() -> None:
    found = {effect for _, _, expected in CASES.values() for _, effect in expected}
    assert {*resume_effects()} - {"unnoticed"} == found


@pytest.mark.parametrize(
    ("change", "loaded"),
    [
        ({}, "here"),
        ({"checkpoint": {"load": None}}, None),
        ({"launch": {"extra_args": {"finetune": True}}}, None),
        ({"launch": {"extra_args": {"--finetune": True}}}, None),
        ({"launch": {"extra_args": {"finetune": False}}}, "here"),
    ],
)
def test_whether_a_run_resumes(change: dict[str, Any], loaded: str | None) -> None:
    assert resumed_from(snapshot(change)) == loaded


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": {"no_load_optim": True}},
        {"launch": {"extra_args": {"no-load-optim": True}}},
    ],
)
def test_without_the_optimizer_nothing_of_it_is_lost(change: dict[str, Any]) -> None:
    today = snapshot({**HALF_MOMENTS, **change})
    assert list(resume(snapshot(AWARE), today)) == []


def findings(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    lock = read_lock(lock_text(snapshot(before)), "x.lock")
    found = compare(lock.snapshot, snapshot(after))
    return [each for each in lock_findings(lock, found) if each.id in ("PP032", "PP033")]


def test_findings() -> None:
    scaler, weights = sorted(findings({}, FP16), key=lambda each: str(each.id))
    assert (scaler.id, scaler.severity) == ("PP032", "error")
    assert scaler.message.startswith("loss scaler: no scaler in the lock, fp16 today; ")
    assert scaler.field == "checkpoint.load"
    assert any("not its number formats" in each.text for each in scaler.because)
    assert all("@" in source for source in scaler.source) and len(scaler.source) == 2
    assert (weights.id, weights.severity) == ("PP033", "warning")
    assert findings({}, {**FP16, "checkpoint": {"load": None}}) == []

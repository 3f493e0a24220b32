"""A launch whose framework is not known: only what holds for all of them is a finding."""

from __future__ import annotations

from typing import Any

from precision_plan.plan import PrecisionPlan
from precision_plan.rules.alternatives import check_alternatives
from precision_plan.rules.engine import check

RL = ("vime", "slime", "miles")


def plans(frameworks: tuple[str, ...] = RL, **sections: Any) -> list[PrecisionPlan]:
    return [
        PrecisionPlan.model_validate({**sections, "software": {"framework": each}})
        for each in frameworks
    ]


def ids(found: Any) -> set[str]:
    return {each.id for each in found.diagnostics}


def test_what_holds_for_all_is_found_and_names_none_of_them() -> None:
    given = plans(training={"fp8_format": "e4m3", "fp8_recipe": "mxfp8"}, hardware={"gpu": "h100"})
    report = check_alternatives(given)
    assert "PP204" in ids(report)
    assert ids(report) == set.intersection(*(ids(check(plan)) for plan in given))
    for found in report.diagnostics:
        assert not any(each.field == "software.framework" for each in found.because)


def test_what_holds_for_some_is_unchecked() -> None:
    given = plans(rollout={"kv_cache_dtype": "fp8_e4m3"})
    assert "PP454" in ids(check(given[1]))
    report = check_alternatives(given)
    assert "PP454" not in ids(report)
    assert report.unchecked["PP454"] == ("software.framework",)


def test_a_message_does_not_name_one_of_several() -> None:
    given = plans(("vime", "slime"), env={"all": {"PYTORCH_CUDA_ALLOC_CONF": "x:1"}})
    found = next(each for each in check_alternatives(given).diagnostics if each.id == "PP664")
    assert found.message == "the framework removes PYTORCH_CUDA_ALLOC_CONF from the rollout engine"


def test_one_framework_is_checked_as_usual() -> None:
    given = plans(("slime",), training={"fp8_format": "e4m3", "fp8_recipe": "mxfp8"})
    assert check_alternatives(given) == check(given[0])

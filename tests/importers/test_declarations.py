"""Targets that a file declares in a comment."""

from __future__ import annotations

import pytest

from precision_plan.importers.declarations import Declared, declared_in
from precision_plan.importers.texts import Source
from precision_plan.plan import PrecisionPlan


def read(text: str) -> Declared:
    return declared_in([Source("run.sh", text.encode())])


def test_keys_and_positions() -> None:
    found = read(
        "#!/bin/bash\n  # precision-plan: gpu=h100, framework=slime\n#precision-plan: vllm=0.33.0\n"
    )
    assert found.values == {"gpu": "h100", "framework": "slime", "vllm": "0.33.0"}
    assert [str(origin) for origin in found.origins.values()] == [
        "run.sh:2:21",
        "run.sh:2:31",
        "run.sh:3:18",
    ]
    assert not found.diagnostics


@pytest.mark.parametrize(
    ("comment", "message", "column"),
    [
        ("gpus=h100", "a target has no key gpus", 19),
        ("gpu", "gpu has no value: the comment takes key=value", 19),
        ("gpu=h100 framework=slim", "framework=slim: ", 28),
        ("nodes=two", "nodes=two: ", 19),
        ("framework=vime vllm=nightly", "vllm=nightly: it is no version", 34),
        ('torch=2.9"', 'torch=2.9": it is no version', 19),
        ("gpu=h100 gpu=b200", "gpu = b200 was declared before as h100", 28),
    ],
)
def test_what_no_target_has(comment: str, message: str, column: int) -> None:
    (found,) = read(f"# precision-plan: {comment}").diagnostics
    assert found.id == "PP907"
    assert found.message.startswith(message)
    assert (found.origin.line, found.origin.column) == (1, column)


@pytest.mark.parametrize(
    "text",
    [
        "# precision-plan: ignore[PP204] because\n",
        "echo precision-plan: gpu=h100\n",
        "# the precision-plan: gpu=h100\n",
        "",
    ],
)
def test_other_text(text: str) -> None:
    assert read(text) == Declared()


def test_the_file_comes_before_what_is_given() -> None:
    found = read("# precision-plan: gpu=h100\n").over({"gpu": "b200", "torch": "2.9.0"})
    plan = found.into(PrecisionPlan())
    assert (plan.hardware.gpu, plan.software.torch) == ("h100", "2.9.0")
    assert str(plan.origin("hardware.gpu")) == "run.sh:1:19"
    assert str(plan.origin("software.torch")) == "--target torch=2.9.0"


def test_what_the_plan_says_stays() -> None:
    plan = PrecisionPlan.model_validate({"hardware": {"gpu": "a100"}})
    assert read("# precision-plan: gpu=h100\n").into(plan).hardware.gpu == "a100"

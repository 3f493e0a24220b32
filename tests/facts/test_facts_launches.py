"""Programs, entries and evidence of launches."""

from __future__ import annotations

import pytest

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.launches import (
    launch_entry,
    launch_evidence,
    launch_programs,
    runtime_env_keys,
)


@pytest.mark.parametrize(
    ("name", "frameworks", "telling", "complete"),
    [
        ("train.py", ("megatron-lm", *RL_FRAMEWORKS), False, False),
        ("pretrain_gpt.py", ("megatron-lm",), True, True),
        ("pretrain_vlm.py", ("megatron-lm",), False, False),
        ("pretrain_difflm.py", ("megadlm",), True, False),
        ("convert_hf_to_torch_dist.py", (), False, False),
        ("anything.py", ("megatron-lm", *RL_FRAMEWORKS), False, False),
        ("vllm.entrypoints.openai.api_server", ("vllm",), True, False),
    ],
)
def test_the_first_row_that_fits_counts(
    name: str, frameworks: tuple[str, ...], telling: bool, complete: bool
) -> None:
    row = launch_entry(name)
    assert row is not None
    assert set(row.frameworks) == set(frameworks)
    assert (row.telling, row.complete) == (telling, complete)


def test_a_module_that_nothing_is_known_of() -> None:
    assert launch_entry("pip") is None


def test_programs() -> None:
    programs = launch_programs()
    assert {row.kind for row in programs.values()} == {
        "prefix",
        "python",
        "torchrun",
        "ray",
        "vllm",
    }
    assert "--runtime-env-json" in programs["ray"].options
    assert "--standalone" in programs["torchrun"].switches
    for row in programs.values():
        if row.kind != "prefix":
            assert not (row.assigns or row.clears or row.clears_with or row.sets_with)


def test_evidence_is_no_beginning_of_other_evidence() -> None:
    rows = launch_evidence()
    prefixes = [row.prefix for row in rows]
    for row in rows:
        assert not any(row.prefix.startswith(other) for other in prefixes if other != row.prefix)
        assert row.prefix.startswith("--")


def test_fields_of_a_runtime_env() -> None:
    assert {"env_vars", "working_dir", "pip"} <= set(runtime_env_keys())

"""Frameworks: train x rollout pairs, INT4 groups, parsers, environment."""

import pytest

from precision_plan.facts.env_vars import ROLES
from precision_plan.facts.formats import formats
from precision_plan.facts.framework_behaviour import env_precedence, framework_behaviours
from precision_plan.facts.frameworks import engine_passthrough, framework_env, framework_flags
from precision_plan.facts.pairs import train_rollout_pair, train_rollout_pairs
from precision_plan.facts.qat import int4_group_size, int4_group_sizes
from precision_plan.plan.dtypes import Framework
from precision_plan.plan.precision_plan import PrecisionPlan
from tests.facts.meanings import reads_as_meaning

RL = ("vime", "slime", "miles")


@pytest.mark.parametrize(
    ("model", "group"),
    [
        ("moonlight-16B-A3B", 128),
        ("Qwen/Qwen3-30B-A3B", 128),
        ("qwen3_30b_a3b_int4", 128),
        ("qwen3-235B-A22B-int4", 128),
        ("moonshotai/Kimi-K2-Thinking", 32),
        ("kimi-k2-Thinking-int4", 32),
        ("qwen3-30b", 128),
    ],
)
def test_int4_group_size(model: str, group: int) -> None:
    row = int4_group_size(model)
    assert row is not None and row.group_size == group


@pytest.mark.parametrize("model", ["qwen3-4b", "kimi-k2", "qwen3", "", "qwen3-300b"])
def test_no_int4_group_size(model: str) -> None:
    assert int4_group_size(model) is None


def test_symmetric_groups() -> None:
    assert all(row.symmetric for row in int4_group_sizes().values())


@pytest.mark.parametrize(
    ("train", "rollout", "framework", "maturity"),
    [
        ("bf16", "fp8_block", "vime", "stable"),
        ("fp8_block", "fp8_block", "vime", "experimental"),
        ("fp8_block", "fp8_block", "miles", "stable"),
        ("int4_qat", "int4", "slime", "beta"),
        ("mxfp8", "mxfp8", "miles", "beta"),
        ("nvfp4_qat", "nvfp4", "vime", "experimental"),
    ],
)
def test_maturity(train: str, rollout: str, framework: str, maturity: str) -> None:
    pair = train_rollout_pair(train, rollout, framework)
    assert pair is not None and pair.supported and pair.maturity == maturity


@pytest.mark.parametrize(
    ("train", "rollout", "framework"),
    [
        ("bf16", "nvfp4", "miles"),
        ("fp8_block", "bf16", "miles"),
        ("mxfp8", "mxfp8", "slime"),
        ("mxfp8", "fp8_block", "vime"),
    ],
)
def test_unsupported(train: str, rollout: str, framework: str) -> None:
    pair = train_rollout_pair(train, rollout, framework)
    assert pair is not None and not pair.supported and pair.note


def test_an_undocumented_pair_is_not_refused() -> None:
    assert train_rollout_pair("fp64", "int8", "vime") is None


def test_pairs_are_unique_and_of_known_formats() -> None:
    known = {*formats(), "int4_qat", "nvfp4_qat"}
    seen = set()
    for pair in train_rollout_pairs():
        assert {pair.train, pair.rollout} <= known
        for framework in pair.frameworks:
            assert (pair.train, pair.rollout, framework) not in seen
            seen.add((pair.train, pair.rollout, framework))


def test_every_framework_has_its_manners() -> None:
    assert set(framework_behaviours()) == set(Framework.__args__)  # type: ignore[attr-defined]
    ignoring = {n for n, row in framework_behaviours().items() if row.unknown_flags == "ignored"}
    assert ignoring == {"vime", "slime"}


@pytest.mark.parametrize(
    ("framework", "engine", "prefix"),
    [
        ("vime", "vllm", "--vllm-"),
        ("slime", "sglang", "--sglang-"),
        ("miles", "sglang", "--sglang-"),
    ],
)
def test_engine_passthrough(framework: str, engine: str, prefix: str) -> None:
    row = engine_passthrough(framework)
    assert row is not None and (row.engine, row.prefix) == (engine, prefix)
    assert framework_behaviours()[framework].engine == engine
    assert row.dropped


def test_dtype_is_dropped_by_vime() -> None:
    row = engine_passthrough("vime")
    assert row is not None and {"dtype", "tensor_parallel_size"} <= set(row.dropped)


@pytest.mark.parametrize("framework", RL)
def test_framework_flags_have_plan_fields(framework: str) -> None:
    plan = PrecisionPlan()
    fields = framework_flags(framework)
    assert "checkpoint.hf_checkpoint" in fields
    for field, flag in fields.items():
        assert plan.get(field) is None
        assert reads_as_meaning(flag.meaning), field


@pytest.mark.parametrize(
    ("framework", "compute_capability", "value"),
    [
        ("vime", (9, 0), "1"),
        ("vime", (10, 0), "1"),
        ("miles", (9, 0), "1"),
        ("miles", (10, 0), "0"),
        ("miles", None, None),
    ],
)
def test_block_scale_default(
    framework: str, compute_capability: tuple[int, int] | None, value: str | None
) -> None:
    values = [
        row.value
        for row in framework_env(framework)
        if row.name == "NVTE_FP8_BLOCK_SCALING_FP32_SCALES" and row.holds(compute_capability)
    ]
    assert values == ([value] if value else [])


def test_trainer_variables_stay_with_the_trainer() -> None:
    layers = {role: row.layers for role, row in env_precedence().items()}
    assert set(layers) == set(ROLES)
    assert [role for role in layers if "train_env_vars" in layers[role]] == ["train_actor"]

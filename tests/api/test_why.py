"""Why a field, flag or variable of one recipe has its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.api import why
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.names import UnknownName, all_fields, subject_of
from precision_plan.plan.tracing import FieldTrace, Why

ROOT = Path(__file__).parents[2]
RECIPE = """\
# @package _global_
defaults:
  - override /hardware: h100
  - override /training: fp8-blockwise
  - _self_
recipe: {title: t, source: [s], maturity: stable}
software: {framework: megatron-lm, megatron_core: 0.16.1, transformer_engine: 2.10.0}
training:
  fp8_recipe: mxfp8
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("r.yaml")
    path.write_text(RECIPE)
    return path


def ask(recipe: Path | str, subject: str, *overrides: str) -> Why:
    return why(recipe, subject, overrides, conf_dir=ROOT / "conf")


def field(recipe: Path | str, subject: str, *overrides: str) -> FieldTrace:
    (found,) = ask(recipe, subject, *overrides).fields
    return found


def test_a_field_that_two_layers_set(recipe: Path) -> None:
    found = field(recipe, "training.fp8_recipe")
    assert found.heard is not None and found.heard.value == "mxfp8"
    assert (str(found.heard.origin), found.heard.origin.layer) == ("r.yaml:9:3", "recipe")
    (before,) = found.overridden
    assert (before.value, before.origin.line) == ("blockwise", 9)
    assert before.origin.layer == "training=fp8-blockwise"
    assert found.choice is None  # the recipe itself said so
    assert [(each.target, each.item.name, each.item.value) for each in found.effects] == [
        ("Megatron", "--fp8-recipe", "mxfp8"),
        ("Transformer Engine", "recipe", "MXFP8BlockScaling"),
    ]
    assert "GEMM inputs forward" in [role.name for role in found.roles]
    assert "PP204" in [each.id for each in found.findings]


def test_the_choice_that_brought_a_file_in(recipe: Path) -> None:
    found = field(recipe, "hardware.gpu", "hardware=b200")
    assert found.heard is not None and found.heard.value == "b200"
    assert found.choice is not None
    assert (found.choice.group, found.choice.heard.value) == ("hardware", "b200")
    assert [word.value for word in found.choice.overridden] == ["h100"]
    assert str(found.choice.overridden[0].origin) == "r.yaml:3:5"
    asked = ask(recipe, "hardware", "hardware=b200")
    assert asked.kind == "group"
    assert asked.choice == found.choice
    assert "hardware.gpu" in [each.field for each in asked.fields]


@pytest.mark.parametrize("subject", ["fp8_recipe", "--fp8-recipe", "--fp8-recipe=x", "fp8-recipe"])
def test_other_names_of_a_field(recipe: Path, subject: str) -> None:
    assert [each.field for each in ask(recipe, subject).fields] == ["training.fp8_recipe"]


def test_a_default_and_what_replaces_it(recipe: Path) -> None:
    found = field(recipe, "training.fp8_margin")
    assert found.heard is None
    (step,) = found.derived
    assert (step.kind, step.value) == ("default", 0)
    assert "0.16.1" in step.because and step.source is not None
    found = field(recipe, "optimizer.use_distributed_optimizer", "software.framework=vime")
    assert [(step.kind, step.value) for step in found.derived] == [
        ("default", False),
        ("replaced", True),
    ]
    assert found.derived[-1].because.startswith("the framework always turns")
    (effect,) = found.effects
    assert (effect.item.name, effect.item.reason.field) == ("--use-distributed-optimizer", None)
    assert effect.item.reason.fact == found.derived[-1].source


def test_what_the_gpu_says(recipe: Path) -> None:
    (step,) = field(recipe, "hardware.compute_capability").derived
    assert (step.kind, step.value, step.because) == ("derived", "9.0", "hardware.gpu = h100")
    assert field(recipe, "hardware.nodes").derived == ()  # unknown stays unknown


def test_a_flag_that_two_programs_have(recipe: Path) -> None:
    asked = ask(recipe, "--attention-backend", "training.attention_backend=flash")
    assert [each.field for each in asked.fields] == [
        "training.attention_backend",
        "rollout.attention_backend",
    ]
    (effect,) = asked.effects
    assert (effect.target, effect.item.value) == ("Megatron", "flash")


def test_an_argument_of_the_engine() -> None:
    asked = ask("qwen3-30b-fp8", "--vllm-enable-expert-parallel")
    assert [each.field for each in asked.fields] == ["rollout.enable_expert_parallel"]
    (effect,) = asked.effects
    assert (effect.target, effect.item.name, effect.item.value) == (
        "vLLM",
        "enable_expert_parallel",
        True,
    )
    (added,) = ask("qwen3-30b-fp8", "--vllm-logprobs-mode").effects
    assert added.item.reason.field is None and "vime" in added.item.reason.text


def test_a_variable_that_a_fact_demands() -> None:
    asked = ask("qwen3-30b-fp8", "NVTE_FP8_BLOCK_SCALING_FP32_SCALES")
    assert asked.kind == "variable"
    assert [each.field for each in asked.fields] == ["training.fp8_block_scaling_fp32_scales"]
    assert [each.item.value for each in asked.effects] == ["1"]
    assert {each.role: each.value for each in asked.seen}["train_actor"] == "1"


def test_a_variable_that_the_recipe_sets() -> None:
    asked = ask("qwen3-30b-fp8", "HF_HOME", "+env.train_actor.HF_HOME=/cache")
    assert [each.field for each in asked.fields] == ["env.train_actor.HF_HOME"]
    seen = {each.role: each.value for each in asked.seen}
    assert (seen["train_actor"], seen["rollout_engine"]) == ("/cache", None)


def test_a_variable_in_small_letters() -> None:
    asked = ask("qwen3-30b-fp8", "http_proxy", "+env.all.http_proxy=here")
    assert (asked.kind, [each.field for each in asked.fields]) == (
        "variable",
        ["env.all.http_proxy"],
    )
    assert ask("qwen3-30b-fp8", "NVTE_DPA_FP8CS_O_in_F16").kind == "variable"


def test_a_variable_that_the_framework_sets() -> None:
    texts = ("hardware=b200", "training.fp8_recipe=mxfp8")
    asked = ask("qwen3-30b-fp8", "NVTE_FP8_BLOCK_SCALING_FP32_SCALES", *texts)
    assert asked.effects == ()
    (actor,) = (each for each in asked.seen if each.role == "train_actor")
    assert actor.value == "1"
    assert actor.because == "vime sets it (default)" and actor.source is not None


def test_a_refused_value_is_shown(recipe: Path) -> None:
    found = field(recipe, "training.fp8_format", "training.fp8_format=e9m9")
    assert found.refused and found.heard is not None and found.heard.value == "e9m9"
    assert [each.id for each in found.findings] == ["PP003"]


def test_keys_of_a_mapping(recipe: Path) -> None:
    asked = ask(recipe, "env.all", "+env.all.B=2", "+env.all.A=1", "~env.all.A")
    assert [each.field for each in asked.fields] == ["env.all.B", "env.all.A"]
    gone = asked.fields[1]
    assert gone.heard is None
    assert [(word.value, word.removed) for word in gone.overridden] == [(1, False), (None, True)]


def test_keys_below_a_nested_section() -> None:
    found = field("qwen3-30b-fp8", "checkpoint.quantization_config.weight_block_size")
    assert found.heard is not None and list(found.heard.value) == [128, 128]
    assert [each.target for each in found.effects] == ["Checkpoint"]


@pytest.mark.parametrize(
    ("subject", "near"),
    [
        ("training.fp8_recip", "training.fp8_recipe"),
        ("--fp8-recip", "--fp8-recipe"),
        ("NVTE_FP8_BLOCK_SCALING_FP32_SCALE", "NVTE_FP8_BLOCK_SCALING_FP32_SCALES"),
        ("trainin", "training"),
        ("training.bf16.x", "training.bf16"),
        ("checkpoint.quantization_config.weight_blocksize",
         "checkpoint.quantization_config.weight_block_size"),
        ("--zzzzzzzzzz", None),
        ("", None),
        ("x" * 5000, None),
    ],
)  # fmt: skip
def test_an_unknown_name(recipe: Path, subject: str, near: str | None) -> None:
    with pytest.raises(UnknownName) as caught:
        ask(recipe, subject)
    assert caught.value.near == near


@given(st.text(max_size=40) | st.from_regex(r"(--)?[a-zA-Z_]+(\\.[a-zA-Z_]+){0,3}", fullmatch=True))
def test_any_text_is_known_or_not(text: str) -> None:
    try:
        found = subject_of(text, PrecisionPlan())
    except UnknownName as error:
        assert error.near is None or error.near != text
    else:
        assert found.name and found.kind in ("field", "group", "flag", "variable")


def test_fields_that_nobody_sets_have_answers() -> None:
    for name in all_fields()[::9]:
        found = ask("qwen3-30b-fp8", name).fields
        assert found and all(f"{each.field}.".startswith(f"{name}.") for each in found)
        for each in found:
            assert each.heard is not None or not each.refused


def test_every_field_of_every_recipe_can_be_asked_for() -> None:
    from precision_plan.api import compile

    for path in sorted((ROOT / "conf" / "recipes").glob("*.yaml")):
        compiled = compile(path, conf_dir=ROOT / "conf")
        sections = {
            name for name, _ in (each[0].split(".", 1) for each in compiled.plan.set_fields())
        }
        for section in sorted(sections - {"recipe"}):
            for found in ask(path, section).fields:
                assert found.heard is not None, found.field
                assert found.heard.origin.line or found.heard.origin.layer == "override"

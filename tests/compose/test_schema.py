"""Compositions against the schema: every refusal named, explained and left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.compose import Composition, PlanResult, build_plan
from precision_plan.facts.value_notes import value_notes
from precision_plan.plan import SECTIONS, PrecisionPlan
from tests.compose.conftest import told

Compose = Callable[..., Composition]
Write = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def built(compose: Compose) -> Callable[..., PlanResult]:
    """The plan of ``base`` under overrides, which must compose."""

    def build(*overrides: str) -> PlanResult:
        composition = compose("base", *overrides)
        assert composition.diagnostics == ()
        return build_plan(composition)

    return build


Build = Callable[..., PlanResult]


def test_a_plan(built: Build) -> None:
    result = built()
    assert (result.diagnostics, result.invalid) == ((), frozenset())
    assert result.plan.get("hardware.nodes") == 2
    assert result.plan.recipe.name == "base"
    assert str(result.plan.origin("hardware.nodes")) == "conf/recipes/base.yaml:13:3"


REFUSED = {
    "training.fp8_recip=mxfp8": ("PP002", "the plan has no key training.fp8_recip",
                                 "did you mean training.fp8_recipe?"),
    "training.fp8=hybrid": ("PP002", "the plan has no key training.fp8",
                            "did you mean training.fp8_format?"),
    "training.vllm-kv-cache-dtype=fp8": (
        "PP002", "the plan has no key training.vllm-kv-", "did you mean rollout.kv_cache_dtype?"),
    "training.kv_cache_dtype=fp8": ("PP002", "the plan has no key training.kv_cache_dtype",
                                    "did you mean rollout.kv_cache_dtype?"),
    "training.main_grad_dtype=bf16": ("PP002", "the plan has no key training.main_grad_dtype",
                                      "did you mean optimizer.main_grads_dtype?"),
    "training.NVTE_FUSED_ATTN=1": ("PP002", "the plan has no key training.NVTE_FUSED_ATTN",
                                   "did you mean env.all.NVTE_FUSED_ATTN?"),
    "env.trainer.A=b": ("PP002", "the plan has no key env.trainer", None),
    "hardwere.gpu=h100": ("PP002", "the plan has no section hardwere", "did you mean hardware?"),
    "bf16=true": ("PP002", "the plan has no section bf16", "did you mean training.bf16?"),
    "origins.x=1": ("PP002", "origins is no section of the plan", None),
    "env.all={1: a}": ("PP002", "env.all.1 is no text as a key: write it in quotes", None),
    "rollout.quantization_config={a: [{b: nan}]}": (
        "PP003", "rollout.quantization_config.a holds an item that is nan", None),
    "zzz=1": ("PP002", "the plan has no section zzz", None),
    "training.fp8_recipe=blokwise": ("PP003", "training.fp8_recipe does not take 'blokwise'",
                                     "did you mean blockwise?"),
    "training.fp8_format=E4M3": ("PP003", "training.fp8_format does not take 'E4M3'",
                                 "did you mean e4m3?"),
    "training.fp8_format=e5m2": ("PP003", "training.fp8_format does not take e5m2: --fp8-format",
                                 "training.fp8_format: hybrid"),
    "training.fp8_format=true": ("PP003", "training.fp8_format does not take true", None),
    "model.num_layers=0": ("PP003", "model.num_layers is 0; it takes more than 0", None),
    "rollout.gpu_memory_utilization=1.5": (
        "PP003", "rollout.gpu_memory_utilization is 1.5; it takes at most 1", None),
    "optimizer.lr=inf": ("PP003", "optimizer.lr is inf; it takes a finite number", None),
    "hardware.compute_capability=nine": (
        "PP003", "hardware.compute_capability is 'nine'; it takes a text of the form", None),
    "model.hidden_size=???": ("PP003", "model.hidden_size must be given", None),
    "training.bf16='true'": ("PP004", "training.bf16 is 'true'; it takes true or false",
                             "write true or false without quotes"),
    "training.bf16=1": ("PP004", "training.bf16 is 1; it takes true or false", None),
    "model.num_layers=4.5": ("PP004", "model.num_layers is 4.5; it takes a whole number", None),
    "model.num_layers='4'": ("PP004", "model.num_layers is '4'; it takes a whole number",
                             "write the number without quotes"),
    "rollout.cudagraph_capture_sizes=1": (
        "PP004", "rollout.cudagraph_capture_sizes is 1; it takes a list", None),
    "model.moe_layer_freq=x": (
        "PP004", "model.moe_layer_freq is 'x'; it takes a whole number or a list", None),
    "model.moe_layer_freq=[1,x]": (
        "PP004", "model.moe_layer_freq.1 is 'x'; it takes a whole number", None),
    "env.all=1": ("PP004", "env.all is 1; it takes a mapping", None),
    "env.all.A=true": ("PP004", "env.all.A is true; it takes a text", 'write "1"'),
    "launch.entrypoint=[a]": ("PP004", "launch.entrypoint is a list; it takes a text", None),
    "checkpoint.quantization_config.bits=[4]": (
        "PP004", "checkpoint.quantization_config.bits is a list; it takes a whole number", None),
    "checkpoint.quantization_config=7": (
        "PP004", "checkpoint.quantization_config is 7; it takes a mapping", None),
    "qat=7": ("PP005", "qat is 7; a mapping of keys belongs here", None),
    "inference.export_kv_cache_quant=fp16": (
        "PP003", "inference.export_kv_cache_quant does not take 'fp16'", None),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text: str, built: Build) -> None:
    code, message, fix = REFUSED[text]
    result = built(text)
    (found,) = result.diagnostics
    assert found.id == code
    assert found.message.startswith(message)
    assert (found.origin.file, found.origin.layer) == (text, "override")
    if fix is not None:
        assert found.fix[0].text.startswith(fix)
    field = text.partition("=")[0]
    if code in ("PP003", "PP004"):
        assert result.invalid == {found.field} and found.field.startswith(field)
        assert result.plan.get(found.field) is None
    assert result.plan.get("hardware.nodes") == 2


def test_a_misspelt_key_leaves_the_meant_field_unknown(built: Build) -> None:
    result = built("training.fp8_recip=mxfp8", "~training.fp8_recipe")
    assert result.invalid == {"training.fp8_recipe"}


def test_all_refusals_at_once_with_positions(compose: Compose, write: Write) -> None:
    write(
        "recipes/odd.yaml",
        "recipe: {title: t, source: [s], maturity: final}\n"
        "training:\n"
        "  bf16: yes please\n"
        "  fp8_formt: e4m3\n"
        "  fp8_recipe: mx\n"
        "optimiser:\n"
        "  lr: 1\n"
        "env: {all: {A: on, B: 0x10}}\n",
    )
    result = build_plan(compose("odd"))
    assert told(result.diagnostics) == [
        "PP003 conf/recipes/odd.yaml:1:33 recipe.maturity does not take 'final'; it takes "
        "stable, beta, experimental",
        "PP004 conf/recipes/odd.yaml:3:3 training.bf16 is 'yes please'; it takes true or false",
        "PP003 conf/recipes/odd.yaml:5:3 training.fp8_recipe does not take 'mx'; it takes "
        "tensorwise, delayed, mxfp8, blockwise, custom",
        "PP002 conf/recipes/odd.yaml:4:3 the plan has no key training.fp8_formt",
        "PP004 conf/recipes/odd.yaml:8:13 env.all.A is true; it takes a text",
        "PP002 conf/recipes/odd.yaml:6:1 the plan has no section optimiser",
        "PP013 conf/recipes/odd.yaml:1:1 the recipe does not tell its maturity",
    ]
    assert result.invalid == {
        "recipe.maturity", "training.bf16", "training.fp8_recipe", "training.fp8_format",
        "env.all.A",
    }  # fmt: skip
    assert result.plan.env.all == {"B": "0x10"}


def test_texts_that_look_like_numbers_are_taken_as_written(compose: Compose, write: Write) -> None:
    write(
        "recipes/odd.yaml",
        "recipe: {title: t, source: [s], maturity: beta}\n"
        "software: {cuda: 12.10, vllm: 0.33, torch: '2.10'}\n"
        "hardware: {gpu: h100, compute_capability: 9.0}\n"
        "env: {all: {A: 1_000, B: 010, C: 1e3}}\n",
    )
    composition = compose("odd", "software.ray=2.50", "env.all.D=2.50")
    assert composition.data["software"]["cuda"] == 12.1  # as Hydra has it
    result = build_plan(composition)
    assert result.diagnostics == ()
    software, hardware = result.plan.software, result.plan.hardware
    assert (software.cuda, software.vllm, software.ray) == ("12.10", "0.33", "2.50")
    assert hardware.compute_capability == "9.0"
    assert result.plan.env.all == {"A": "1_000", "B": "010", "C": "1e3", "D": "2.50"}


def test_an_override_may_erase_a_section(built: Build) -> None:
    result = built("~hardware", "~training")
    assert result.plan.hardware.gpu is None and result.plan.training.fp8_format is None


def test_undocumented_recipes_are_reported(compose: Compose, write: Write) -> None:
    write("recipes/odd.yaml", "# @package _global_\nmodel: {name: x}\n")
    write("recipes/half.yaml", "model: {name: x}\nrecipe: {title: t}\n")
    assert told(build_plan(compose("odd")).diagnostics) == [
        "PP013 conf/recipes/odd.yaml:1 the recipe does not tell its title or source or maturity"
    ]
    assert told(build_plan(compose("half")).diagnostics) == [
        "PP013 conf/recipes/half.yaml:2:1 the recipe does not tell its source or maturity"
    ]
    assert build_plan(compose(None)).diagnostics == ()


def test_notes_are_about_values_that_are_refused(built: Build) -> None:
    for field, value in value_notes():
        (found,) = built(f"{field}={value}").diagnostics
        note = value_notes()[field, value]
        assert note.why in found.message and found.source == note.source
        for fix in found.fix:
            for key, wanted in fix.edits.items():
                assert wanted is None or built(f"{key}={wanted}").diagnostics == ()


data = st.dictionaries(
    st.one_of(st.sampled_from([*SECTIONS, "recipe", "x", "origins"]), st.integers(), st.booleans()),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.one_of(
                    st.sampled_from(
                        ["bf16", "all", "source", "quantization_config", "gpu", "cuda"]
                    ),
                    st.text(max_size=4),
                    st.integers(),
                    st.none(),
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    ),
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(data)
def test_any_data_gives_a_plan_and_a_finding_for_what_is_missing(content: dict[Any, Any]) -> None:
    result = build_plan(Composition("x", content, {}))
    assert isinstance(result.plan, PrecisionPlan)
    if result.plan.settings() == {}:
        held = [value for value in content.values() if value not in (None, {})]
        assert result.diagnostics or all(_is_hollow(value) for value in held)
    assert PrecisionPlan.model_validate(result.plan.settings() | {"origins": {}}) is not None


def _is_hollow(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_hollow(inner) for inner in value.values())
    return value is None

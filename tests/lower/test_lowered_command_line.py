"""Megatron's command line: what recipes say, version by version, and what is written out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.facts.megatron_shape import command_line_at, megadlm_command_line
from precision_plan.facts.torchrun_env import process_defaults
from precision_plan.lower import lower
from precision_plan.lower.context import Context
from precision_plan.lower.spelling import number, text
from precision_plan.plan import Item, PrecisionPlan
from tests.lower import golden, parsers
from tests.lower.plans import plan

TRAINERS = ("megatron-lm", "vime", "slime", "miles")


def _argv(**sections: Any) -> str:
    return " ".join(lower(plan(**sections)).megatron.argv)


def _item(name: str, **sections: Any) -> Item:
    items = lower(plan(**sections)).megatron.items
    return next(item for item in items if item.name == name)


@pytest.mark.parametrize("recipe", golden.RECIPES)
def test_command_line_of_a_recipe_parses_to_what_megatron_resolves(recipe: str) -> None:
    """A strict parser of that version accepts every word, and the values are those that
    Megatron would end with: nothing is left to decide in silence but what no flag can say."""
    compiled = golden.compiled(recipe)
    assert compiled.lowering is not None
    context = Context.of(compiled.plan)
    parser = parsers.megatron_parser(context.flags.values())
    parsers.add_framework(parser, context.framework or "")
    namespace, rest = parser.parse_known_args(compiled.lowering.megatron.argv)
    extra = compiled.plan.launch.extra_args or {}
    assert len([word for word in rest if word.startswith("--")]) == sum(
        value is not None and value is not False for value in extra.values()
    )
    inexpressible = {"align_param_gather", "params_dtype", "moe_token_dispatcher_type"}
    for flag in context.flags.values():
        if flag.dest not in inexpressible and context.framework != "megadlm":
            parsed, resolved = getattr(namespace, flag.dest), context.argument(flag.dest)
            assert _scalar(parsed) == _scalar(resolved), flag.dest


def _scalar(value: Any) -> Any:
    """Megatron takes a list of one for its element."""
    value = list(value) if isinstance(value, tuple) else value
    return value[0] if isinstance(value, list) and len(value) == 1 else value


@pytest.mark.parametrize("framework", ["vime", "slime"])
def test_what_the_framework_decides_is_said_with_its_source(framework: str) -> None:
    software = {"framework": framework, "megatron_core": "0.16.1"}
    argv = _argv(software=software)
    flags, _, variables = argv.partition(" --train-env-vars ")
    assert flags == "--bf16 --accumulate-allreduce-grads-in-fp32 --use-distributed-optimizer"
    assert json.loads(variables).keys() == {row.name for row in process_defaults()}
    item = _item("--bf16", software=software)
    assert item.reason.field is None
    assert item.reason.fact is not None and item.reason.fact.endswith("arguments.py:157")


def test_plain_megatron_without_a_format_says_nothing() -> None:
    assert _argv(software={"framework": "megatron-lm"}) == ""
    assert _argv() == ""


def test_bf16_alone_writes_out_the_fp32_accumulation() -> None:
    argv = _argv(training={"bf16": True})
    assert argv == "--bf16 --accumulate-allreduce-grads-in-fp32"
    argv = _argv(training={"bf16": True, "grad_reduce_in_bf16": True})
    assert argv == "--bf16 --grad-reduce-in-bf16"
    argv = _argv(
        training={"bf16": True},
        optimizer={"use_precision_aware_optimizer": True, "main_grads_dtype": "bf16"},
    )
    assert "--accumulate" not in argv


def test_a_value_that_the_plan_gives_is_never_replaced() -> None:
    argv = _argv(training={"bf16": True, "accumulate_allreduce_grads_in_fp32": False})
    assert argv == "--bf16"
    argv = _argv(
        software={"framework": "vime"},
        model={"num_experts": 8},
        training={"moe_token_dispatcher_type": "allgather"},
    )
    assert "--moe-token-dispatcher-type allgather" in argv


def test_dispatcher_is_written_out_for_experts_only() -> None:
    software = {"framework": "vime"}
    assert "--moe-token-dispatcher-type alltoall" in _argv(
        software=software, model={"num_experts": 8}
    )
    assert "dispatcher" not in _argv(software=software, model={"num_layers": 2})


def test_fp16_without_a_static_scale_switches_the_nan_check_off() -> None:
    assert "--no-check-for-nan-in-loss-and-grad" in _argv(training={"fp16": True})
    argv = _argv(training={"fp16": True, "loss_scale": 1024.0})
    assert argv == "--fp16 --loss-scale 1024"


def test_low_precision_writes_its_defaults_out() -> None:
    argv = _argv(training={"bf16": True, "fp8_format": "hybrid"})
    assert "--fp8-format hybrid" in argv
    assert "--fp8-recipe delayed" in argv
    assert "--transformer-impl transformer_engine" in argv
    argv = _argv(training={"bf16": True, "fp4_format": "e2m1", "transformer_impl": "local"})
    assert "--fp4-recipe nvfp4" in argv
    assert "--transformer-impl local" in argv


def test_inverted_switches_are_spelt_by_their_flag() -> None:
    argv = _argv(
        training={"masked_softmax_fusion": False, "gradient_accumulation_fusion": False},
        optimizer={"pin_cpu_grads": False, "pin_cpu_params": True},
        model={"add_bias_linear": False, "apply_rope_fusion": False},
    )
    for flag in (
        "--no-masked-softmax-fusion",
        "--no-gradient-accumulation-fusion",
        "--no-pin-cpu-grads",
        "--disable-bias-linear",
        "--no-rope-fusion",
    ):
        assert flag in argv.split()
    assert "pin-cpu-params" not in argv


def test_lists_are_several_words_or_one_pattern() -> None:
    argv = lower(
        plan(
            model={"moe_layer_freq": (0, 1, 1)},
            training={"recompute_modules": ("core_attn", "mlp")},
        )
    ).megatron.argv
    assert argv == ("--moe-layer-freq", "[0,1,1]", "--recompute-modules", "core_attn", "mlp")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1e-6, "1e-6"),
        (2.5e-5, "2.5e-5"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (65536.0, "65536"),
        (4294967296.0, "4294967296"),
        (1e22, "1e22"),
        (-3.0, "-3.0"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, written: str) -> None:
    assert number(value) == written
    assert float(written) == value


def test_an_integer_flag_takes_no_point() -> None:
    assert _argv(model={"rotary_base": 5000000.0}) == "--rotary-base 5000000"
    assert _argv(model={"rotary_base": 2.0}) == "--rotary-base 2"
    assert text(True) == "true"


@pytest.mark.parametrize(
    ("version", "present", "absent"),
    [
        ("0.12.0", "--use-custom-fsdp", "--use-megatron-fsdp"),
        ("0.16.1", "--use-megatron-fsdp", "--use-custom-fsdp"),
    ],
)
def test_only_flags_of_the_declared_version_are_emitted(
    version: str, present: str, absent: str
) -> None:
    argv = _argv(
        software={"megatron_core": version},
        parallel={"use_custom_fsdp": True, "use_megatron_fsdp": True},
    )
    assert present in argv
    assert absent not in argv


def test_fp4_needs_a_version_that_has_it() -> None:
    training = {"bf16": True, "fp4_format": "e2m1"}
    assert "--fp4-format" in _argv(software={"megatron_core": "0.15.3"}, training=training)
    assert "fp4" not in _argv(software={"megatron_core": "0.14.0"}, training=training)


@pytest.mark.parametrize("version", ["0.12.0", "0.15.3", "0.16.1", "0.19.0", "HEAD"])
def test_every_flag_of_a_version_can_be_said(version: str) -> None:
    for field, flag in command_line_at(version).items():
        argv = lower(_saying(field, flag, version)).megatron.argv
        assert set(argv) & set(flag.flags), f"{field} at {version}"


def _saying(field: str, flag: MegatronFlag, version: str) -> PrecisionPlan:
    """A plan that gives one field a value of a type that its schema takes."""
    section, _, name = field.partition(".")
    choices = [choice for choice in flag.choices or () if choice != "None"]
    switch = [] if flag.action == "store" else [flag.action == "store_true"]
    lists = [tuple(choices[:1])] if choices else [("some",), (1, 0)]
    for value in (*switch, *choices, *lists, 2, 0.5, "some"):
        try:
            return plan(**{section: {name: value}, "software": {"megatron_core": version}})
        except ValidationError:
            continue
    raise AssertionError(field)


# Frameworks -----------------------------------------------------------------------------------
def test_framework_arguments_follow_megatrons() -> None:
    argv = lower(
        plan(
            software={"framework": "vime"},
            training={"bf16": True, "use_dynamic_batch_size": True, "max_tokens_per_gpu": 20480},
            checkpoint={"hf_checkpoint": "hf", "ref_load": "ref", "load": "ckpt"},
            weight_sync={
                "update_weight_transport": "ipc",
                "extra_high_precision_layers_hf": ("lm_head", "gate"),
            },
            launch={"colocate": True, "offload_train": False, "actor_num_nodes": 2},
        )
    ).megatron.argv
    words = " ".join(argv)
    assert words.index("--load ckpt") < words.index("--hf-checkpoint hf --ref-load ref")
    assert "--colocate" in argv
    assert "--no-offload-train" in argv
    assert "--extra-high-precision-layers-hf lm_head gate" in words
    assert "transport" not in words  # ipc is no choice of the flag


def test_plain_megatron_gets_no_framework_argument() -> None:
    argv = _argv(
        software={"framework": "megatron-lm"},
        checkpoint={"hf_checkpoint": "hf"},
        launch={"colocate": True},
    )
    assert argv == ""


def test_extra_arguments_take_either_spelling() -> None:
    argv = lower(
        plan(
            launch={
                "extra_args": {
                    "rollout_batch_size": 16,
                    "--use-tis": True,
                    "eval-prompt-data": ["aime", "a.jsonl"],
                    "off": False,
                    "unset": None,
                    "rollout-temperature": 1.0,
                }
            }
        )
    ).megatron.argv
    assert argv == (
        *("--rollout-batch-size", "16", "--use-tis", "--eval-prompt-data", "aime", "a.jsonl"),
        *("--rollout-temperature", "1.0"),
    )


# MegaDLM and inference ------------------------------------------------------------------------
def test_megadlm_has_no_fp8_recipe_and_spells_inference_its_own_way() -> None:
    argv = _argv(
        software={"framework": "megadlm"},
        training={"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"},
    )
    assert "--fp8-format e4m3" in argv
    assert "--fp8-recipe" not in argv
    assert "--accumulate-allreduce-grads-in-fp32" in argv
    argv = _argv(
        software={"framework": "megadlm"}, inference={"quantization": "int8", "dtype": "fp16"}
    )
    assert argv == "--fp16 --export-quant-cfg int8"


def test_every_megadlm_word_is_one_of_its_parsers() -> None:
    known = {name for flag in megadlm_command_line().values() for name in flag.flags}
    for recipe in golden.RECIPES:
        compiled = golden.compiled(recipe)
        if compiled.plan.software.framework == "megadlm" and compiled.lowering is not None:
            extra = {f"--{name}" for name in compiled.plan.launch.extra_args or {}}
            words = {word for word in compiled.lowering.megatron.argv if word.startswith("--")}
            assert words - extra <= known


def test_a_serving_plan_has_no_trainer() -> None:
    lowering = lower(
        plan(software={"framework": "vllm"}, training={"bf16": True}, model={"num_layers": 2})
    )
    assert lowering.megatron.argv == ()
    assert lowering.megatron.settings == {}
    assert lowering.transformer_engine.recipe is None

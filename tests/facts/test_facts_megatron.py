"""Megatron's flags: version by version, and against megatron-core's dataclasses."""

import dataclasses
from collections.abc import Mapping

import pytest

from precision_plan.facts.megatron import MegatronFlag, flags_at, megatron_flags
from precision_plan.facts.megatron_absent import absent_flags
from precision_plan.facts.megatron_parser import parser_at
from precision_plan.facts.megatron_shape import command_line_at, megadlm_command_line, shape_flags
from precision_plan.plan.precision_plan import PrecisionPlan
from tests.facts.meanings import reads_as_meaning

VERSIONS = ("0.12.1", "0.13.0", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0", "HEAD")
ALL = (*megatron_flags(), *shape_flags())


def test_every_flag_has_a_plan_field() -> None:
    plan = PrecisionPlan()
    for flag in ALL:
        assert plan.get(flag.field) is None, flag.field


def test_every_flag_says_what_it_decides() -> None:
    assert [flag.field for flag in ALL if not reads_as_meaning(flag.meaning)] == []


@pytest.mark.parametrize("megatron_core", VERSIONS)
def test_one_flag_for_a_field_at_each_version(megatron_core: str) -> None:
    present = [flag.at(megatron_core) for flag in ALL if megatron_core in flag.versions]
    assert len({flag.field for flag in present}) == len(present)
    assert len({flag.dest for flag in present}) == len(present)
    assert command_line_at(megatron_core).keys() == {flag.field for flag in present}


@pytest.mark.parametrize(
    ("field", "flags", "action"),
    [
        ("model.add_bias_linear", ("--disable-bias-linear",), "store_false"),
        ("model.apply_rope_fusion", ("--no-rope-fusion",), "store_false"),
        ("training.masked_softmax_fusion", ("--no-masked-softmax-fusion",), "store_false"),
        ("optimizer.pin_cpu_grads", ("--no-pin-cpu-grads",), "store_false"),
        ("training.fp8_format", ("--fp8-format",), "store"),
    ],
)
def test_inverted_and_plain_flags(field: str, flags: tuple[str, ...], action: str) -> None:
    flag = command_line_at("0.16.1")[field]
    assert (flag.flags, flag.action) == (flags, action)
    if action == "store_false":
        assert flag.default is True


@pytest.mark.parametrize(
    ("field", "arrives", "before"),
    [
        ("training.fp4_format", "0.15.3", "0.14.0"),
        ("training.te_precision_config_file", "0.16.1", "0.15.3"),
        ("training.mamba_training_ssm_states_dtype", "0.19.0", "0.18.2"),
        ("training.moe_dispatch_fwd_dtype", "HEAD", "0.19.0"),
        ("model.linear_num_key_heads", "0.16.1", "0.15.3"),
    ],
)
def test_a_flag_arrives(field: str, arrives: str, before: str) -> None:
    assert field in command_line_at(arrives)
    assert field not in command_line_at(before)


def test_changes_by_version() -> None:
    old, new = flags_at("0.12.1"), flags_at("0.16.1")
    assert old["fp8_recipe"].choices == ("tensorwise", "delayed", "mxfp8")
    assert set(new["fp8_recipe"].choices or ()) >= {"blockwise", "custom"}
    assert old["exp_avg_dtype"].choices == ("fp32", "fp16", "fp8")
    assert new["exp_avg_dtype"].choices == ("fp32", "fp16", "bf16", "fp8")
    assert (old["export_kv_cache_quant"].action, new["export_kv_cache_quant"].action) == (
        "store_true",
        "store",
    )
    assert "int4" in (old["export_quant_cfg"].choices or ())
    assert new["export_quant_cfg"].choices is None


def test_norm_epsilon_changes_its_dest() -> None:
    assert command_line_at("0.15.3")["model.norm_epsilon"].dest == "norm_epsilon"
    assert command_line_at("0.16.1")["model.norm_epsilon"].dest == "layernorm_epsilon"


def test_second_spellings_come_with_the_generated_parser() -> None:
    assert "--disable-fp8-wgrad" not in parser_at("0.15.3")
    assert parser_at("0.16.1")["--disable-fp8-wgrad"].kind == "false"


def test_absent_flags_are_absent() -> None:
    assert absent_flags()["--fp8"].use == "--fp8-format"
    for megatron_core in VERSIONS:
        assert absent_flags().keys() & parser_at(megatron_core).keys() == set()


def test_megadlm_is_older_than_the_oldest_version() -> None:
    fields = megadlm_command_line()
    assert "training.fp8_recipe" not in fields
    assert "optimizer.optimizer_cpu_offload" not in fields
    assert fields["training.fp8_format"].choices == ("e4m3", "hybrid")
    assert fields["optimizer.exp_avg_dtype"].choices == ("fp32", "fp16", "fp8")
    assert set(fields["inference.export_quant_cfg"].choices or ()) >= {"int8", "w4a8_awq", "int4"}


def targets() -> list[tuple[MegatronFlag, str]]:
    return [
        (flag, target)
        for flag in ALL
        if "0.16.1" in flag.versions
        for target in flag.at("0.16.1").feeds
        if not target.startswith("custom")
    ]


def test_feeds_exist_in_megatron_core(megatron_classes: Mapping[str, type]) -> None:
    missing = []
    for flag, target in targets():
        name, _, field = target.partition(".")
        known = {item.name for item in dataclasses.fields(megatron_classes[name])}
        if field not in known:
            missing.append((flag.field, target))
    assert missing == []
    assert len(targets()) > 150

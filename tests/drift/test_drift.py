"""Every kind of drift is found, and nothing else is: trees made from the facts, then changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_plan.drift.changes import about_precision
from precision_plan.drift.flags_against import known_flags
from precision_plan.drift.group_factory import FACTORY_FILE
from precision_plan.drift.source import SourceError
from precision_plan.facts.megatron import MegatronFlag
from precision_plan.facts.transformer_engine import te_recipes
from tests.drift import trees
from tests.drift.checking import VERSION, argument, edit, engine, megatron, summary

MEGATRON_VERSIONS = ("0.12.1", "0.14.0", "0.16.1", "0.18.2", "0.19.0", "HEAD")
TE_VERSIONS = ("2.2.0", "2.3.0", "2.8.0", "2.14.1", "2.16.0", "2.20.2")


@pytest.mark.parametrize("version", MEGATRON_VERSIONS)
def test_megatron_without_drift(tmp_path: Path, version: str) -> None:
    report = megatron(tmp_path, trees.megatron(version), version)
    assert report.changes == ()
    assert dict(report.compared)["flags"] == len(known_flags(version)) > 400


@pytest.mark.parametrize("version", TE_VERSIONS)
def test_transformer_engine_without_drift(tmp_path: Path, version: str) -> None:
    report = engine(tmp_path, trees.transformer_engine(version))
    assert report.changes == ()
    assert (report.found, report.facts) == (version, version)
    known = [recipe.fields_at(version) for recipe in te_recipes().values()]
    assert dict(report.compared)["recipe fields"] == sum(map(len, known))


def test_flag_vanished(tmp_path: Path) -> None:
    files = edit(trees.megatron(VERSION), trees.ARGUMENTS, r"^.*'--fp8-margin'.*\n", "")
    (change,) = megatron(tmp_path, files).changes
    assert summary(change) == ("vanished", "flag", "--fp8-margin", None)
    assert change.precise and "transformer_config.py" in (change.fact_source or "")


def test_flag_appeared(tmp_path: Path) -> None:
    text = "group.add_argument('--fp6-format', type=str, choices=['e3m2', 'e2m3'], default=None)"
    (change,) = megatron(tmp_path, argument(trees.megatron(VERSION), text)).changes
    assert summary(change) == ("appeared", "flag", "--fp6-format", None)
    assert change.sources == {
        "flags": ["--fp6-format"],
        "dest": "fp6_format",
        "action": "store",
        "type": "str",
        "choices": ["e3m2", "e2m3"],
    }
    assert re.fullmatch(rf"{trees.ARGUMENTS}:\d+", change.at or "")


def test_flag_of_another_version(tmp_path: Path) -> None:
    """0.16.1 has ``--fp4-param-gather``, 0.14.0 does not."""
    text = "group.add_argument('--fp4-param-gather', action='store_true')"
    files = argument(trees.megatron("0.14.0"), text)
    (change,) = megatron(tmp_path, files, "0.14.0").changes
    assert change.kind == "appeared"
    assert "not for 0.14.0" in (change.note or "")


@pytest.mark.parametrize(
    ("old", "new", "aspect", "facts", "sources"),
    [
        (
            r"\['tensorwise', 'delayed', 'mxfp8', 'blockwise', 'custom'\]",
            "['tensorwise', 'mxfp8', 'nvfp8']",
            "choices",
            ["tensorwise", "delayed", "mxfp8", "blockwise", "custom"],
            ["tensorwise", "mxfp8", "nvfp8"],
        ),
        (r"dest='fp8_recipe'", "dest='recipe'", "dest", "fp8_recipe", "recipe"),
        (r"default='delayed'", "default='tensorwise'", "default", "delayed", "tensorwise"),
        (r"dest='fp8_recipe',", "dest='fp8_recipe', nargs='+',", "nargs", None, "+"),
        (r"type=str", "type=int", "type", "str", "int"),
        (
            r"'--fp8-recipe'",
            "'--fp8-recipe', '--recipe'",
            "flags",
            ["--fp8-recipe"],
            ["--fp8-recipe", "--recipe"],
        ),
    ],
)
def test_flag_changed(
    tmp_path: Path, old: str, new: str, aspect: str, facts: object, sources: object
) -> None:
    pattern = rf"^(.*'--fp8-recipe'.*){old}" if "'--fp8-recipe'" not in old else old
    text = rf"\g<1>{new}" if "'--fp8-recipe'" not in old else new
    (change,) = megatron(
        tmp_path, edit(trees.megatron(VERSION), trees.ARGUMENTS, pattern, text)
    ).changes
    assert summary(change) == ("changed", "flag", "--fp8-recipe", aspect)
    assert (change.facts, change.sources, change.precise) == (facts, sources, True)


def test_action_changed(tmp_path: Path) -> None:
    pattern, text = r"^(.*'--fp8-param-gather'.*)'store_true'", r"\g<1>'store_false'"
    (change,) = megatron(
        tmp_path, edit(trees.megatron(VERSION), trees.ARGUMENTS, pattern, text)
    ).changes
    assert (change.aspect, change.facts, change.sources) == ("action", "store_true", "store_false")


@pytest.mark.parametrize("text", ["choices=known()", "default=known()", "nargs=known()"])
def test_computed_is_not_drift(tmp_path: Path, text: str) -> None:
    """What only running the sources would tell is no difference."""
    key = text.partition("=")[0]
    pattern = {
        "choices": r"(^.*'--fp8-recipe'.*)choices=\[.*?\]",
        "default": r"(^.*'--fp8-recipe'.*)default='delayed'",
        "nargs": r"(^.*'--recompute-modules'.*)nargs='\+'",
    }[key]
    files = edit(trees.megatron(VERSION), trees.ARGUMENTS, pattern, rf"\g<1>{text}")
    assert megatron(tmp_path, files).changes == ()


def test_the_order_of_choices_is_not_drift(tmp_path: Path) -> None:
    files = edit(
        trees.megatron(VERSION), trees.ARGUMENTS, r"'most_recent', 'max'", "'max', 'most_recent'"
    )
    assert megatron(tmp_path, files).changes == ()


def test_a_flag_under_a_condition(tmp_path: Path) -> None:
    """Kitchen's flags depend on what is installed; the facts have them up to 0.15."""
    text = "if HAVE_KITCHEN:\n        group.add_argument('--kitchen-config-file', type=str)"
    report = megatron(tmp_path, argument(trees.megatron(VERSION), text))
    assert report.changes == ()
    (gap,) = [gap for gap in report.gaps if "HAVE_KITCHEN" in gap.what]
    assert gap.names[0].startswith("--kitchen-config-file (in the facts for 0.13.0 to 0.15")
    new = text.replace("--kitchen-config-file", "--kitchen-new-file")
    (change,) = megatron(tmp_path, argument(trees.megatron(VERSION), new)).changes
    assert change.sources["condition"] == "HAVE_KITCHEN"


def test_an_argument_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    report = megatron(
        tmp_path, argument(trees.megatron(VERSION), "group.add_argument(f'--{name}')")
    )
    assert report.changes == ()
    assert [len(gap.names) for gap in report.gaps if "built at run time" in gap.what] == [1]


def test_a_parser_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Not 600 flags that vanished."""
    for text, hint in (("def broken(:\n", "syntax"), ("x = 1\n", "add_megatron_arguments")):
        with pytest.raises(SourceError, match=r"arguments\.py cannot be read") as error:
            megatron(tmp_path, {**trees.megatron(VERSION), trees.ARGUMENTS: text})
        assert hint in error.value.hint


def test_a_tree_without_the_export_parser(tmp_path: Path) -> None:
    files = {
        path: text for path, text in trees.megatron(VERSION).items() if path != trees.POST_TRAINING
    }
    report = megatron(tmp_path, files)
    assert report.changes == ()
    (gap,) = [gap for gap in report.gaps if trees.POST_TRAINING in gap.what]
    assert "--export-quant-cfg" in gap.names


def test_rules_of_the_factory(tmp_path: Path) -> None:
    files = {**trees.megatron(VERSION), FACTORY_FILE: "class ArgumentGroupFactory:\n    x = 1\n"}
    (change,) = megatron(tmp_path, files).changes
    assert summary(change) == ("changed", "parser rules", "ArgumentGroupFactory", "code")
    assert "group_factory.py" in (change.note or "")


def test_config_field_vanished(tmp_path: Path) -> None:
    files = edit(trees.megatron(VERSION), trees.CONFIGS, r"^    fp8_margin: .*\n", "")
    (change,) = megatron(tmp_path, files).changes
    assert summary(change) == ("vanished", "config field", "TransformerConfig.fp8_margin", None)
    assert change.note == "--fp8-margin ends in it"


def test_config_field_without_flag(tmp_path: Path) -> None:
    files = edit(trees.megatron(VERSION), trees.CONFIGS, r"^    fp8_dot_product_attention.*\n", "")
    (change,) = megatron(tmp_path, files).changes
    assert change.name == "TransformerConfig.fp8_dot_product_attention"
    files = edit(
        trees.megatron(VERSION),
        trees.CONFIGS,
        r"^class OptimizerConfig:\n",
        "class OptimizerConfig:\n    momentum_dtype: str = 'fp32'\n    betas: int = 1\n",
    )
    (change,) = megatron(tmp_path, files).changes
    assert summary(change) == ("appeared", "config field", "OptimizerConfig.momentum_dtype", None)
    assert change.sources == "fp32"


def test_a_field_with_a_new_flag_is_told_once(tmp_path: Path) -> None:
    files = edit(
        argument(trees.megatron(VERSION), "group.add_argument('--momentum-dtype')"),
        trees.CONFIGS,
        r"^class OptimizerConfig:\n",
        "class OptimizerConfig:\n    momentum_dtype: str = 'fp32'\n",
    )
    (change,) = megatron(tmp_path, files).changes
    assert summary(change) == ("appeared", "flag", "--momentum-dtype", None)


WHEEL_CONFIG = """
from dataclasses import dataclass, field
from typing import Literal, Optional
@dataclass
class TransformerConfig:
    fp8_recipe: Optional[Literal['tensorwise', 'delayed', 'mxfp8', 'blockwise']] = 'delayed'
    fp8_margin: int = 0
    fp8_wgrad: bool = True
"""


def test_a_wheel_without_the_parser(tmp_path: Path) -> None:
    """Flags that are generated from its dataclasses are compared, the others are not."""
    whole = trees.megatron(VERSION)
    files = {
        "megatron/core/package_info.py": whole["megatron/core/package_info.py"],
        "megatron/core/a.py": WHEEL_CONFIG,
        trees.CONFIGS: whole[trees.CONFIGS].replace("class TransformerConfig", "class Other"),
        trees.READER: whole[trees.READER],
    }
    report = megatron(tmp_path, files)
    flags = [change for change in report.changes if change.subject == "flag"]
    assert [summary(change) for change in flags] == [("changed", "flag", "--fp8-recipe", "choices")]
    assert dict(report.compared)["flags"] == 3
    (gap,) = [gap for gap in report.gaps if gap.what.startswith("flags")]
    assert len(gap.names) == len(known_flags(VERSION)) - 3
    assert "--fp8-margin" not in gap.names and "--bf16" in gap.names


def test_a_wheel_before_flags_were_generated(tmp_path: Path) -> None:
    whole = trees.megatron("0.15.3")
    files = {path: text for path, text in whole.items() if path.startswith("megatron/core")}
    report = megatron(tmp_path, files, "0.15.3")
    assert report.changes == ()
    assert "flags" not in dict(report.compared)
    (gap,) = [gap for gap in report.gaps if gap.what.startswith("flags")]
    assert len(gap.names) == len(known_flags("0.15.3"))


@pytest.mark.parametrize(
    "name",
    [
        *("--fp8-recipe", "--bf16", "--main-grads-dtype", "--te-rng-tracker", "--cuda-graph-impl"),
        *("exp_avg_sq_dtype", "NVTE_NVFP4_4OVER6", "--export-quant-cfg", "--loss-scale"),
        *("fp32_residual_connection", "--mxfp6-e3m2-quantize", "--kitchen-config-file"),
    ],
)
def test_names_about_precision(name: str) -> None:
    assert about_precision(name)


@pytest.mark.parametrize(
    "name",
    [
        *("--num-layers", "--lr", "--tensorboard-dir", "--untie-embeddings", "MASTER_ADDR"),
        *("--iterations", "--route", "--wandb-entity", "VLLM_ELASTIC_EP_SCALE_UP_LAUNCH"),
    ],
)
def test_names_about_something_else(name: str) -> None:
    assert not about_precision(name)


FLAGS = known_flags(VERSION)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(FLAGS), min_size=1, max_size=4, unique_by=lambda flag: flag.flags),
    st.sampled_from(["vanish", "rename", "dest"]),
)
def test_any_flags(tmp_path: Path, flags: list[MegatronFlag], how: str) -> None:
    """Whatever flags change, exactly they are reported."""
    files = trees.megatron(VERSION)
    for path in (trees.ARGUMENTS, trees.POST_TRAINING):
        for flag in flags:
            call = f"    group.add_argument({trees.argument(flag)})\n"
            new = {
                "vanish": "",
                "rename": call.replace("'--", "'--renamed-"),
                "dest": call.replace(f"dest={flag.dest!r}", "dest='moved'"),
            }[how]
            files = {**files, path: files[path].replace(call, new)}
    found = {
        (change.kind, change.name)
        for change in megatron(tmp_path, files).changes
        if change.subject == "flag"
    }
    names = {flag.flags[0] for flag in flags}
    expected = {("changed" if how == "dest" else "vanished", name) for name in names}
    if how == "rename":
        expected |= {("appeared", name.replace("--", "--renamed-")) for name in names}
    assert found == expected

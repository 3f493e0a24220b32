"""The command-line splitter against Python's own argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.facts.megatron_parser import Option, parser_at
from precision_plan.importers.argv import parse

VERSIONS = ("0.12.0", "0.14.0", "0.16.1", "0.18.2", "HEAD")
CONVERTERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float}


class Refused(Exception):
    """argparse would exit."""


class RealParser(argparse.ArgumentParser):
    """argparse without its exit."""

    def error(self, message: str) -> Any:
        raise Refused(message)


def real_parser(options: dict[str, Option]) -> RealParser:
    """A real parser with the same options."""
    parser = RealParser(allow_abbrev=False, add_help=False, argument_default=argparse.SUPPRESS)
    for option in options.values():
        if option.kind == "value":
            choices = None
            if option.choices is not None:
                convert = CONVERTERS.get(option.type or "", str)
                choices = [convert(choice) for choice in option.choices]
            parser.add_argument(
                option.flag,
                dest=option.dest,
                nargs=option.nargs,
                type=CONVERTERS.get(option.type or "", str),
                choices=choices,
            )
        else:
            parser.add_argument(option.flag, dest=option.dest, action=f"store_{option.kind}")
    return parser


def usable(version: str) -> dict[str, Option]:
    """Options whose converter is a plain one, so that a real parser can be built from the table."""
    plain = {None, "str", "int", "float"}
    return {
        flag: option
        for flag, option in parser_at(version).items()
        if option.type in plain and (option.field or "fp" in flag)
    }


OPTIONS = {version: usable(version) for version in VERSIONS}
REAL = {version: real_parser(options) for version, options in OPTIONS.items()}


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A version and a command line that is mostly, but not always, well formed."""
    version = draw(st.sampled_from(VERSIONS))
    options = OPTIONS[version]
    value = st.one_of(
        st.sampled_from(
            ["e4m3", "fp32", "bf16", "1", "0", "-1", "1e-6", "0.5", "-0.5", "torch_dist", "x", ""]
        ),
        st.sampled_from(["-", "--", "-x", "a b", "-a b", "--nope", "e5m2", "None"]),
    )
    words: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        option = options[draw(st.sampled_from(sorted(options)))]
        good = st.sampled_from(option.choices) if option.choices else value
        text = draw(st.one_of(good, value))
        # Older argparse drops the text of ``--flag=--``, newer ones keep it.
        if draw(st.integers(0, 4)) == 0 and text != "--":
            words.append(f"{option.flag}={text}")
        elif option.kind == "value":
            words += [option.flag, text]
        else:
            words.append(option.flag)
    if draw(st.integers(0, 9)) == 0:
        words.append(draw(value))
    return version, words


@settings(max_examples=500, deadline=None)
@given(command_lines())
def test_splits_like_argparse(case: tuple[str, list[str]]) -> None:
    version, words = case
    parsed = parse(words, OPTIONS[version])
    try:
        real = vars(REAL[version].parse_args(words))
    except Refused as refused:
        assert parsed.problems, f"argparse refuses {words}: {refused}"
        return
    assert not parsed.problems, f"argparse takes {words}: {parsed.problems}"
    ours = dict(parsed.others)
    fields = {option.field: option.dest for option in OPTIONS[version].values() if option.field}
    ours.update({fields[field]: value for field, value in parsed.values.items()})
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in ours.items()} == real


class TestParse:
    def test_a_value_after_an_equals_sign_may_have_spaces(self) -> None:
        words = ["--cuda-graph-scope", "attn", "--dist-ckpt-format=a b"]
        parsed = parse(words, parser_at("0.16.1"))
        assert not parsed.problems
        assert parsed.values == {
            "training.cuda_graph_scope": ("attn",),
            "checkpoint.dist_ckpt_format": "a b",
        }

    def test_a_graph_scope_is_a_member_of_megatrons_enumeration(self) -> None:
        for version, word, kinds in [
            ("0.16.1", "moe_router", []),
            ("0.16.1", "router", ["choice"]),
            ("0.16.1", "full_iteration_inference", ["choice"]),
            ("0.17.0", "full_iteration_inference", []),
        ]:
            parsed = parse(["--cuda-graph-scope", "attn", word], parser_at(version))
            assert [problem.kind for problem in parsed.problems] == kinds

    def test_the_last_one_wins_and_is_reported(self) -> None:
        words = ["--fp8-format", "e4m3", "--bf16", "--fp8-format=hybrid"]
        parsed = parse(words, parser_at("0.16.1"))
        assert parsed.values == {"training.fp8_format": "hybrid", "training.bf16": True}
        assert parsed.indices["training.fp8_format"] == 3
        assert parsed.repeated == ["training.fp8_format"]

    def test_an_inverted_switch(self) -> None:
        parsed = parse(["--no-gradient-accumulation-fusion"], parser_at("0.16.1"))
        assert parsed.values == {"training.gradient_accumulation_fusion": False}

    def test_an_unknown_option_takes_its_values_along(self) -> None:
        words = ["--fp8-recipee", "blockwise", "--bf16"]
        parsed = parse(words, parser_at("0.16.1"))
        assert [(p.kind, p.flag, p.index) for p in parsed.problems] == [
            ("unknown", "--fp8-recipee", 0)
        ]
        assert parsed.values == {"training.bf16": True}

    def test_choices_are_those_of_the_version(self) -> None:
        words = ["--fp8-recipe", "blockwise"]
        assert parse(words, parser_at("0.13.0")).values == {"training.fp8_recipe": "blockwise"}
        refused = parse(words, parser_at("0.12.0"))
        assert [problem.kind for problem in refused.problems] == ["choice"]
        assert refused.problems[0].field == "training.fp8_recipe"

    def test_abbreviations_only_where_the_parser_takes_them(self) -> None:
        options = parser_at("0.16.1")
        words = ["--fp8-form", "e4m3"]
        assert [p.kind for p in parse(words, options).problems] == ["unknown"]
        taken = parse(words, options, abbreviations=True)
        assert taken.values == {"training.fp8_format": "e4m3"} and not taken.problems
        many = parse(["--fp8", "e4m3"], options, abbreviations=True)
        assert many.problems[0].kind == "ambiguous"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("[1,1,0]", (1, 1, 0)),
        ("([0]*3+[1]*2)*2", (0, 0, 0, 1, 1) * 2),
        ("[0]*(1+1)+[1]*(2*2)", (0, 0, 1, 1, 1, 1)),
        ("[1]*0", ()),
        ("[1][0]", None),
        ("[1]*100000000", None),
        ("(1+1)*[100000000*100000000]", None),
    ],
)
def test_layer_frequency_is_read_and_never_evaluated(text: str, value: object) -> None:
    parsed = parse(["--moe-layer-freq", text], parser_at("0.16.1"))
    assert parsed.problems == []
    assert parsed.values == {"model.moe_layer_freq": value}


@pytest.mark.parametrize("text", ["x", "2.0", "[0", "[0, 1]", "__import__('os').listdir()[0]"])
def test_layer_frequency_that_the_parser_refuses(text: str) -> None:
    parsed = parse(["--moe-layer-freq", text], parser_at("0.16.1"))
    assert [problem.kind for problem in parsed.problems] == ["type"]
    assert parsed.values == {}

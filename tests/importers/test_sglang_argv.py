"""SGLang's arguments on the command line of slime and miles."""

import pytest

from precision_plan.importers.framework_argv import parse_framework_arguments


def parse(framework: str, line: str):
    return parse_framework_arguments(line.split(), framework, "0.16.1", "0.33.0")


@pytest.mark.parametrize("framework", ["slime", "miles"])
def test_values_are_read(framework: str) -> None:
    parsed = parse(
        framework,
        "--bf16 --sglang-kv-cache-dtype fp8_e4m3 --sglang-mem-fraction-static 0.7 "
        "--sglang-cuda-graph-bs 1 2 4 --sglang-enable-dp-attention "
        "--sglang-fp8-gemm-backend=triton --sglang-enable-fp32-lm-head",
    )
    assert not parsed.problems
    assert parsed.values == {"training.bf16": True}
    assert parsed.others == {
        "sglang_kv_cache_dtype": "fp8_e4m3",
        "sglang_mem_fraction_static": 0.7,
        "sglang_cuda_graph_bs": (1, 2, 4),
        "sglang_enable_dp_attention": True,
        "sglang_fp8_gemm_backend": "triton",
        "sglang_enable_fp32_lm_head": True,
    }


def test_a_value_that_no_release_takes() -> None:
    [problem] = parse("slime", "--sglang-kv-cache-dtype fp8").problems
    assert (problem.kind, problem.flag) == ("choice", "--sglang-kv-cache-dtype")
    assert "fp8_e4m3" in problem.message


def test_a_number_that_is_none() -> None:
    [problem] = parse("miles", "--sglang-mem-fraction-static most").problems
    assert problem.kind == "type"


def test_a_misspelt_argument() -> None:
    [problem] = parse("slime", "--sglang-kv-cache-dtyp fp8_e4m3").problems
    assert problem.kind == "unknown"
    assert (
        problem.message == "slime has no --sglang-kv-cache-dtyp; --sglang-kv-cache-dtype is close"
    )


def test_an_argument_that_the_framework_keeps() -> None:
    [problem] = parse("slime", "--sglang-random-seed 3").problems
    assert (
        problem.message
        == "slime sets random_seed itself and does not register --sglang-random-seed"
    )


@pytest.mark.parametrize("word", ["--sglang-brand-new-kernel", "--sglang-tp-size"])
def test_what_depends_on_the_release_is_left_alone(word: str) -> None:
    assert parse("slime", f"{word} 4").problems == []

"""Batch linting: a line in, a line out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from precision_plan.__main__ import main
from precision_plan.batch import lint_lines, lint_row

TARGET = {
    "framework": "megatron-lm",
    "versions": {"megatron_core": "0.16.1", "transformer_engine": "2.9.0", "cuda": "12.9"},
    "gpu": "h100",
    "world_size": 1,
    "env": {},
}
MODEL = [
    *("--num-layers", "4", "--hidden-size", "128", "--num-attention-heads", "8"),
    *("--seq-length", "128", "--lr", "1e-4"),
]


def row(*argv: str, **changes: Any) -> dict[str, Any]:
    return {"id": "case", **TARGET, "argv": [*MODEL, *argv], **changes}


def stages(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error["stage"], error["field"]) for error in answer["errors"]]


class TestRow:
    def test_what_the_arguments_become(self) -> None:
        env = {"NVTE_APPLY_QK_LAYER_SCALING": "1"}
        answer = lint_row(row("--bf16", "--apply-query-key-layer-scaling", env=env))
        assert answer["ok"] and answer["errors"] == []
        resolved = answer["resolved"]
        assert resolved["params_dtype"] == "bfloat16"
        assert resolved["accumulate_allreduce_grads_in_fp32"] is True
        assert resolved["attention_softmax_in_fp32"] is True
        assert resolved["main_grads_dtype"] == "float32"
        assert resolved["fp8_recipe"] == "delayed"

    def test_fp8_moments_are_bytes(self) -> None:
        words = ["--bf16", "--use-precision-aware-optimizer", "--use-distributed-optimizer"]
        answer = lint_row(row(*words, "--exp-avg-dtype", "fp8"))
        assert answer["resolved"]["exp_avg_dtype"] == "uint8"

    def test_a_refused_choice(self) -> None:
        answer = lint_row(row("--fp8-format", "e5m2"))
        assert stages(answer) == [("parse", "training.fp8_format")]

    def test_an_unknown_option(self) -> None:
        answer = lint_row(row("--fp8-recipee", "blockwise"))
        assert stages(answer) == [("parse", "--fp8-recipee")]
        assert answer["errors"][0]["id"] == "PP901"

    def test_the_stage_is_where_the_real_program_stops(self) -> None:
        mxfp8 = row("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8")
        assert ("te_hardware", "training.fp8_recipe") in stages(lint_row(mxfp8))
        assert lint_row({**mxfp8, "gpu": "b200"})["ok"]

    def test_our_own_law_is_of_stage_policy(self) -> None:
        words = (
            "--bf16 --fp8-format hybrid --fp8-param-gather --use-distributed-optimizer"
            " --use-precision-aware-optimizer --optimizer-cpu-offload"
        )
        found = lint_row(row(*words.split()))
        assert [error["stage"] for error in found["errors"]] == ["policy"]

    def test_a_variable_that_the_recipe_refuses_stops_the_run_there(self) -> None:
        env = {"NVTE_BACKWARD_OVERRIDE": "quantized"}
        words = ["--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "tensorwise"]
        for te, stage in (("2.20.2", "te_recipe"), ("2.14.1", "build")):
            versions = {**TARGET["versions"], "transformer_engine": te}
            found = lint_row(row(*words, env=env, versions=versions))["errors"]
            assert ("PP622", stage) in [(error["id"], error["stage"]) for error in found]

    def test_a_layer_frequency_is_a_number_or_a_pattern(self) -> None:
        moe = ["--bf16", "--num-experts", "4", "--disable-bias-linear", "--moe-layer-freq"]
        assert lint_row(row(*moe, "2"))["ok"]
        assert lint_row(row(*moe, "[0]+[1]*3"))["ok"]
        assert stages(lint_row(row(*moe, "[0, 1]"))) == [("parse", "model.moe_layer_freq")]

    def test_what_is_absent_is_unknown(self) -> None:
        words = ["--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"]
        answer = lint_row({"argv": [*MODEL, *words]})
        assert "te_hardware" not in [stage for stage, _ in stages(answer)]


class TestLines:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("{", "not JSON"),
            ("[1]", "not a JSON object"),
            ('{"argvv": []}', "unknown key 'argvv'"),
            ('{"argv": "--bf16"}', "argv is not a list of strings"),
            ('{"argv": [1]}', "argv is not a list of strings"),
            ('{"env": {"A": 1}}', "env is not an object of strings"),
            ('{"world_size": "8"}', "world_size is not a whole number"),
            ('{"versions": {"megatron_core": "new"}}', "versions.megatron_core"),
            ('{"versions": {"megatron": "0.16.1"}}', "versions has no package 'megatron'"),
            ('{"framework": "deepspeed"}', "framework 'deepspeed'"),
            ('{"gpu": 1}', "gpu is not a string"),
            ('{"gpu": "h1000"}', "gpu 'h1000' is not known"),
            ('{"compute_capability": "new"}', "compute_capability 'new'"),
            ('{"platform": "tpu"}', "platform 'tpu'"),
            ("[" * 100_000, "not JSON"),
        ],
    )
    def test_an_unreadable_line_is_answered_and_the_next_one_read(
        self, line: str, text: str
    ) -> None:
        good = json.dumps(row("--bf16"))
        (first, code), (second, clean) = lint_lines([line, "\n", good])
        answer = json.loads(first)
        assert (answer["ok"], code) == (False, 2)
        assert answer["errors"][0]["id"] == "PP910" and text in answer["errors"][0]["message"]
        assert json.loads(second)["ok"] and clean == 0

    def test_from_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "rows.jsonl"
        file.write_text(
            json.dumps(row("--bf16")) + "\n" + json.dumps(row("--bf16", "--fp16")) + "\n"
        )
        assert main(["lint", "--jsonl", str(file)]) == 1
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [answer["ok"] for answer in answers] == [True, False]

    def test_a_missing_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["lint", "--jsonl", str(tmp_path / "none.jsonl")]) == 2
        assert "No such file" in capsys.readouterr().err


def test_a_deprecated_scope_selects_the_implementation() -> None:
    versions = {**TARGET["versions"], "megatron_core": "0.18.2"}
    words = [
        "--bf16",
        "--cuda-graph-modules",
        "full_iteration",
        "--no-check-for-nan-in-loss-and-grad",
    ]
    resolved = lint_row(row(*words, versions=versions))["resolved"]
    assert resolved["cuda_graph_impl"] == "full_iteration"
    assert resolved["te_rng_tracker"] is True

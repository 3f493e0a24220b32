"""``precision-plan why``: what a person and a program see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.cli import run
from tests.cli.test_broken_input import BROKEN

SNAPSHOTS = Path(__file__).parents[1] / "render" / "snapshots"
ROOT = Path(__file__).parents[2]
SECRET = "hf_abcdefghijkl"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


ASKED = {
    "overridden": ["training.fp8_recipe", "training.fp8_recipe=mxfp8", "hardware=b200"],
    "group": ["hardware", "hardware=b200", "hardware.nodes=4"],
    "default": ["optimizer.use_distributed_optimizer", "~optimizer.use_distributed_optimizer"],
    "variable": ["NVTE_FP8_BLOCK_SCALING_FP32_SCALES"],
    "flag": ["--fp8-recipe"],
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("width", [80, 120])
def test_text(
    name: str,
    width: int,
    committed,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["why", "qwen3-30b-fp8", *ASKED[name], "--profile", "explore"]) == 0
    shown = capsys.readouterr().out
    committed(SNAPSHOTS / f"why-{name}-{width}.txt", shown)


def test_findings_that_rest_on_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "qwen3-30b-fp8", "training.fp8_recipe", "training.fp8_recipe=mxfp8"]) == 0
    assert "finding     error[PP204] mxfp8-needs-sm100: " in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["training.fp8_recipe", "training.fp8_recipe=mxfp8", "--format", "json"]
    assert run(["why", "qwen3-30b-fp8", *words]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["subject"]) == ("field", "training.fp8_recipe")
    (found,) = data["fields"]
    assert (found["value"], found["layer"], found["line"]) == ("mxfp8", "override", None)
    (before,) = found["overridden"]
    assert (before["value"], before["file"], before["line"], before["column"]) == (
        "blockwise",
        "conf/training/fp8-blockwise.yaml",
        9,
        1,
    )
    assert {each["target"] for each in found["lowered"]} == {"Megatron", "Transformer Engine"}
    assert "PP204" in {each["id"] for each in found["findings"]}


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("subject", ["env", "HF_TOKEN", "env.all.HF_TOKEN", "--wandb-key"])
def test_secrets_are_hidden(subject: str, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [
        f"env.all.HF_TOKEN={SECRET}x",
        f"env.all.HF_TOKEN={SECRET}",
        f"+launch.extra_args.wandb-key={SECRET}",
    ]
    assert run(["why", "qwen3-30b-fp8", subject, *texts, "--format", format]) == 0
    shown = capsys.readouterr().out
    assert "***" in shown and SECRET not in shown


@pytest.mark.parametrize("secret", ["abc", SECRET])
def test_a_secret_inside_an_override_is_hidden(
    secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"env.all={{HF_TOKEN: {secret}, X: y}}", "env.all.HF_TOKEN=another1"]
    for words in (["why", "qwen3-30b-fp8", "HF_TOKEN"], ["plan", "qwen3-30b-fp8"]):
        assert run([*words, *texts, "--format", "json"]) == 0
        shown = capsys.readouterr().out
        assert secret not in shown.replace("abcdef", "") and "another1" not in shown


def test_an_earlier_secret_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"env: {{all: {{HF_TOKEN: {SECRET}}}}}\n")
    assert run(["why", str(path), "HF_TOKEN", "env.all.HF_TOKEN=other"]) == 0
    shown = capsys.readouterr().out
    assert "instead of" in shown and SECRET not in shown


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["training.fp8_recip"], "nothing is known of 'training.fp8_recip'",
         "did you mean training.fp8_recipe?"),
        (["--fp8-recip"], "nothing is known of '--fp8-recip'", "did you mean --fp8-recipe?"),
        (["--zzzzzzzzzzzz"], "nothing is known of '--zzzzzzzzzzzz'", "precision-plan schema"),
        ([], "required: FIELD", "precision-plan why --help"),
        (["bf16", "--format", "xml"], "invalid choice", "--help"),
    ],
)  # fmt: skip
def test_usage_errors(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why", "qwen3-30b-fp8", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and hint in shown.err and shown.out == ""


@pytest.mark.parametrize("name", BROKEN)
def test_broken_recipes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, id, _ = BROKEN[name]
    path = tmp_path / "broken.yaml"
    path.write_bytes(data)
    assert run(["why", str(path), "training.bf16", "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found["diagnostics"]] == [id]
    assert run(["diff", str(path), "qwen3-4b-fp8"]) == 2
    assert f"error[{id}]" in capsys.readouterr().out
    assert run(["lock", str(path)]) == 2
    shown = capsys.readouterr()
    assert f"error[{id}]" in shown.err and shown.out == ""


def test_a_recipe_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("training: [1, 2\n")
    assert run(["why", str(path), "training.bf16"]) == 2
    assert "error[PP001]" in capsys.readouterr().out
    assert run(["why", "no-such-recipe", "training.bf16", "--format", "json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in data["diagnostics"]] == ["PP006"]
    assert data["fields"] == []

"""``precision-plan matrix``: what it takes and what it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.cli import run


def test_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["matrix", "--gpu", "h100,b200,mi300x"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("h100 (9.0)", "b200 (10.0)", "mi300x (gfx942)"))
    assert all(f"\n{name}\n" in f"\n{shown}" for name in ("vime", "slime", "miles"))
    assert "refused PP204" in shown and "refused PP207" in shown
    assert "PP204    " in shown or "PP204  " in shown  # in the legend
    assert "versions: unknown" in shown


def test_json_and_one_framework(tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    words = ["--gpu", "H100", "--framework", "miles", "--format", "json", "-o", str(out)]
    assert run(["matrix", *words, "--target", "vllm=0.33.0"]) == 0
    data = json.loads(out.read_text())
    assert data["versions"] == {"vllm": "0.33.0"}
    assert [gpu["name"] for gpu in data["gpus"]] == ["h100"]
    assert {cell["framework"] for cell in data["cells"]} == {"miles"}
    assert all(cell["plan"]["software"]["vllm"] == "0.33.0" for cell in data["cells"])


def test_all_gpus(tmp_path: Path) -> None:
    out = tmp_path / "matrix.md"
    assert run(["matrix", "--gpu", "all", "--format", "markdown", "-o", str(out)]) == 0
    assert "| gb300 (10.3) |" in out.read_text().replace("  ", " ")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--gpu", "h1000"], "there is no 'h1000'", "did you mean 'h100'?"),
        (["--gpu", "tpu"], "there is no 'tpu'", "known: a100"),
        (["--gpu", ","], "--gpu: no name", "known: a100"),
        (["--framework", "slim"], "there is no 'slim'", "did you mean 'slime'?"),
        (["--framework", "vllm"], "there is no 'vllm'", "known: vime, slime, miles"),
        (["--target", "gpu=b200"], "takes versions only", "--gpu"),
        (["--target", "vllm"], "not KEY=VALUE", "for example"),
        (["--format", "yaml"], "invalid choice", "--help"),
    ],
)
def test_usage_errors(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["matrix", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and hint in shown

"""``precision-plan import``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.cli import run

ROOT = Path(__file__).parents[2]
SCRIPT = "tests/fixtures/import/megatron-fp8.sh"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


def test_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.yaml"
    assert run(["import", SCRIPT, "-o", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[0] == f"{SCRIPT}:16:30  not known     training.fp8_recipe $(cat recipe.txt)"
    assert lines[1] == f"{SCRIPT}:6:22   not known     env.all.WANDB_API_KEY"
    assert f"{SCRIPT}:20:35  word          --tokenizer_type" in lines
    assert lines[-2:] == [
        "2 fields not known or not written, 5 places left over", f"written to {file}",
    ]  # fmt: skip
    assert run(["import", SCRIPT]) == 0
    assert capsys.readouterr().out == file.read_text()
    assert list(tmp_path.iterdir()) == [file]
    assert run(["plan", str(file)]) in (0, 1)
    assert "--fp8-amax-history-len" in capsys.readouterr().out


def test_a_file_is_never_replaced_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("mine\n")
    assert run(["import", SCRIPT, "-o", str(file)]) == 2
    assert capsys.readouterr() == (
        "", f"precision-plan: {file} exists\n  hint: --force replaces it\n"
    )  # fmt: skip
    assert file.read_text() == "mine\n"
    assert run(["import", SCRIPT, "-o", str(file), "--force"]) == 0
    assert file.read_text().startswith("# @package _global_\n")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", SCRIPT, "--format", "json", "--target", "gpu=h100"]) == 0
    printed = capsys.readouterr().out
    data = json.loads(printed)
    assert sorted(data) == [
        "gaps", "launch", "leftovers", "others", "recipe", "schema_version", "script"
    ]  # fmt: skip
    assert data["launch"] == {
        "launch": 1, "file": SCRIPT, "line": 11, "column": 1, "branches": []
    }  # fmt: skip
    assert data["recipe"]["hardware"] == {"gpu": "h100", "nodes": 2, "gpus_per_node": 8}
    assert [gap["field"] for gap in data["gaps"]] == [
        "training.fp8_recipe",
        "env.all.WANDB_API_KEY",
    ]
    assert {each["kind"] for each in data["leftovers"]} == {"substitution", "unset", "word"}
    assert "0123456789abcdef" not in printed


def test_choosing(capsys: pytest.CaptureFixture[str]) -> None:
    script = "tests/fixtures/import/vime-two-gpus.sh"
    assert run(["import", script, "--branch", "not: b200", "-o", "/dev/null", "--force"]) == 0
    out = capsys.readouterr().out
    assert f'also launch 1 at {script}:14:1, where [ "$GPU" = b200 ]' in out.splitlines()
    assert run(["import", script, "--launch", "2"]) == 0
    assert "framework: vllm" in capsys.readouterr().out
    assert run(["import", script, "--launch", "7"]) == 2
    assert "there is no launch 7: the script has launches 1 to 2" in capsys.readouterr().err
    assert run(["import", script, "--branch", "a100"]) == 2
    assert "no condition before a launch has a100 in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hi\n", "starts nothing that is known here"),
        ("python pretrain_gpt.py --bf16 --save 'x\n", "is never closed"),
        ("\0", "it is no text: it holds NUL bytes"),
    ],
)
def test_no_recipe(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(text)
    assert run(["import", str(script), "-o", str(tmp_path / "r.yaml")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in " ".join(printed.err.split())
    assert list(tmp_path.iterdir()) == [script]


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "none.sh"]) == 2
    assert "it does not exist" in capsys.readouterr().err
    assert run(["import", SCRIPT, "--target", "gpu"]) == 2
    assert run(["import", SCRIPT, "-o", str(tmp_path / "no" / "r.yaml")]) == 2
    assert "cannot write" in capsys.readouterr().err

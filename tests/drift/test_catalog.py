"""``precision-plan catalog diff``: exit codes, formats, and messages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from precision_plan.cli import run
from tests.drift import trees


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Transformer Engine 2.20.2 as the facts know it."""
    return trees.wheel(tmp_path / "te.whl", trees.transformer_engine("2.20.2"))


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Megatron 0.16.1 with three changes, one of them without bearing on precision."""
    files = trees.megatron("0.16.1")
    text = files[trees.ARGUMENTS]
    text = text.replace("'blockwise', 'custom']", "'blockwise', 'custom', 'nvfp8']", 1)
    text = re.sub(r"\n.*'--fp8-margin'.*", "", text, count=1)
    text = text.replace(
        "    return parser", "    group.add_argument('--new-dataset-path')\n    return parser"
    )
    return trees.folder(tmp_path / "megatron", {**files, trees.ARGUMENTS: text})


def test_no_drift(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "diff", "--te", str(engine)]) == 0
    out = capsys.readouterr().out
    assert "transformer_engine 2.20.2" in out and "no drift" in out


def test_drift(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "diff", "--megatron", str(changed)]) == 1
    out = capsys.readouterr().out
    assert "vanished  flag --fp8-margin" in out
    assert "facts    tensorwise, delayed, mxfp8, blockwise, custom\n" in out
    assert "sources  tensorwise, delayed, mxfp8, blockwise, custom, nvfp8    (+nvfp8)" in out
    assert "megatron/training/arguments.py:" in out
    assert "1 appeared without bearing on precision (--all lists them)" in out
    assert "in all 1 vanished, 1 changed, 1 appeared" in out
    assert "--new-dataset-path" not in out


def test_all(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "diff", "--megatron", str(changed), "--all"]) == 1
    out = capsys.readouterr().out
    assert "appeared  flag --new-dataset-path" in out
    assert "without bearing" not in out


def test_json(changed: Path, engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--megatron", str(changed), "--te", str(engine), "--format", "json"]
    assert run(["catalog", "diff", *arguments]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["schema_version"] == 1
    megatron, te = data["reports"]
    assert (megatron["package"], megatron["version"]) == ("megatron_core", "0.16.1")
    assert megatron["facts_version"] == "0.16.1"
    assert megatron["sources"] == str(changed)
    assert megatron["summary"] == {"vanished": 1, "changed": 1, "appeared": 1}
    first = megatron["changes"][0]
    assert (first["kind"], first["subject"], first["name"]) == ("vanished", "flag", "--fp8-margin")
    assert first["precise"] is True and "aspect" not in first
    assert (te["summary"], te["changes"]) == ({}, [])
    assert te["not_compared"]


def test_output_file(engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.txt"
    assert run(["catalog", "diff", "--te", str(engine), "-o", str(path)]) == 0
    assert "no drift" in path.read_text()
    assert capsys.readouterr().out == ""


def test_version_of_the_facts(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "diff", "--te", str(engine), "--version", "2.8.0"]) == 1
    assert "compared with the facts for 2.8.0" in capsys.readouterr().out
    named = ["--version", "transformer_engine=2.20.2"]
    assert run(["catalog", "diff", "--te", str(engine), *named]) == 0


def test_a_tree_like_the_release_is_reported_alike(
    engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["catalog", "diff", "--te", str(engine), "--version", "2.19.0", "--all"])
    first = capsys.readouterr().out
    run(["catalog", "diff", "--te", str(engine), "--version", "2.19.0", "--all"])
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["catalog"], "the following arguments are required", "catalog --help"),
        (["catalog", "list"], "invalid choice: 'list'", "catalog --help"),
        (["catalog", "diff"], "no sources named", "--megatron installed"),
        (["catalog", "diff", "--te", "absent"], "absent: there is no such file", "a checkout"),
        (["catalog", "diff", "--te", "."], "no transformer_engine/common/recipe", "site-packages"),
        (
            ["catalog", "diff", "--te", "te.whl", "--version", "newest"],
            "'newest' is not a version",
            "0.16.1",
        ),
        (
            ["catalog", "diff", "--te", "a", "--vllm", "b", "--version", "1.0"],
            "--version 1.0: of which package?",
            "transformer_engine=1.0",
        ),
        (
            ["catalog", "diff", "--te", "a", "--version", "transformerengine=1.0"],
            "no sources of 'transformerengine'",
            "did you mean transformer_engine?",
        ),
        (["catalog", "diff", "--tee", "a"], "unknown argument '--tee'", "did you mean --te?"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trees.wheel(tmp_path / "te.whl", trees.transformer_engine("2.20.2"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty" if "." in arguments else tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err and hint in captured.err
    assert "Traceback" not in captured.err


VLLM = {
    "vllm/__init__.py": "",
    "vllm/envs.py": """
        import os
        environment_variables = {
            "VLLM_USE_DEEP_GEMM": lambda: bool(int(os.getenv("VLLM_USE_DEEP_GEMM", "1"))),
            "VLLM_FP6_KERNELS": lambda: os.getenv("VLLM_FP6_KERNELS"),
            "VLLM_HOST_IP": lambda: os.getenv("VLLM_HOST_IP", ""),
        }
    """,
    "vllm/config/cache.py": """
        from typing import Literal
        CacheDType = Literal["auto", "fp8", "fp6"]
    """,
    "vllm/config/model.py": """
        from typing import Literal
        ModelDType = Literal["auto", "half", "float16", "bfloat16", "float", "float32"]
    """,
    "vllm-0.33.0.dist-info/METADATA": "Name: vllm\nVersion: 0.33.0\n",
}


def test_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trees.archive(tmp_path / "vllm.tar.gz", VLLM, "vllm-0.33.0/")
    assert run(["catalog", "diff", "--vllm", str(path), "--format", "json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert report["version"] == "0.33.0"
    assert report["compared"]["lists of choices"] == 2
    (choices,) = [change for change in report["changes"] if change["subject"] == "choices"]
    assert choices["name"] == "--kv-cache-dtype"
    assert choices["sources"] == ["auto", "fp8", "fp6"]
    kinds = {
        change["name"]: change["kind"]
        for change in report["changes"]
        if change["subject"] == "variable"
    }
    assert kinds["VLLM_FP6_KERNELS"] == "appeared"
    assert kinds["VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD"] == "vanished"
    assert "VLLM_USE_DEEP_GEMM" not in kinds
    absent = [gap for gap in report["not_compared"] if "do not declare" in gap["what"]]
    assert absent[0]["names"] == [
        "MambaDType (--mamba-ssm-cache-dtype)",
        "QuantizationMethods (--quantization)",
    ]

"""What a recipe names on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.__main__ import main
from precision_plan.api import preflight
from tests.api.test_checkpoint_folder import checkpoint, recipe
from tests.preflight.folders import shard


def test_only_what_rests_on_the_folder(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m")
    file = recipe(tmp_path / "r.yaml", path)
    report = preflight(file, ["training.fp16=true", "training.bf16=true"])
    assert report.diagnostics == ()
    assert report.seen == {"checkpoint.hf_checkpoint": f"{path}: headers of 1 shard, tensors: 4"}
    assert "hardware" in report.unseen and "Ray cluster" in report.unseen
    (path / "model.safetensors").write_bytes(b"")
    assert [found.id for found in preflight(file, ["training.fp16=true"]).diagnostics] == ["PP720"]


def test_a_folder_that_is_not_here(tmp_path: Path) -> None:
    report = preflight(recipe(tmp_path / "r.yaml", "org/name"))
    assert report.diagnostics == ()
    assert report.seen["checkpoint.hf_checkpoint"] == "unknown: org/name is no folder here"
    report = preflight(recipe(tmp_path / "r.yaml", "x"), ["checkpoint.hf_checkpoint=null"])
    assert report.seen["checkpoint.hf_checkpoint"] == "the recipe names none"


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(tmp_path / "m")
    file = recipe(tmp_path / "r.yaml", path, rows=64)
    assert main(["preflight", str(file), "--format", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in shown["diagnostics"]] == ["PP744"]
    assert shown["legal_tensor_parallel_sizes"] == [1, 2, 4]
    assert shown["legal_expert_parallel_sizes"] is None
    assert "hardware" in shown["unseen"] and "checkpoint.hf_checkpoint" in shown["seen"]
    assert main(["preflight", str(file)]) == 1
    text = capsys.readouterr().out
    assert "legal tensor parallel sizes" in text and "expert parallelism" not in text
    assert "hardware" in text and "unknown: not looked at" in text and "error[PP744]" in text
    assert main(["preflight", str(tmp_path / "none.yaml")]) == 2
    assert "PP010" in capsys.readouterr().out or "PP006" in capsys.readouterr().out
    (path / "config.json").write_text("[")
    assert main(["preflight", str(file)]) == 2
    assert "error[PP711]" in capsys.readouterr().out


def test_legal_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(tmp_path / "m")
    layer = "model.layers.0.mlp.experts"
    tensors = {}
    for expert in range(4):
        tensors[f"{layer}.{expert}.down_proj.weight"] = ("F8_E4M3", [256, 384])
        tensors[f"{layer}.{expert}.down_proj.weight_scale_inv"] = ("F32", [2, 3])
    shard(path / "model.safetensors", **tensors)
    file = recipe(tmp_path / "r.yaml", path)
    report = preflight(file, ["software.vllm=0.28.0"])
    assert report.legal_tensor_parallel_sizes == (1, 3)
    assert report.legal_expert_parallel_sizes == (1, 2, 3, 4)  # of four experts
    main(["preflight", str(file), "software.vllm=0.28.0"])
    text = capsys.readouterr().out
    assert "legal tensor parallel sizes" in text and "1, 2, 3, 4" in text

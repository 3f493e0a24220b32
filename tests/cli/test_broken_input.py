"""Input that cannot be read: one clear message each, exit code 2, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.__main__ import main

GLOBAL = "# @package _global_\n"
BROKEN: dict[str, tuple[bytes, str, int]] = {
    "yaml": (b"training: [1, 2\n", "PP001", 2),
    "tab": (b"training:\n\tbf16: true\n", "PP001", 2),
    "empty": (b"", "PP011", 0),
    "only comments": (b"# nothing\n", "PP011", 0),
    "list": (b"- training\n- optimizer\n", "PP005", 1),
    "section is a list": (b"training:\n  - bf16\n", "PP005", 1),
    "large value": (b"recipe:\n  title: " + b"x" * (1 << 20), "PP012", 0),
    "binary": (bytes(range(256)), "PP010", 0),
    "missing group": (f"{GLOBAL}defaults:\n  - override /hardware: h1000\n".encode(), "PP006", 3),
    "cycle": (f"{GLOBAL}defaults:\n  - /recipe/broken\n".encode(), "PP007", 3),
    "duplicate key": (b"training:\n  bf16: true\n  bf16: false\n", "PP008", 3),
    "code": (b"training:\n  _target_: os.system\n", "PP015", 2),
    "tag": (b"training: !!python/object/apply:os.system [ls]\n", "PP015", 1),
    "interpolation": (b"training:\n  bf16: ${model.nope}\n", "PP014", 2),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("verb", ["plan", "lint"])
def test_broken(verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, expected, line = BROKEN[name]
    path = tmp_path / "broken.yaml"
    path.write_bytes(data)
    assert main([verb, str(path), "--format", "json"]) == 2
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)["diagnostics"]
    assert [each["id"] for each in found] == [expected]
    assert Path(found[0]["file"]).name == "broken.yaml"
    if line:
        assert found[0]["line"] == line
    assert len(found[0]["message"]) < 400

    assert main([verb, str(path)]) == 2
    text = capsys.readouterr().out
    assert f"error[{expected}]" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.bf16", "PP009"),
        ("=x", "PP009"),
        ("training={", "PP009"),
        ("hardware=h1000", "PP006"),
        ("training.bf16=[", "PP009"),
    ],
)
def test_broken_overrides(override: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen3-30b-fp8", override, "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert expected in {each["id"] for each in found}


def test_five_mistakes_are_five_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "five.yaml"
    path.write_text(
        GLOBAL
        + """\
recipe: {title: five, source: [https://example.org], maturity: stable}
hardware: {gpu: h100, nodes: 1, gpus_per_node: 8}
software: {framework: megatron-lm, megatron_core: 0.16.1, transformer_engine: 2.10.0}
training:
  bf16: true
  fp16: true
  fp8_format: e4m3
  fp8_recipe: mxfp8
  transformer_impl: transformer_engine
  fp8_param_gather: true
  attention_softmax: true
optimizer:
  main_grads_dtype: fp8
"""
    )
    assert main(["lint", str(path), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    lines = {each["id"]: each["line"] for each in found if each["severity"] == "error"}
    expected = {"PP101": 7, "PP204": 9, "PP127": 11, "PP002": 12, "PP003": 14}
    assert {id: lines.get(id) for id in expected} == expected
    assert all(each["because"] or each["fix"] for each in found)

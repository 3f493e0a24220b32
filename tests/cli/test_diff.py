"""``precision-plan diff``: what a person and a program see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.cli import run

SNAPSHOTS = Path(__file__).parents[1] / "render" / "snapshots"
ROOT = Path(__file__).parents[2]
SECRET = "hf_abcdefghijkl"
NAME = "qwen3-4b-fp8"
CHANGED = [
    NAME,
    "training.fp8_recipe=tensorwise",
    "training.attention_softmax_in_fp32=null",
    "+env.train_actor.NVTE_DEBUG=1",
    "+launch.extra_args.note=a|b",
    "recipe.title=Another title",
    "rollout.kv_cache_dtype=fp8",
]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("width", [80, 120])
def test_text(
    width: int,
    committed,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["diff", NAME, *CHANGED]) == 0
    shown = capsys.readouterr().out
    blocks = [each for each in shown.split("\n\n") if not each.startswith("Findings of")]
    committed(SNAPSHOTS / f"diff-{width}.txt", "\n\n".join(blocks))
    assert max(map(len, shown.splitlines())) <= width


def test_markdown(committed, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", NAME, *CHANGED, "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    lines = [each for each in shown.splitlines() if not each.startswith("Findings of")]
    committed(SNAPSHOTS / "diff.md", "\n".join(lines) + "\n")
    cells = {line.replace("\\|", "").count("|") for line in shown.splitlines() if line[:1] == "|"}
    assert cells == {4}


def test_findings_of_one_side(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [NAME, NAME, "training.fp16=true"]
    assert run(["diff", *sides]) == 0
    assert "Findings of b alone\n  error[PP101]" in capsys.readouterr().out
    assert run(["diff", *sides, "--format", "json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert "PP101" in {each["id"] for each in findings["only_b"]}


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", NAME, *CHANGED, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["differs"] is True
    fields = {each["field"]: each for each in data["plan"]}
    assert fields["training.fp8_recipe"]["before"]["file"] == "conf/training/fp8-blockwise.yaml"
    assert fields["training.fp8_recipe"]["after"]["value"] == "tensorwise"
    assert fields["env.train_actor.NVTE_DEBUG"]["before"] is None
    assert [each["field"] for each in data["about"]] == ["title"]
    effects = {(each["target"], each["name"]): each for each in data["effects"]}
    assert effects[("Environment", "NVTE_DEBUG")]["roles"] == ["train_actor"]
    recipe = effects[("Megatron", "--fp8-recipe")]
    assert (recipe["before"]["value"], recipe["after"]["value"]) == ("blockwise", "tensorwise")
    assert recipe["after"]["field"] == "training.fp8_recipe"


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", NAME, NAME, "--exit-code"]) == 0
    assert capsys.readouterr().out.endswith("\nno field and no effect differs\n")
    assert run(["diff", NAME, *CHANGED, "--exit-code"]) == 1
    assert run(["diff", NAME, NAME, "recipe.title=x", "--exit-code"]) == 0
    capsys.readouterr()
    out = tmp_path / "d.json"
    assert run(["diff", NAME, *CHANGED, "--format", "json", "-o", str(out), "--exit-code"]) == 1
    assert capsys.readouterr().out == "" and json.loads(out.read_text())["differs"]


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
def test_secrets_that_differ_are_told_apart_without_being_shown(
    format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [NAME, f"env.all.HF_TOKEN={SECRET}", NAME, f"env.all.HF_TOKEN={SECRET[::-1]}"]
    assert run(["diff", *sides, "--format", format, "--exit-code"]) == 1
    shown = capsys.readouterr().out
    assert SECRET not in shown and SECRET[::-1] not in shown
    assert "HF_TOKEN" in shown and "*** (another one, hidden)" in shown


BROKEN = {
    "yaml": ("r.yaml", b"training: [1, 2\n", "PP001"),
    "binary": ("r.yaml", bytes(range(256)), "PP010"),
    "lock that is YAML": ("r.lock", b"training: {bf16: true}\n", "PP034"),
    "cut lock": ("r.json", b'{"kind": "precision-plan lock", "plan": {', "PP034"),
    "older lock": ("x", b'{"kind": "precision-plan lock", "schema_version": 0}', "PP035"),
    "deep lock": ("x.lock", b"[" * 200_000, "PP034"),
}


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_sides(
    name: str, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data, id = BROKEN[name]
    path = tmp_path / file
    path.write_bytes(data)
    for sides in ([str(path), NAME], [NAME, str(path)]):
        assert run(["diff", *sides, "--format", format]) == 2
        shown = capsys.readouterr()
        assert id in shown.out and shown.err == ""
        assert "Traceback" not in shown.out and len(shown.out) < 6000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "two sides are compared, 0 given"),
        ([NAME], "two sides are compared, 1 given"),
        ([NAME, "a=b"], "two sides are compared, 1 given"),
        ([NAME, NAME, NAME], "two sides are compared, 3 given"),
        (["a=b", NAME, NAME], "'a=b' stands before a recipe"),
        ([NAME, NAME, "--format", "html"], "invalid choice"),
    ],
)
def test_usage_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", NAME, "no/such.yaml"]) == 2
    assert "error[PP010]" in capsys.readouterr().out
    assert run(["diff", "\0", NAME]) == 2
    assert "error[PP0" in capsys.readouterr().out

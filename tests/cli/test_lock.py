"""``precision-plan lock`` and ``lint --lock``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from precision_plan.cli import run

SNAPSHOTS = Path(__file__).parents[1] / "render" / "snapshots"
ROOT = Path(__file__).parents[2]
NAME = "qwen3-4b-fp8"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "x.lock"
    assert run(["lock", NAME, "-o", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    return path


def test_what_is_written(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = lock.read_text()
    assert run(["lock", NAME]) == 0
    assert capsys.readouterr().out == text
    data = json.loads(text)
    assert sorted(data) == [
        "about", "accepted", "fingerprint", "kind", "lowered", "overrides", "plan", "recipe",
        "schema_version", "suppressed", "versions", "written_by",
    ]  # fmt: skip
    assert data["plan"]["training"]["fp8_recipe"] == "blockwise"
    assert data["lowered"]["megatron"]["flags"]["--fp8-recipe"] == "blockwise"
    assert data["lowered"]["environment"]["train_actor"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert data["lowered"]["tensors"]["train weights"] == "bf16"
    assert data["versions"]["vllm"]["declared"] == "0.33.0"
    assert list(lock.parent.iterdir()) == [lock]


def test_the_locked_recipe_is_clean(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", NAME, "--lock", str(lock)]) == 0
    assert "PP03" not in capsys.readouterr().out


def test_what_a_person_sees_of_a_changed_recipe(
    tmp_path: Path,
    committed,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    recipe = (tmp_path / "conf" / "recipes" / f"{NAME}.yaml").read_text()
    path = Path("mine.yaml")
    path.write_text(recipe)
    assert run(["lock", "mine.yaml", "-o", "mine.lock"]) == 0
    path.write_text(recipe.replace("/training: fp8-blockwise", "/training: fp8-delayed"))
    assert run(["lint", "mine.yaml", "--lock", "mine.lock"]) == 1
    blocks = capsys.readouterr().out.split("\n\n")
    shown = "\n\n".join(block for block in blocks if "[PP03" in block) + "\n"
    committed(SNAPSHOTS / "lint-lock.txt", shown)
    assert run(["lint", "mine.yaml", "--lock", "mine.lock", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    ids = {each["id"] for each in found}
    assert {"PP030", "PP031", "PP032"} <= ids
    field = next(each for each in found if each["field"] == "training.fp8_recipe"
                 and each["id"] == "PP030")  # fmt: skip
    assert (field["file"], field["line"]) == ("conf/training/fp8-delayed.yaml", 9)


@pytest.mark.parametrize("format", ["github", "sarif", "junit", "markdown"])
def test_the_formats_for_ci(format: str, lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(lock.read_text())
    data["plan"]["training"]["fp8_recipe"] = "mxfp8"
    lock.write_text(json.dumps(data))
    assert run(["lint", NAME, "--lock", str(lock), "--format", format]) == 1
    assert "PP030" in capsys.readouterr().out


BROKEN = {
    "missing": (None, "PP010"),
    "a folder": ("folder", "PP010"),
    "empty": (b"", "PP034"),
    "binary": (b"\x00\xff" * 50, "PP010"),
    "a recipe": (b"training: {bf16: true}\n", "PP034"),
    "older": (b'{"kind": "precision-plan lock", "schema_version": 0}', "PP035"),
    "too large": (b" " * (2 << 20), "PP012"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_locks(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, id = BROKEN[name]
    path = tmp_path / "x.lock"
    if data == "folder":
        path.mkdir()
    elif isinstance(data, bytes):
        path.write_bytes(data)
    assert run(["lint", NAME, "--lock", str(path), "--format", "json"]) == 2
    shown = capsys.readouterr()
    assert [each["id"] for each in json.loads(shown.out)["diagnostics"]] == [id]
    assert shown.err == ""


def test_a_broken_recipe_beside_a_lock(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("training: [1, 2\n")
    assert run(["lint", str(path), "--lock", str(lock), "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [each["id"] for each in found] == ["PP001"]


def test_a_plan_with_errors_is_not_locked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.lock"
    out.write_text("before")
    assert run(["lock", NAME, "training.fp16=true", "-o", str(out)]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "error[PP101]" in shown.err and "not locked" in shown.err
    assert out.read_text() == "before"
    assert run(["lock", "no-such", "-o", str(out)]) == 2
    assert "PP006" in capsys.readouterr().err


def test_a_lock_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lock", NAME, "-o", "no/such/folder/x.lock"]) == 2
    assert "cannot write no/such/folder/x.lock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([NAME, NAME], "--lock is compared with one recipe, 2 given"),
        ([], "--lock is compared with one recipe, 0 given"),
        ([NAME, "--target", "gpu=b200"], "--lock and --target exclude each other"),
        ([NAME, "--fix"], "--lock and --fix exclude each other"),
        (["--jsonl", "-"], "--lock and --jsonl exclude each other"),
    ],
)
def test_usage_errors(
    words: list[str], message: str, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # paths stand before --target, which takes several words
    assert run(["lint", "--lock", str(lock), *words]) == 2
    assert message in capsys.readouterr().err

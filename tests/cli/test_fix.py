"""``lint --fix``: what is printed, what is written, and the exit codes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from precision_plan.__main__ import main

RECIPE = """\
# Every fault here has one way out but the last.
recipe: {title: a recipe, source: [here], maturity: stable}
hardware:
  gpu: h100
  gpus_per_node: "8"   # one board
training:
  bf16: true
  fp8-format: e4m3     # as on the command line
  fp8_recipe: tensorwise
  fp8_param_gather: true
  fp8_interval: 4
optimizer: {use_distributed_optimizer: true}
env:
  all:
    PYTHONBUFFERED: "16"
    HF_TOKEN: hf_abcdefgh
"""
DIFF = """\
--- a/recipe.yaml
+++ b/recipe.yaml
@@ -2,15 +2,14 @@
 recipe: {title: a recipe, source: [here], maturity: stable}
 hardware:
   gpu: h100
-  gpus_per_node: "8"   # one board
+  gpus_per_node: 8   # one board
 training:
   bf16: true
-  fp8-format: e4m3     # as on the command line
+  fp8_format: e4m3     # as on the command line
   fp8_recipe: tensorwise
   fp8_param_gather: true
-  fp8_interval: 4
 optimizer: {use_distributed_optimizer: true}
 env:
   all:
-    PYTHONBUFFERED: "16"
+    PYTHONUNBUFFERED: "16"
     HF_TOKEN: ***
"""
CLEAN = RECIPE.replace("    HF_TOKEN: hf_abcdefgh\n", "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "recipe.yaml").write_text(CLEAN)
    return tmp_path


def written(folder: Path) -> str:
    return (folder / "recipe.yaml").read_text()


def test_a_dry_run_prints_a_diff_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "recipe.yaml").write_text(RECIPE)
    before = (folder / "recipe.yaml").stat()
    assert main(["lint", "--fix", "--dry-run", "recipe.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.out == DIFF
    assert shown.err == "would fix 4 findings in 1 file\n"
    assert written(folder) == RECIPE
    after = (folder / "recipe.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in folder.iterdir()) == ["recipe.yaml"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_diff_is_what_git_applies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "--fix", "--dry-run", "recipe.yaml"])
    text = capsys.readouterr().out
    subprocess.run(["git", "apply", "-"], input=text.encode(), check=True, cwd=folder)
    patched = written(folder)
    (folder / "recipe.yaml").write_text(CLEAN)
    main(["lint", "--fix", "recipe.yaml"])
    assert written(folder) == patched != CLEAN


def test_all_fixed_is_clean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "recipe.yaml"]) == 1
    capsys.readouterr()
    assert main(["lint", "--fix", "recipe.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("  fixed")] == [
        "  fixed  PP004 recipe.yaml:5:3  hardware.gpus_per_node: 8",
        "  fixed  PP002 recipe.yaml:8:3  training.fp8_format: e4m3 instead of",
        "  fixed  PP172 recipe.yaml:11:3  remove training.fp8_interval",
        "  fixed  PP604 recipe.yaml:15:5  env.all.PYTHONUNBUFFERED: 16 instead of",
    ]
    assert "fixed 4 findings in 1 file; 0 remain" in lines
    after = written(folder)
    assert main(["lint", "--fix", "recipe.yaml"]) == 0
    assert "fixed 0 findings in 0 files; 0 remain" in capsys.readouterr().out
    assert written(folder) == after


def test_what_is_left_decides_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "recipe.yaml").write_text(CLEAN.replace("bf16: true", "bf16: true\n  fp16: true"))
    assert main(["lint", "--fix", "recipe.yaml"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("error[PP101]")
    assert "fixed 4 findings in 1 file; 1 remains" in shown
    (folder / "recipe.yaml").write_text(CLEAN.replace("e4m3", "e4m3\n  fp8_interval: 4"))
    assert main(["lint", "--fix", "recipe.yaml"]) == 2  # the key is written twice


def test_json_tells_what_was_fixed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--fix", "--dry-run", "--format", "json", "recipe.yaml"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["diff"].startswith("--- a/recipe.yaml\n")
    assert written(folder) == CLEAN
    assert main(["lint", "--fix", "--format", "json", "recipe.yaml"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in data["fixed"]] == ["PP004", "PP002", "PP172", "PP604"]
    assert data["fixed"][1] == {
        "id": "PP002",
        "slug": "unknown-key",
        "file": "recipe.yaml",
        "line": 8,
        "column": 3,
        "field": "training.fp8-format",
        "edits": {"training.fp8-format": None, "training.fp8_format": "e4m3"},
        "text": "training.fp8_format: e4m3 instead of training.fp8-format",
    }
    assert (data["not_fixed"], data["changed_files"], data["diff"]) == ([], ["recipe.yaml"], "")
    assert main(["lint", "--format", "json", "recipe.yaml"]) == 0
    assert "fixed" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dry-run", "recipe.yaml"], "--dry-run belongs to --fix"),
        (["--fix", "--jsonl", "-"], "--fix changes files, and --jsonl has none"),
        (["--fix", "--dry-run", "--format", "github", "recipe.yaml"], "prints a diff"),
        (["--fix", "--dry-run", "--baseline", "b.json", "--update-baseline", "recipe.yaml"],
         "--dry-run writes nothing"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(
    argv: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", *argv]) == 2
    assert message in capsys.readouterr().err
    assert written(folder) == CLEAN


def test_mode_bits_and_links_stay(folder: Path) -> None:
    target = folder / "real" / "target.yaml"
    target.parent.mkdir()
    target.write_text(CLEAN)
    target.chmod(0o640)
    link = folder / "link.yaml"
    link.symlink_to("real/target.yaml")
    assert main(["lint", "--fix", "link.yaml"]) == 0
    assert link.is_symlink() and link.readlink() == Path("real/target.yaml")
    assert "fp8_format: e4m3" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["target.yaml"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_file_stops_everything(
    what: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked = folder / "sub" / "locked.yaml"
    locked.parent.mkdir()
    locked.write_text(CLEAN)
    if what == "file":
        locked.chmod(0o444)
    else:  # root may write everywhere, so the answer of the system is replaced
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(locked.parent))
    assert main(["lint", "--fix", "recipe.yaml", "sub"]) == 2
    shown = capsys.readouterr()
    reason = "the file is read-only" if what == "file" else "its folder is read-only"
    assert shown.err.splitlines()[0] == f"precision-plan: cannot fix sub/locked.yaml: {reason}"
    assert written(folder) == locked.read_text() == CLEAN


def test_a_file_that_changes_meanwhile_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_plan.api import fixing

    def late(*args: object, **options: object) -> object:
        fixes = fix(*args, **options)  # type: ignore[arg-type]
        (folder / "recipe.yaml").write_text(CLEAN + "# by somebody else\n")
        return fixes

    fix = fixing.fix
    monkeypatch.setattr(fixing, "fix", late)
    assert main(["lint", "--fix", "recipe.yaml"]) == 2
    assert "recipe.yaml has changed meanwhile" in capsys.readouterr().err
    assert written(folder) == CLEAN + "# by somebody else\n"


def test_a_fix_never_rests_on_an_assumed_target(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = CLEAN.replace("use_distributed_optimizer: true", "use_distributed_optimizer: false")
    (folder / "recipe.yaml").write_text(recipe.replace("  fp8_param_gather: true\n", ""))
    assert main(["lint", "--fix", "recipe.yaml", "--target", "framework=slime"]) == 0
    assert "warning[PP391]" in capsys.readouterr().out
    assert "use_distributed_optimizer: false" in written(folder)


def test_a_hook_fixes_recipes_alone(folder: Path) -> None:
    other = folder / "compose.yaml"
    other.write_text("services:\n  a: {image: b}\nTraining: {}\n")
    files = ["recipe.yaml", "compose.yaml"]
    assert main(["lint", "--fix", "--skip-others", *files]) == 0
    assert other.read_text() == "services:\n  a: {image: b}\nTraining: {}\n"
    assert written(folder) != CLEAN


def test_fixes_and_a_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CLEAN.replace("bf16: true", "bf16: true\n  fp16: true")
    (folder / "recipe.yaml").write_text(text)
    assert main(["lint", "--baseline", "b.json", "--update-baseline", "recipe.yaml"]) == 0
    assert main(["lint", "--baseline", "b.json", "--fix", "recipe.yaml"]) == 0
    assert "fixed 4 findings in 1 file" in capsys.readouterr().out
    assert "fp8_format: e4m3" in written(folder)


SCRIPT = """\
# precision-plan: framework=megatron-lm megatron_core=0.16.1 transformer_engine=2.9.0
torchrun pretrain_gpt.py --bf16 \\
    --fp8-interval 4 \\
    --num-layers 2
"""
SCRIPT_DIFF = """\
--- a/run.sh
+++ b/run.sh
@@ -1,4 +1,3 @@
 # precision-plan: framework=megatron-lm megatron_core=0.16.1 transformer_engine=2.9.0
 torchrun pretrain_gpt.py --bf16 \\
-    --fp8-interval 4 \\
     --num-layers 2
"""


def test_scripts_are_shown_and_never_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.sh").write_text(SCRIPT)
    assert main(["lint", "--fix", "--dry-run", "run.sh"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (SCRIPT_DIFF, "would fix 1 finding in 1 file\n")
    assert main(["lint", "--fix", "run.sh", "recipe.yaml"]) == 0
    shown = capsys.readouterr()
    assert "\n  diff   PP172 run.sh:3:5  remove training.fp8_interval\n" in shown.out
    assert f"\n{SCRIPT_DIFF}\n" in shown.out
    told = " ".join(shown.out.split())
    assert (
        "fixed 4 findings in 1 file; 1 remains; the diff would fix 1 finding in 1 script, "
        "which is not written"
    ) in told
    assert (folder / "run.sh").read_text() == SCRIPT
    assert main(["lint", "--fix", "--format", "json", "run.sh"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["line"]) for each in data["proposed"]] == [("PP172", 3)]
    assert (data["fixed"], data["changed_files"], data["diff"]) == ([], [], SCRIPT_DIFF)

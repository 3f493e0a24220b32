"""Linting launch scripts: findings in branches, trees of files, files that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from precision_plan.api import lint
from precision_plan.plan.compiled import LintReport, exit_code

HEAD = "#!/bin/bash\n# precision-plan: framework=vime gpu=h100 vllm=0.33.0 megatron_core=0.16.1\n"
LAUNCH = "ray job submit -- python3 train.py ${ARGS[@]}\n"


def linted(folder: Path, text: str, **changes: object) -> LintReport:
    script = folder / "run.sh"
    script.write_text(text)
    return lint([script], **changes)  # type: ignore[arg-type]


def ids(report: LintReport) -> list[tuple[str, int]]:
    return [(found.id, found.origin.line) for found in report.diagnostics]


def test_a_finding_points_into_the_script(tmp_path: Path) -> None:
    report = linted(tmp_path, HEAD + "ARGS=(\n  --bf16\n  --fp16\n)\n" + LAUNCH)
    assert ("PP101", 5) in ids(report)
    assert report.files == (report.diagnostics[0].origin.file,)


def test_a_finding_of_one_branch_names_it(tmp_path: Path) -> None:
    report = linted(
        tmp_path,
        HEAD + "ARGS=(--bf16 --fp8-format e4m3)\n"
        'if [ "$NODES" = 1 ]; then\n  ARGS+=(--fp8-recipe mxfp8)\n'
        "else\n  ARGS+=(--fp8-recipe blockwise)\nfi\n" + LAUNCH,
    )
    found = next(each for each in report.diagnostics if each.id == "PP204")
    assert found.origin.line == 5
    assert found.because[-1].text == 'where [ "$NODES" = 1 ]'
    assert found.because[-1].origin.line == 4


def test_a_finding_of_all_branches_names_none(tmp_path: Path) -> None:
    report = linted(
        tmp_path,
        HEAD + "ARGS=(--bf16 --fp8-format e4m3 --fp8-recipe mxfp8)\n"
        'if [ "$NODES" = 1 ]; then\n  ARGS+=(--num-layers 2)\n'
        "else\n  ARGS+=(--num-layers 4)\nfi\n" + LAUNCH,
    )
    found = [each for each in report.diagnostics if each.id == "PP204"]
    assert len(found) == 1
    assert not any(premise.text.startswith("where") for premise in found[0].because)


def test_the_target_from_outside_fills_what_the_comment_leaves_open(tmp_path: Path) -> None:
    text = "ARGS=(--bf16 --fp8-format e4m3 --fp8-recipe mxfp8)\n" + LAUNCH
    vime = {"framework": "vime"}
    assert "PP204" not in dict(ids(linted(tmp_path, text, target=vime)))
    assert "PP204" in dict(ids(linted(tmp_path, text, target={**vime, "gpu": "h100"})))
    declared = "# precision-plan: gpu=b200\n" + text
    assert "PP204" not in dict(ids(linted(tmp_path, declared, target={**vime, "gpu": "h100"})))


def test_a_comment_silences_a_finding(tmp_path: Path) -> None:
    args = "ARGS=(\n  --bf16\n  --fp16{}\n)\n"
    assert "PP101" in dict(ids(linted(tmp_path, HEAD + args.format("") + LAUNCH)))
    silenced = args.format("  # precision-plan: ignore[PP101] both on purpose")
    assert "PP101" not in dict(ids(linted(tmp_path, HEAD + silenced + LAUNCH)))
    quoted = "X='# precision-plan: ignore[PP101] no comment'\n"
    assert (
        dict(ids(linted(tmp_path, HEAD + quoted + args.format("") + LAUNCH))).keys()
        == dict(ids(linted(tmp_path, HEAD + args.format("") + LAUNCH))).keys()
    )


def test_a_script_without_a_launch_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "install.sh").write_text("#!/bin/bash\npip install x\n")
    (tmp_path / "tool").write_text("#!/usr/bin/env bash\nls\n")
    (tmp_path / "notes").write_text("no script\n")
    report = lint([tmp_path])
    assert report.diagnostics == () == report.files
    assert [Path(each).name for each in report.skipped] == ["install.sh", "tool"]


def test_a_tree_with_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a-binary.sh").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "b-big.sh").write_bytes(b"# x\n" * (10 << 18))
    (tmp_path / "c-latin.sh").write_bytes(b"echo \xe9\n")
    (tmp_path / "d-loop.sh").symlink_to("d-loop.sh")
    (tmp_path / "e-gone.sh").symlink_to("nowhere.sh")
    (tmp_path / "f-open.sh").write_text(HEAD + 'ARGS=("--bf16\n' + LAUNCH)
    os.mkfifo(tmp_path / "g-pipe.sh")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "again").symlink_to(tmp_path)
    (tmp_path / "sub" / "z-good.sh").write_text(HEAD + "ARGS=(--bf16 --fp16)\n" + LAUNCH)
    report = lint([tmp_path])
    found = [(Path(each.origin.file).name[:1], each.id) for each in report.diagnostics]
    assert set(found) >= {(name, "PP010") for name in "abcdeg"}
    assert ("f", "PP942") in found
    assert ("z", "PP101") in found
    assert exit_code(report.diagnostics) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_script_that_is_not_permitted(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(LAUNCH)
    script.chmod(0)
    report = lint([tmp_path])
    assert [each.id for each in report.diagnostics] == ["PP010"]
    assert "permission denied" in report.diagnostics[0].message


def test_what_the_script_does_not_say_stands_where_its_reason_does(tmp_path: Path) -> None:
    """PP135 is about a flag that is not there; it points at the format that makes it matter."""
    report = linted(tmp_path, HEAD + "ARGS=(\n  --bf16\n  --fp8-format e4m3\n)\n" + LAUNCH)
    assert ("PP135", 5) in ids(report)
    assert all(line for _, line in ids(report))


def test_the_checkpoint_beside_the_script_says_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_text("stands for weights")
    config = '{"model_type": "gemma3_text", "num_hidden_layers": 2}'
    (folder / "config.json").write_text(config)
    text = "# precision-plan: vllm=0.33.0\nvllm serve $(dirname $0)/checkpoint --dtype {}\n"
    assert "PP408" in dict(ids(linted(tmp_path, text.replace("{}", "half"))))
    assert "PP408" not in dict(ids(linted(tmp_path, text.replace("{}", "bfloat16"))))


JOBS = {
    "ps.txt": "UID PID PPID C STIME TTY TIME CMD\n"
    "root 7 1 0 10:00 ? 00:00:01 python3 train.py --bf16 --fp16 --vllm-dtype auto\n",
    "cmdline": "python3\0train.py\0--bf16\0--fp16\0--vllm-dtype\0auto\0",
    "argv.txt": "python3 train.py --bf16 --fp16 --vllm-dtype auto\n",
    "compose.yaml": "services:\n  train:\n    command: python3 train.py --bf16 --fp16"
    " --vllm-dtype auto\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n"
    "    command: [python3, train.py, --bf16, --fp16, --vllm-dtype, auto]\n",
}


@pytest.mark.parametrize("name", JOBS)
def test_launches_that_stand_in_other_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(JOBS[name])
    report = lint([tmp_path / name], target={"framework": "vime"})
    assert [found.id for found in report.diagnostics if found.severity == "error"] == ["PP101"]
    assert len(report.files) == 1
    if name.endswith(".yaml"):
        assert lint([tmp_path], target={"framework": "vime"}).files == report.files


@pytest.mark.parametrize("name", ["env.json", "env.yaml"])
def test_a_runtime_environment_by_itself(name: str, tmp_path: Path) -> None:
    text = '{"env_vars": {"PYTHONBUFFERED": "16"}, "working_dirr": "."}\n'
    (tmp_path / name).write_text(text)
    report = lint([tmp_path / name], target={"framework": "vime"})
    assert {"PP604"} <= {found.id for found in report.diagnostics}
    assert {found.origin.line for found in report.diagnostics} == {1}
    assert exit_code(report.diagnostics, "warning") == 1


def test_a_named_file_that_starts_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("call me\n")
    (tmp_path / "data.json").write_text("[1, 2]\n")
    report = lint([tmp_path / "notes.txt", tmp_path / "data.json"])
    assert [found.id for found in report.diagnostics] == ["PP010", "PP010"]


@pytest.mark.parametrize(
    ("flag", "training"),
    [
        ("--use-tis --$X 1 2", "--fp8-format e4m3 --fp8-recipe blockwise"),
        ("--use-tis a b", "--fp8-format e4m3"),
        ("--sglang-enable-fp32-lm-head 1 2", ""),
    ],
)
def test_a_switch_with_several_values_is_no_reason_to_stop(
    tmp_path: Path, flag: str, training: str
) -> None:
    launch = f"ray job submit -- python3 train.py --bf16 {training} {flag}"
    for framework in ("vime", "slime"):
        head = f"# precision-plan: framework={framework} megatron_core=0.16.1 gpu=h100\n"
        report = linted(tmp_path, f"{head}{launch} --vllm-quantization fp8_per_block\n")
        assert report.rules_checked > 100

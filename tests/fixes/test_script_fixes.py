"""Scripts before and after the diff of ``lint --fix``, as a person would read them.

A case is ``{name, before, after, proposed: [ids], why: {id: part of the reason}}``; ``before`` and
``after`` are the text of one script, or texts by file name. Without ``after`` nothing changes.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.api.fixing import fix
from precision_plan.plan.fixes import Fixes
from precision_plan.render.diff import unified

HERE = Path(__file__).parent / "scripts"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "scripts"
TARGET = (
    "# precision-plan: framework=megatron-lm gpu=h100 megatron_core=0.16.1 "
    "transformer_engine=2.9.0\n"
)


def all_cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{file.stem}: {case['name']}")
        for file in sorted(HERE.glob("*.yaml"))
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]


def files(texts: str | dict[str, str]) -> dict[str, str]:
    if isinstance(texts, dict):
        return texts
    return {"run.sh": texts if texts.startswith("# precision-plan: ") else TARGET + texts}


def diff_of(fixes: Fixes) -> str:
    return "".join(unified(each.name, each.before, each.after) for each in fixes.proposed)


def write(folder: Path, texts: dict[str, str], ending: str) -> dict[str, bytes]:
    data = {name: text.replace("\n", ending).encode() for name, text in texts.items()}
    for name, each in data.items():
        (folder / name).write_bytes(each)
    return data


def is_bash(script: Path) -> bool:
    data = script.read_bytes().replace(b"\r\n", b"\n")
    return subprocess.run(["bash", "-n"], input=data, check=False).returncode == 0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("case", all_cases())
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_case(case: dict[str, Any], ending: str, here: Path) -> None:
    assert case.keys() <= {"name", "before", "after", "proposed", "why"}
    before = write(here, files(case["before"]), ending)
    after = {**files(case["before"]), **files(case.get("after", {}))}
    fixes = fix([here])
    assert sorted(each.diagnostic.id for each in fixes.proposals) == case.get("proposed", [])
    reasons = {each.diagnostic.id: each.why for each in fixes.unfixed}
    assert reasons.keys() == case.get("why", {}).keys()
    assert all(part in reasons[id] for id, part in case.get("why", {}).items())
    assert {name: (here / name).read_bytes() for name in before} == before
    assert fixes.changes == fixes.fixed == ()
    text = diff_of(fixes)
    assert bool(text) == ("after" in case)
    if text:
        subprocess.run(["git", "apply", "-"], input=text.encode(), check=True, cwd=here)
    for name, expected in after.items():
        assert (here / name).read_bytes().decode() == expected.replace("\n", ending)
        assert is_bash(here / name)
    assert fix([here]).proposed == ()


def test_lines_that_end_in_either_way_stay_so(here: Path) -> None:
    text = TARGET + "ARGS=(\r\n  --bf16\n  --fp8-interval 4\r\n  --num-layers 2\r\n)\n"
    text += "torchrun pretrain_gpt.py ${ARGS[@]}\r\n"
    (here / "run.sh").write_bytes(text.encode())
    (change,) = fix([here]).proposed
    assert (change.before, change.after) == (text, text.replace("  --fp8-interval 4\r\n", ""))


def test_a_sourced_file_that_was_not_given_is_left_alone(here: Path) -> None:
    (here / "run.sh").write_text(TARGET + "source args.sh\ntorchrun pretrain_gpt.py ${ARGS[@]}\n")
    (here / "args.sh").write_text("ARGS=(--bf16 --fp8-interval 4)\n")
    fixes = fix(["run.sh"])
    assert fixes.proposed == ()
    assert [each.why for each in fixes.unfixed] == ["args.sh was not given"]
    assert len(fix(["run.sh", "args.sh"]).proposed) == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_diff_of_a_tree_applies_and_ends_what_it_says(here: Path) -> None:
    tree = here / "tree"
    shutil.copytree(FIXTURES, tree)
    fixes = fix([tree])
    assert len(fixes.proposals) >= 5
    subprocess.run(["git", "apply", "-"], input=diff_of(fixes).encode(), check=True, cwd=here)
    for change in fixes.proposed:
        assert change.path.read_bytes().decode() == change.after
        assert is_bash(change.path)
        lines = change.before.split("\n")
        kept = [line for line in change.after.split("\n") if line in lines]
        assert len(kept) >= len(lines) - 2 * len(fixes.proposals)
    again = fix([tree])
    assert (again.proposals, again.proposed) == ((), ())
    assert {each.why for each in again.unfixed} == {each.why for each in fixes.unfixed}

"""Comparing launch scripts with each other, with recipes and with lock files."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import Side, compile, diff, lock
from precision_plan.cli import run
from precision_plan.plan.comparison import Comparison
from precision_plan.render import render_plan
from precision_plan.render.comparison import DIFF_FORMATS, render_diff

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
HEAD = "#!/bin/bash\n# precision-plan: framework=megatron-lm gpu=h100 megatron_core=0.16.1\n"
ONE = (
    HEAD
    + """\
ARGS=(
  --bf16
  --fp8-format e4m3
  --fp8-recipe blockwise
)
torchrun pretrain_gpt.py "${ARGS[@]}"
"""
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> Side:
    Path(name).write_text(text)
    return Side(name)


def compared(a: Side, b: Side) -> Comparison:
    return diff(a, b, conf_dir=CONF)


def test_two_scripts() -> None:
    other = ONE.replace("blockwise", "tensorwise").replace("--bf16\n", "--bf16  # a comment\n")
    found = compared(write("a.sh", ONE), write("b.sh", other))
    (change,) = found.plan
    assert change.name == "training.fp8_recipe"
    assert change.before is not None and change.after is not None
    assert (change.before.value, str(change.before.origin)) == ("blockwise", "a.sh:6:3")
    assert (change.after.value, str(change.after.origin)) == ("tensorwise", "b.sh:6:3")
    assert "--fp8-recipe" in {each.name for each in found.effects}
    assert not compared(Side("a.sh"), write("c.sh", ONE + "\n# the end\n")).differs


def test_a_script_and_a_recipe() -> None:
    recipe = """\
software: {framework: megatron-lm, megatron_core: 0.16.1}
hardware: {gpu: h100}
training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
"""
    found = compared(write("a.sh", ONE), write("r.yaml", recipe))
    assert [each.name for each in found.plan if each.target == "plan"
            and each.name.split(".")[0] in ("training", "software", "hardware")] == []  # fmt: skip
    assert {each.target for each in found.effects}.isdisjoint({"Megatron", "Transformer Engine"})


@pytest.mark.parametrize("recipe", ["qwen3-4b-fp8", "qwen3-30b-mxfp8", "fp16-baseline"])
def test_the_script_of_a_recipe_lowers_to_the_same_flags(recipe: str) -> None:
    """``plan --format shell`` and the reading of scripts are each other's way back."""
    script = render_plan(compile(recipe, conf_dir=CONF), "shell")
    found = compared(Side(recipe), write("run.sh", script))
    assert not found.broken, found.b.diagnostics
    sections = ("training", "optimizer", "qat", "parallel")
    assert [each.name for each in found.plan if each.path[0] in sections
            and each.before is not None] == []  # fmt: skip


def test_a_script_and_a_lock() -> None:
    text = lock("qwen3-4b-fp8", conf_dir=CONF).text
    assert text is not None
    found = compared(write("x.lock", text), write("a.sh", ONE))
    assert (found.a.kind, found.b.kind) == ("lock", "script")
    assert "hardware.nodes" in {each.name for each in found.plan}


WAYS = (
    HEAD
    + """\
if [ "$GPU" = b200 ]; then
  RECIPE=mxfp8
else
  RECIPE=blockwise
fi
torchrun pretrain_gpt.py --bf16 --fp8-format e4m3 --fp8-recipe $RECIPE
"""
)


def test_ways_of_a_script() -> None:
    side = write("w.sh", WAYS)
    broken = compared(side, write("a.sh", ONE))
    (problem,) = broken.a.diagnostics
    assert problem.id == "PP036" and "2 ways" in problem.message
    assert 'w.sh#1: [ "$GPU" = b200 ]' in {each.text for each in problem.because}
    found = compared(Side("w.sh#1"), Side("w.sh#2"))
    values = [(each.name, each.before and each.before.value, each.after and each.after.value)
              for each in found.plan]  # fmt: skip
    assert values == [("training.fp8_recipe", "mxfp8", "blockwise")]
    assert found.a.name == "w.sh#1"
    for number in ("0", "3", "99999"):
        assert compared(Side(f"w.sh#{number}"), Side("w.sh#1")).broken


def test_what_is_not_known_before_a_run() -> None:
    side = write("u.sh", ONE.replace("blockwise", '"$RECIPE"'))
    found = compared(write("a.sh", ONE), side)
    assert [(each.name, each.after and each.after.value) for each in found.plan] == [
        ("training.fp8_recipe", "$RECIPE (not known before the run)")
    ]
    assert found.effects == () and not found.effects_known
    for format in DIFF_FORMATS:
        assert "not known" in render_diff(found, format) or '"unknown": [' in render_diff(
            found, format
        )
    text = render_diff(found, "text")
    assert "not known before the run: training.fp8_recipe" in text
    assert text.endswith("1 field differs; effects are not known\n")


BROKEN = {
    "nothing": (b"#!/bin/bash\necho hello\n", "PP036"),
    "binary": (b"\x00\x01\x02" * 100, "PP010"),
    "empty": (b"", "PP036"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_scripts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, id = BROKEN[name]
    Path("x.sh").write_bytes(data)
    assert run(["diff", "x.sh", "qwen3-4b-fp8", "--conf-dir", str(CONF)]) == 2
    shown = capsys.readouterr()
    assert f"error[{id}]" in shown.out and shown.err == ""


def test_overrides_belong_to_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.sh", ONE)
    assert run(["diff", "a.sh", "training.bf16=false", "a.sh"]) == 2
    assert "overrides belong to a recipe" in capsys.readouterr().out
    assert run(["diff", "a.sh", "missing.sh"]) == 2
    assert "error[PP0" in capsys.readouterr().out

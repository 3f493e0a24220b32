"""Why a field, flag or variable of a launch script has its value; locks of launches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.api import lint_lock, lock, why
from precision_plan.cli import run
from precision_plan.plan.tracing import FieldTrace, Why
from precision_plan.render.why import render_why

SCRIPT = """\
#!/bin/bash
# precision-plan: framework=vime gpu=h100 megatron_core=0.16.1
export NVTE_DEBUG=0
ARGS=(--bf16 --fp8-format e4m3 --fp8-recipe tensorwise)
if [ "$BOARD" = b200 ]; then
  RECIPE=mxfp8
else
  RECIPE=blockwise
fi
ray start --head
ray job submit --runtime-env-json='{"env_vars": {"NVTE_DEBUG": "1"}}' -- python3 train.py \\
   "${ARGS[@]}" --fp8-recipe $RECIPE --num-layers=$LAYERS
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text(SCRIPT)


def the_field(answer: Why) -> FieldTrace:
    (trace,) = answer.fields
    return trace


def test_a_field_with_an_option_that_it_overrides() -> None:
    answer = why("run.sh#2", "fp8_recipe")
    trace = the_field(answer)
    assert trace.heard is not None
    assert (trace.heard.value, str(trace.heard.origin)) == ("blockwise", "run.sh:12:17")
    assert trace.written == "in run.sh:8:10"
    assert [(each.value, str(each.origin)) for each in trace.overridden] == [
        ("tensorwise", "run.sh:4:32")
    ]
    assert [(each.text, str(each.origin)) for each in answer.decisions] == [
        ('where not: [ "$BOARD" = b200 ]', "run.sh:5:4")
    ]
    assert next(each.item.value for each in trace.effects) == "blockwise"
    first = the_field(why("run.sh#1", "--fp8-recipe"))
    assert first.heard is not None and first.heard.value == "mxfp8"
    assert {"PP204", "PP906"} <= {each.id for each in first.findings}
    assert "PP204" not in {each.id for each in trace.findings}


def test_a_variable_of_the_job_replaces_the_export() -> None:
    answer = why("run.sh#2", "NVTE_DEBUG")
    trace = the_field(answer)
    assert trace.heard is not None and trace.heard.value == "1"
    assert trace.heard.origin.line == 11
    assert [(each.value, each.origin.line) for each in trace.overridden] == [("0", 3)]
    assert {each.value for each in answer.seen} == {"1"}


def test_what_is_not_known_is_said_as_it_is_written() -> None:
    trace = the_field(why("run.sh#1", "--num-layers"))
    assert trace.unknown and trace.heard is not None
    assert (trace.heard.value, trace.derived, trace.effects) == ("$LAYERS", (), ())
    text = render_why(why("run.sh#1", "num_layers"), "text")
    assert text.startswith("model.num_layers = $LAYERS (not known before the run)\n")
    assert "lowers to   not known" in text and "default" not in text
    data = json.loads(render_why(why("run.sh#1", "num_layers"), "json"))
    assert data["fields"][0]["unknown"] is True
    assert data["decisions"][0]["line"] == 5


def test_words_that_may_set_anything() -> None:
    Path("open.sh").write_text(
        "# precision-plan: framework=vime\n"
        "ray job submit -- python3 train.py --bf16 $(./more.sh) --num-layers 2\n"
    )
    answer = why("open.sh", "fp8_recipe")
    trace = the_field(answer)
    assert trace.unknown and trace.heard is None
    assert [(each.text, each.origin.line) for each in answer.open] == [("$(./more.sh)", 2)]
    assert "$(./more.sh) may hold any arguments" in render_why(answer, "text")
    known = the_field(why("open.sh", "bf16"))
    assert not known.unknown and known.heard is not None and known.heard.value is True


def test_a_launch_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "run.sh", "bf16"]) == 2
    assert "error[PP036]" in capsys.readouterr().out
    assert run(["why", "run.sh#2", "bf16x"]) == 2
    assert "nothing is known of 'bf16x'" in capsys.readouterr().err
    assert run(["lock", "run.sh"]) == 2
    assert "error[PP036]" in capsys.readouterr().err
    assert run(["lock", "run.sh#2", "training.bf16=false"]) == 2
    assert "overrides belong to a recipe" in capsys.readouterr().err


def test_a_lock_of_a_launch_keeps_what_is_not_known() -> None:
    text = lock("run.sh#2").text
    assert text is not None
    data = json.loads(text)
    assert data["unknown"] == ["model.num_layers"]
    assert data["plan"]["model"]["num_layers"] == "$LAYERS (not known before the run)"
    assert data["lowered"]["megatron"]["flags"]["--fp8-recipe"] == "blockwise"
    Path("run.lock").write_text(text)
    assert lock("run.sh#2").text == text
    same = lint_lock("run.sh#2", "run.lock")
    assert [each.id for each in same.diagnostics if each.id.startswith("PP03")] == []
    Path("run.sh").write_text(SCRIPT.replace("$LAYERS", "$DEPTH").replace("e4m3", "hybrid"))
    found = [each for each in lint_lock("run.sh#2", "run.lock").diagnostics if each.id == "PP030"]
    assert [(each.field, each.origin.line) for each in found] == [
        ("training.fp8_format", 4),
        ("model.num_layers", 12),
    ]


def test_a_launch_with_errors_is_not_locked() -> None:
    locked = lock("run.sh#1")
    assert locked.text is None
    assert "PP204" in {each.id for each in locked.report.diagnostics}

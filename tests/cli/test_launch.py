"""What launch.py prints and returns, short of starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.cli.launch import launch

CONF = Path(__file__).parents[2] / "conf"
CLEAN = "+recipe=qwen3-30b-fp8"


def test_a_dry_run_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch([CLEAN, "dry_run=true"], conf_dir=CONF) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("qwen3-30b-fp8  ")
    assert shown.err == ""


def test_errors_stop_it(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["dry_run=true"], []):
        assert launch([CLEAN, "training.fp16=true", *options], conf_dir=CONF) == 1
        shown = capsys.readouterr()
        assert "error[PP101]" in shown.out
        assert shown.err == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [([], "no launcher is configured"), (["launcher=ray"], "launcher=ray is not available")],
)
def test_nothing_is_started_and_that_is_said(
    options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch([CLEAN, *options], conf_dir=CONF) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("qwen3-30b-fp8  ")
    assert shown.err.startswith(f"nothing was started: {reason}\n")


def test_without_a_recipe_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(["dry_run=true"], conf_dir=CONF) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "+recipe=NAME chooses one of" in shown.err and "qwen3-30b-fp8" in shown.err


def test_an_unknown_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(["+recipe=qwen3-30b-fp9", "dry_run=true"], conf_dir=CONF) == 2
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "qwen3-30b-fp9"
    assert "there is no recipe named 'qwen3-30b-fp9'" in shown

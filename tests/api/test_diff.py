"""Comparing recipes and lock files, and locking them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.api import Side, compile, diff, lint_lock, lock

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
RECIPES = sorted(path.stem for path in (CONF / "recipes").glob("*.yaml"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def locked(recipe: str | Path, *overrides: str, name: str = "x.lock") -> Path:
    found = lock(recipe, overrides, conf_dir=CONF)
    assert found.text is not None
    path = Path(name)
    path.write_text(found.text)
    return path


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_can_be_locked_and_is_its_lock(recipe: str) -> None:
    path = locked(recipe)
    assert lock(recipe, conf_dir=CONF).text == path.read_text()
    report = lint_lock(recipe, path, conf_dir=CONF)
    assert [each.id for each in report.diagnostics if each.id.startswith("PP03")] == []
    found = diff(Side(path), Side(recipe), conf_dir=CONF)
    assert not found.differs and found.only_a == found.only_b == ()
    assert str(ROOT) not in path.read_text()


def test_a_side_may_be_something_compiled() -> None:
    compiled = compile("qwen3-4b-fp8", ["hardware=h200"], conf_dir=CONF)
    found = diff(Side("qwen3-4b-fp8"), compiled, conf_dir=CONF)
    assert [each.name for each in found.plan] == ["hardware.gpu"]
    assert not diff(compiled, found.b, conf_dir=CONF).differs


def test_positions_of_both_sides() -> None:
    found = diff(
        Side("qwen3-30b-fp8"), Side("qwen3-30b-fp8", ("training.fp8_recipe=tensorwise",)),
        conf_dir=CONF,
    )  # fmt: skip
    (change,) = found.plan
    assert change.before is not None and change.before.origin is not None
    assert change.before.origin.file.endswith("conf/training/fp8-blockwise.yaml")
    assert change.after is not None and change.after.origin is not None
    assert str(change.after.origin) == "training.fp8_recipe=tensorwise"
    assert found.b.name == "qwen3-30b-fp8 training.fp8_recipe=tensorwise"


def test_the_overrides_of_a_lock_are_applied() -> None:
    path = locked("qwen3-30b-fp8", "hardware=h200", "env.all.HF_TOKEN=abcdefghijk")
    assert "abcdefghijk" not in path.read_text()
    report = lint_lock("qwen3-30b-fp8", path, conf_dir=CONF)
    assert {each.id for each in report.diagnostics} == {"PP501", "PP606"}


def test_secrets_inside_an_override_are_hidden() -> None:
    path = locked("qwen3-30b-fp8", "+env.driver={HF_TOKEN: abc, OTHER: def}")
    (text,) = json.loads(path.read_text())["overrides"]
    assert text == "+env.driver={HF_TOKEN: ***, OTHER: def}"
    report = lint_lock("qwen3-30b-fp8", path, conf_dir=CONF)
    assert not [each for each in report.diagnostics if each.id.startswith("PP03")]


def test_a_plan_with_errors_is_not_locked() -> None:
    found = lock("qwen3-30b-fp8", ["training.fp16=true"], conf_dir=CONF)
    assert found.text is None
    assert "PP101" in {each.id for each in found.report.diagnostics}


def test_a_recipe_that_was_changed_since() -> None:
    recipe = Path("mine.yaml")
    recipe.write_text((CONF / "recipes" / "qwen3-30b-fp8.yaml").read_text())
    path = locked(recipe)
    recipe.write_text(
        recipe.read_text()
        .replace("override /optimizer: adam-cpu-offload", "override /optimizer: adam-fp8-states")
        .replace("moe_router_dtype: fp32", "moe_router_dtype: fp64")
    )
    report = lint_lock(recipe, path, conf_dir=CONF)
    found = {each.field: each for each in report.diagnostics if each.id == "PP030"}
    assert "training.moe_router_dtype" in found
    assert found["training.moe_router_dtype"].message.endswith("fp32 in the lock, fp64 today")
    assert str(found["training.moe_router_dtype"].origin) == "mine.yaml:40:3"
    resumed = [each for each in report.diagnostics if each.id in ("PP032", "PP033")]
    assert any("Adam first moment" in each.message for each in resumed)
    assert {str(each.origin) for each in resumed} == {"mine.yaml:65:3"}


def test_comments_titles_and_layout_are_not_the_plan() -> None:
    recipe = Path("mine.yaml")
    text = (CONF / "recipes" / "qwen3-30b-fp8.yaml").read_text()
    recipe.write_text(text)
    path = locked(recipe)
    recipe.write_text("# another comment\n\n" + text.replace("title: Qwen3", "title: My Qwen3"))
    found = diff(Side(path), Side(recipe), conf_dir=CONF)
    assert not found.differs
    assert [each.name for each in found.about] == ["title"]
    assert not [
        each
        for each in lint_lock(recipe, path, conf_dir=CONF).diagnostics
        if each.id.startswith("PP03")
    ]


def test_a_lock_may_have_any_name_and_a_recipe_that_of_no_lock() -> None:
    path = locked("qwen3-4b-fp8", name="plan.txt")
    assert diff(Side(path), Side("qwen3-4b-fp8"), conf_dir=CONF).a.kind == "lock"
    Path("r.lock").write_text("training: {bf16: true}\n")
    Path("r.json").write_text('{"training": {"bf16": true}}\n')
    broken = diff(Side("r.lock"), Side("./r.json"), conf_dir=CONF)
    assert [each.id for each in broken.a.diagnostics] == ["PP034"]
    assert broken.b.kind == "recipe" and not broken.b.broken

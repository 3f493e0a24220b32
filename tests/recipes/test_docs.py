"""docs/recipes.md: one row a recipe, as the recipes say."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "recipes.md"


def row(name, plan) -> str:
    """The table row of one recipe."""
    hardware = plan.hardware
    machines = f"{hardware.nodes} x {hardware.gpus_per_node} {hardware.gpu}"
    source = plan.recipe.source[0]
    cells = (f"`{name}`", plan.recipe.title, machines, plan.recipe.maturity, f"`{source}`")
    return f"| {' | '.join(cells)} |"


def test_row(recipe, plan):
    assert row(recipe, plan) in DOCS.read_text(encoding="utf-8").splitlines()


def test_no_row_without_a_recipe(conf):
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    named = {line.split("`")[1] for line in lines if line.startswith("| `")}
    assert named == {path.stem for path in (conf / "recipes").glob("*.yaml")}

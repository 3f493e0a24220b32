"""What the golden files of lowering hold: one JSON and one shell script per recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from precision_plan import api
from precision_plan.plan.compiled import Compiled
from precision_plan.render import json as as_json
from precision_plan.render import shell as as_shell

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden")
RECIPES = tuple(sorted(path.stem for path in (ROOT / "conf" / "recipes").glob("*.yaml")))


def compiled(recipe: str, *overrides: str) -> Compiled:
    """One of the project's recipes."""
    return api.compile(recipe, overrides, conf_dir=ROOT / "conf")


def json_text(plan: Compiled) -> str:
    """The lowering, the role table and the layers. Reasons of items are prose and left out."""
    data = json.loads(as_json.plan(plan))
    lowered: dict[str, dict[str, Any]] = data["lowered"]
    for target in lowered.values():
        target.pop("items")
    roles = [
        f"{role['name']}: {role['dtype']}, {role['bytes_per_element']} bytes, {role['origin']}"
        for role in data["roles"]
    ]
    layers = [
        f"{row['block']} {row['first']} to {row['last']}, {' '.join(row['modules']) or 'all'}: "
        f"{row['format']}, {row['evaluation']} in evaluation, {row['field']}"
        for row in data["layers"]
    ]
    return json.dumps({"lowered": lowered, "roles": roles, "layers": layers}, indent=1) + "\n"


def shell_text(plan: Compiled) -> str:
    """The rendering that a person would run."""
    return as_shell.plan(plan)

"""The way back: what a script says, against what the recipe that was imported from it lowers to.

The recipe is lowered, written as a script, and that script is read again. What a launch says is
compared as values of options and variables of each role, whatever their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from precision_plan.api import compile, import_script
from precision_plan.compose.choices import leaves
from precision_plan.plan.compiled import Compiled
from precision_plan.plan.given_target import TARGET_KEYS
from precision_plan.plan.imported import Imported
from precision_plan.render import render_plan


def target_of(compiled: Compiled) -> dict[str, str]:
    """What a recipe declares of its target, and a script says in a comment."""
    found = {}
    for key, field in TARGET_KEYS.items():
        value = compiled.plan.get(field)
        if value is not None and field.startswith(("hardware.", "software.")):
            found[key] = str(value)
    return found


def as_script(compiled: Compiled, path: Path) -> Path:
    """The lowered recipe as a script, be there errors or not."""
    path.write_text(render_plan(replace(compiled, diagnostics=()), "shell"), encoding="utf-8")
    return path


def flags(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """A command line as options with their values, sorted."""
    found: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not found:
            found.append([])
        found[-1].append(word.removeprefix("$PWD/"))
    return sorted(map(tuple, found))


def sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe says, without what it says of itself."""
    return {name: values for name, values in data.items() if name != "recipe"}


def settings_of(imported: Imported) -> dict[str, Any]:
    """Everything that a launch sets, by dotted key; the target is no part of it."""
    return {
        key: value
        for section, values in imported.data.items()
        if section not in ("recipe", "hardware", "software")
        for key, value in leaves(section, values)
    }


def again(imported: Imported, folder: Path, **options: Any) -> tuple[Imported, Compiled]:
    """Write the imported recipe, compile it, write what it lowers to, and import that."""
    recipe = folder / "imported.yaml"
    recipe.write_text(imported.text, encoding="utf-8")
    compiled = compile(recipe)
    assert compiled.lowering is not None, compiled.diagnostics
    script = as_script(compiled, folder / "again.sh")
    return import_script(script, target=target_of(compiled), **options), compiled


def explained(compiled: Compiled) -> set[str]:
    """The options and variables that are lowered for a fact and not for a field."""
    lowering = compiled.lowering
    assert lowering is not None
    items = (*lowering.megatron.items, *lowering.ray.items, *lowering.transformer_engine.items)
    return {item.name for item in items if item.reason.fact is not None}


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Keys of ``wanted`` that have another value in ``found``."""
    return {
        key: (value, found.get(key)) for key, value in wanted.items() if found.get(key) != value
    }

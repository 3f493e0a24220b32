"""The JSON Schema of a recipe: committed, and true to every shipped recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.plan import SECTIONS
from precision_plan.plan.schema import recipe_schema

ROOT = Path(__file__).parents[2]
FILE = ROOT / "schema" / "recipe.schema.json"
RECIPES = sorted((ROOT / "conf" / "recipes").glob("*.yaml"))
SCHEMA = recipe_schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
    "array": list, "object": dict,
}  # fmt: skip


def is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def mistakes(value: Any, schema: Any, where: str = "") -> Iterator[str]:
    """What draft 7 refuses, for the keywords that the schema uses."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from mistakes(value, SCHEMA["definitions"][name], where)
        return
    if "anyOf" in schema:
        if all(list(mistakes(value, choice, where)) for choice in schema["anyOf"]):
            yield f"{where}: {value!r} is none of {schema['anyOf']}"
        return
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_of(value, kind) for kind in kinds):
        yield f"{where}: {value!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not in {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if is_of(value, "number"):
        yield from out_of_range(value, schema, where)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from mistakes(item, schema.get("items", {}), f"{where}[{number}]")
    if isinstance(value, dict):
        rest = schema.get("additionalProperties", True)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, rest)
            if inner is False:
                yield f"{where}.{key} is not known"
            elif inner is not True:
                yield from mistakes(item, inner, f"{where}.{key}")


def out_of_range(value: float, schema: Any, where: str) -> Iterator[str]:
    if value < schema.get("minimum", value) or value > schema.get("maximum", value):
        yield f"{where}: {value} is out of range"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{where}: {value} is out of range"


def test_the_committed_schema_is_up_to_date(committed) -> None:
    committed(FILE, json.dumps(SCHEMA, indent=2) + "\n")


def test_every_section_is_there() -> None:
    assert list(SCHEMA["properties"]) == ["defaults", "recipe", *SECTIONS]
    assert SCHEMA["definitions"]["Training"]["properties"].keys() >= {"fp8_format", "fp4_recipe"}


def test_descriptions_come_from_the_facts() -> None:
    training = SCHEMA["definitions"]["Training"]["properties"]
    assert training["fp8_format"]["description"].startswith(
        "--fp8-format: turns FP8 on: e4m3 for every tensor, or hybrid with e5m2 for output "
        "gradients. Megatron 0.12.0 and later."
    )
    assert training["max_tokens_per_gpu"]["description"] == (
        "--max-tokens-per-gpu: tokens of a micro batch on one GPU with use_dynamic_batch_size. "
        "Read by vime, slime, miles."
    )
    assert training["fp8_block_scaling_fp32_scales"]["description"].startswith(
        "NVTE_FP8_BLOCK_SCALING_FP32_SCALES: 1 keeps unrestricted FP32 scales"
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_conform(path: Path) -> None:
    assert list(mistakes(yaml.safe_load(path.read_text()), SCHEMA)) == []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_name_the_schema(path: Path) -> None:
    match = re.search(r"^# yaml-language-server: \$schema=(\S+)$", path.read_text(), re.MULTILINE)
    assert match is not None
    assert (path.parent / match[1]).resolve() == FILE


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"trainig": {}}, ".trainig is not known"),
        ({"training": {"fp8_formt": "e4m3"}}, ".training.fp8_formt is not known"),
        ({"training": {"fp8_format": "e5m2"}}, ".training.fp8_format: 'e5m2' is none of"),
        ({"training": {"bf16": "yes"}}, ".training.bf16: 'yes' is none of"),
        ({"hardware": {"nodes": 0}}, ".hardware.nodes: 0 is none of"),
        ({"env": {"all": {"A": True}}}, ".env.all: {'A': True} is none of"),
        ({"defaults": [{"a": "b", "c": {}}]}, ".defaults[0]"),
    ],
)
def test_mistakes_are_seen(recipe: dict[str, Any], message: str) -> None:
    assert any(found.startswith(message) for found in mistakes(recipe, SCHEMA))


@pytest.mark.parametrize(
    "recipe",
    [
        {"launch": {"actor_num_nodes": "${hardware.nodes}"}},
        {"training": {"fp8_format": None}},
        {"env": {"all": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}}},
        {"hardware": {"gpu": "a-gpu-of-tomorrow"}},
        {"rollout": {"kv_cache_dtype_skip_layers": ["sliding_window"]}},
    ],
)
def test_what_a_recipe_may_say(recipe: dict[str, Any]) -> None:
    assert list(mistakes(recipe, SCHEMA)) == []

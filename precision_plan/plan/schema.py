"""JSON Schema of a recipe, made from the plan's types for editors to complete and check with.

Draft 7, which is what YAML language servers know best. Every description says which flag or
variable a field becomes and what that decides, from facts/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from precision_plan.facts.env_vars import env_var
from precision_plan.facts.frameworks import RL_FRAMEWORKS, framework_flags
from precision_plan.facts.gpus import gpus
from precision_plan.facts.megatron import megatron_flags
from precision_plan.facts.megatron_shape import shape_flags
from precision_plan.facts.vllm import engine_args
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.precision_plan import PrecisionPlan

_IGNORED = ("title", "default")
_ELSEWHERE = {"$ref": "#/definitions/Elsewhere"}


def recipe_schema() -> dict[str, Any]:
    """The schema of a recipe file: the plan's sections, a ``recipe`` block and a defaults list."""
    schema = PrecisionPlan.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs")
    definitions.pop("Origin")
    properties = {
        name: {"$ref": value["$ref"]}
        for name, value in schema["properties"].items()
        if name != "origins"
    }
    prefixes = _prefixes(properties, definitions)
    about = dict(_descriptions())
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "precision_plan recipe",
        "description": "Every precision decision of one run. A key that is absent is not set: "
        "it never means a program's default.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"defaults": {"$ref": "#/definitions/Defaults"}, **properties},
        "definitions": {
            "Defaults": _DEFAULTS,
            "Elsewhere": {
                "type": ["string", "null"],
                "pattern": r"\$\{.+\}",
                "description": "${section.key} is the value of another key, null is not set",
            },
            **{
                name: _section(definition, prefixes[name], about)
                for name, definition in definitions.items()
            },
        },
    }


_DEFAULTS = {
    "description": "Group choices and configs that this recipe builds on, as Hydra reads them.",
    "type": "array",
    "items": {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": {
                    "anyOf": [
                        {"type": ["string", "null"]},
                        {"type": "array", "items": {"type": "string"}},
                    ]
                },
            },
        ]
    },
}


def _prefixes(properties: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, str]:
    """Where each definition stands in the plan: ``training.te_precision_config.configs``."""
    found: dict[str, str] = {}
    pending = [(name, value) for name, value in properties.items()]
    while pending:
        path, node = pending.pop()
        for name in _references(node):
            if name not in found:
                found[name] = path
                inner = definitions[name]["properties"].items()
                pending.extend((f"{path}.{key}", value) for key, value in inner)
    return found


def _references(node: Any) -> Iterator[str]:
    """Names of the definitions that a schema refers to."""
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _section(
    definition: Mapping[str, Any], section: str, about: Mapping[str, str]
) -> dict[str, Any]:
    properties = {}
    for name, value in definition["properties"].items():
        field = f"{section}.{name}"
        shape = _shape(field, value)
        if field in about:
            shape = {"description": about[field], **shape}
        properties[name] = shape
    text = " ".join(definition.get("description", "").replace("``", "`").split())
    return {
        "type": "object",
        "description": text,
        "additionalProperties": False,
        "properties": properties,
    }


def _shape(field: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A field's schema; an interpolation, or ``null`` for *not set*, may stand for any value."""
    choices = [_clean(choice) for choice in value.get("anyOf", [value])]
    choices = [choice for choice in choices if choice != {"type": "null"}]
    if field == "hardware.gpu":
        choices.insert(0, {"enum": sorted(gpus())})
    for choice in choices:
        if field.startswith("env."):  # Ray takes texts; a number is written as its text
            choice["additionalProperties"] = {"type": ["string", "number"]}
    if choices == [{"type": "string"}]:
        return {"type": ["string", "null"]}
    return {"anyOf": [*choices, _ELSEWHERE]}


def _clean(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if key not in _IGNORED}


# Descriptions ---------------------------------------------------------------------------------
def _descriptions() -> Iterator[tuple[str, str]]:
    """Field and what it becomes; a later line replaces an earlier one."""
    yield (
        "training.te_precision_config",
        "Becomes a file for --te-precision-config-file. Megatron 0.16.0 and later.",
    )
    for framework in RL_FRAMEWORKS:
        for field, argument in framework_flags(framework).items():
            read_by = "Read by " + ", ".join(argument.frameworks)
            yield field, _text(_named(argument.flags, argument.meaning), read_by, argument.note)
    for field, engine in engine_args().items():
        yield field, _text(_named([engine.flag], engine.effect))
    for flag in (*shape_flags(), *megatron_flags()):
        versions = None if flag.versions.is_open else f"Megatron {flag.versions}"
        yield flag.field, _text(_named(flag.flags, flag.meaning), versions, flag.note)
    for field, name in FIELD_VARIABLES.items():
        variable = env_var(name)
        yield field, _text(_named([name], variable.meaning if variable else ""))


def _named(names: Iterable[str], meaning: str) -> str:
    """``--fp8-format: turns FP8 on``."""
    spelt = " ".join(names)
    return f"{spelt}: {meaning}" if meaning else spelt


def _text(*parts: str | None) -> str:
    """Sentences from the parts that there are."""
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)

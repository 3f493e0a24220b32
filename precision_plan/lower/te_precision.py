"""Plan -> the file for ``--te-precision-config-file``, where the plan holds its content.

The text is the same for equal plans: keys in Megatron's order, one recipe a line, and what decides
written out (a matcher that is off says so).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason
from precision_plan.plan.te_precision import (
    TeMatcher,
    TePrecisionConfig,
    TeQuantizationParams,
    TeQuantizationRecipe,
)

FILE_NAME = "te_precision.yaml"

_FIELD = "training.te_precision_config"
_PATH_FIELD = "training.te_precision_config_file"

# Texts that every YAML reader takes for texts without quotes. Words that are booleans, null or
# numbers to some reader do not fit or are excluded by name.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def precision_file(context: Context) -> Mapping[str, str]:
    """Content by file name; empty where the plan names a file of its own, or has none."""
    config = context.plan.training.te_precision_config
    if config is None or not _is_used(context):
        return {}
    return {FILE_NAME: file_text(config)}


def precision_file_items(context: Context) -> Iterator[tuple[MegatronFlag, Item]]:
    """The argument that names the file."""
    if context.plan.training.te_precision_config is not None and _is_used(context):
        flag = context.flags[_PATH_FIELD]
        reason = Reason(f"{_FIELD}, written out as a file", field=_FIELD)
        yield flag, Item(flag.flags[0], FILE_NAME, reason)


def _is_used(context: Context) -> bool:
    training = context.plan.training
    return training.te_precision_config_file is None and _PATH_FIELD in context.flags


def file_text(config: TePrecisionConfig) -> str:
    """The YAML text of a per-module configuration, as Megatron reads it."""
    lines = ["configs:" if config.configs else "configs: {}"]
    for name, params in (config.configs or {}).items():
        lines += _params(name, params)
    lines.append("matchers:" if config.matchers else "matchers: {}")
    for name, matcher in (config.matchers or {}).items():
        lines += _matcher(name, matcher)
    return "\n".join(lines) + "\n"


def _params(name: str, params: TeQuantizationParams) -> Iterator[str]:
    yield f"  {_scalar(name)}:"
    yield "    transformer_engine_config_type: TEQuantizationParams"
    for key, recipe in params.recipes():
        yield f"    {key}: {_recipe(recipe)}"


def _recipe(recipe: TeQuantizationRecipe) -> str:
    pairs = ", ".join(f"{name}: {_scalar(value)}" for name, value in recipe.set_items())
    return f"{{{pairs}}}"


def _matcher(name: str, matcher: TeMatcher) -> Iterator[str]:
    yield f"  {_scalar(name)}:"
    for key in ("config", "pattern"):
        value = getattr(matcher, key)
        if value is not None:
            yield f"    {key}: {_scalar(value)}"
    yield "    type: glob"
    yield f"    enabled: {_scalar(bool(matcher.enabled))}"


def _scalar(value: Any) -> str:
    """A boolean or a text; one that could be read as something else is quoted."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    """One character between double quotes; what is not printable ASCII is written by number."""
    if " " <= char <= "~":
        return f"\\{char}" if char in '"\\' else char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

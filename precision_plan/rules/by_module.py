"""What the rules about per-module precision share: the configuration, and how to speak of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from precision_plan.facts.transformer_engine import recipe_class
from precision_plan.plan import Because
from precision_plan.plan.layer_map import INLINE
from precision_plan.plan.te_precision import TePrecisionConfig, TeQuantizationRecipe

if TYPE_CHECKING:
    from precision_plan.rules.base import Context

SINCE = "0.16.0"
"""First Megatron version with ``--te-precision-config-file``."""


def configuration(ctx: Context) -> TePrecisionConfig | None:
    """The configuration that the plan holds, where the declared Megatron can read one.

    None if the plan names a file, too: that is another finding, and the file goes first.
    """
    training = ctx.plan.training
    config = training.te_precision_config
    if config is None or training.te_precision_config_file is not None:
        return None
    if not ctx.trains or not ctx.core_since(SINCE) or ctx.target.framework == "megadlm":
        return None
    return config


def used_recipes(ctx: Context) -> Iterator[tuple[str, TeQuantizationRecipe]]:
    """Recipes of the configurations that a matcher asks for, by their plan field.

    Megatron reads no others.
    """
    config = configuration(ctx)
    if config is None:
        return
    for name, params in config.used().items():
        for key, recipe in params.recipes():
            yield f"{INLINE}.configs.{name}.{key}", recipe


def selector(recipe: TeQuantizationRecipe) -> tuple[str, str]:
    """Key and value that choose the format of a recipe that quantizes."""
    if recipe.fp4_quantization_recipe is not None:
        return "fp4_quantization_recipe", recipe.fp4_quantization_recipe
    return "fp8_quantization_recipe", str(recipe.fp8_quantization_recipe)


def class_of(recipe: TeQuantizationRecipe) -> str | None:
    """Recipe class that Megatron builds; ``None`` for the base format."""
    return recipe_class(recipe.fp8_quantization_recipe, recipe.fp4_quantization_recipe)


def asked_by(config: TePrecisionConfig, field: str) -> Because:
    """The first matcher that asks for the configuration which ``field`` lies in."""
    for name, matcher in config.active():
        if field.startswith(f"{INLINE}.configs.{matcher.config}."):
            return Because(f"matcher {name} gives it to {matcher.pattern}", matcher_field(name))
    return Because("no matcher asks for it", INLINE)


def matcher_field(name: str) -> str:
    """Plan field of a matcher."""
    return f"{INLINE}.matchers.{name}"

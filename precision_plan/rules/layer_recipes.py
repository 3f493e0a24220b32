"""PP152 to PP154 and PP158: recipes that Megatron gives to no module."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.by_module import SINCE, asked_by, configuration, used_recipes
from precision_plan.rules.sources import core, megatron

_ENGINE = "core/extensions/transformer_engine.py"


@rule(
    "PP152",
    "delayed-scaling-by-module",
    "error",
    stage="build",
    source=(megatron(f"{_ENGINE}:138-139"),),
)
def delayed(ctx: Context) -> Iterator[Finding]:
    """Single modules cannot use delayed scaling.

    Why:
        Delayed scaling reduces amax histories when the FP8 context of the whole model closes; a
        context around one module would reduce the wrong ones. Megatron raises ValueError when it
        gives the configuration to a module.

    Bad:
        training:
          te_precision_config:
            configs: {old: {training_recipe: {fp8_quantization_recipe: delayed}}}
            matchers: {all: {config: old, pattern: "*", enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {new: {training_recipe: {fp8_quantization_recipe: tensorwise}}}
            matchers: {all: {config: new, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for field, recipe in used_recipes(ctx):
        if config is not None and recipe.fp8_quantization_recipe == "delayed":
            at = f"{field}.fp8_quantization_recipe"
            yield ctx.found(
                "delayed scaling cannot be given to single modules",
                at,
                asked_by(config, field),
                fix=(set_to((at, "tensorwise")),),
            )


@rule(
    "PP153",
    "two-recipes-for-one-module",
    "error",
    stage="build",
    source=(megatron(f"{_ENGINE}:140-144"),),
)
def two_recipes(ctx: Context) -> Iterator[Finding]:
    """A module computes in FP8 or in FP4, not in both.

    Why:
        A configuration that names an FP8 and an FP4 recipe says nothing. Megatron raises
        ValueError when it gives the configuration to a module.

    Bad:
        training:
          te_precision_config:
            configs:
              both:
                training_recipe: {fp8_quantization_recipe: mxfp8, fp4_quantization_recipe: nvfp4}
            matchers: {all: {config: both, pattern: "*", enabled: true}}

    Good:
        training:
          bf16: true
          fp4_format: e2m1
          te_precision_config:
            configs: {mxfp8: {training_recipe: {fp8_quantization_recipe: mxfp8}}}
            matchers: {fc2: {config: mxfp8, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for field, recipe in used_recipes(ctx):
        fp8, fp4 = recipe.fp8_quantization_recipe, recipe.fp4_quantization_recipe
        if config is not None and fp8 is not None and fp4 is not None:
            yield ctx.found(
                f"a module cannot compute in {fp8} and in {fp4}",
                f"{field}.fp4_quantization_recipe",
                Because(f"fp8_quantization_recipe = {fp8}", f"{field}.fp8_quantization_recipe"),
                asked_by(config, field),
                fix=(
                    set_to((f"{field}.fp8_quantization_recipe", None)),
                    set_to((f"{field}.fp4_quantization_recipe", None)),
                ),
            )


@rule(
    "PP154",
    "custom-module-recipe-needs-factory",
    "error",
    stage="build",
    source=(megatron(f"{_ENGINE}:145-150"),),
)
def custom_factory(ctx: Context) -> Iterator[Finding]:
    """A custom recipe for single modules is nothing without its factory.

    Why:
        ``custom`` builds TE's CustomRecipe from the function that ``custom_recipe_factory``
        names; the factories of the model's own recipe do not count. Megatron raises ValueError
        when it gives the configuration to a module.

    Bad:
        training:
          te_precision_config:
            configs: {own: {training_recipe: {fp8_quantization_recipe: custom}}}
            matchers: {all: {config: own, pattern: "*", enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs:
              own:
                training_recipe:
                  fp8_quantization_recipe: custom
                  custom_recipe_factory: my_package.quantizers.factory
            matchers: {all: {config: own, pattern: "*", enabled: true}}
    """
    config = configuration(ctx)
    for field, recipe in used_recipes(ctx):
        chosen = (recipe.fp8_quantization_recipe, recipe.fp4_quantization_recipe)
        if config is None or "custom" not in chosen or recipe.custom_recipe_factory is not None:
            continue
        key = "fp8_quantization_recipe" if chosen[0] == "custom" else "fp4_quantization_recipe"
        yield ctx.found(
            f"{key} = custom needs custom_recipe_factory",
            f"{field}.{key}",
            asked_by(config, field),
            fix=(Fix(f"{field}.custom_recipe_factory: package.module.function"),),
        )


@rule(
    "PP158",
    "module-parameters-before-0-18",
    "error",
    stage="build",
    source=(megatron(f"{_ENGINE}:134-136"), megatron(f"{_ENGINE}:130-137", "core_v0.18.2")),
    versions=core(SINCE, "0.17"),
)
def parameters(ctx: Context) -> Iterator[Finding]:
    """Quantized parameters of single modules need Megatron 0.18.

    Why:
        ``fp8_param`` and ``fp4_param`` came with 0.18.0. Earlier versions raise ValueError for
        a key that they do not know when they give the configuration to a module.

    Bad:
        software: {megatron_core: 0.16.1}
        training:
          te_precision_config:
            configs:
              mxfp8: {training_recipe: {fp8_quantization_recipe: mxfp8, fp8_param: true}}
            matchers: {all: {config: mxfp8, pattern: "*", enabled: true}}

    Good:
        software: {megatron_core: 0.16.1}
        training:
          fp8_format: e4m3
          fp8_recipe: tensorwise
          te_precision_config:
            configs: {mxfp8: {training_recipe: {fp8_quantization_recipe: mxfp8}}}
            matchers: {fc2: {config: mxfp8, pattern: "*.linear_fc2", enabled: true}}
    """
    for field, recipe in used_recipes(ctx):
        for key in ("fp8_param", "fp4_param"):
            if getattr(recipe, key) is not None:
                yield ctx.found(
                    f"Megatron {ctx.target.package('megatron_core')} does not know {key}",
                    f"{field}.{key}",
                    "software.megatron_core",
                    fix=(
                        set_to((f"{field}.{key}", None)),
                        set_to(("software.megatron_core", "0.18.0"), also=" or later"),
                    ),
                )


RULES: tuple[Rule, ...] = (
    delayed,
    two_recipes,
    custom_factory,
    parameters,
)

"""PP150, PP151, PP155 to PP157, PP159: where per-module precision is given, what it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.plan.layer_map import FILE, INLINE
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.by_module import (
    SINCE,
    configuration,
    matcher_field,
)
from precision_plan.rules.sources import arguments, megatron

_ENGINE = "core/extensions/transformer_engine.py"
_CONFIG = "core/quantization/quant_config.py"


@rule(
    "PP150",
    "module-precision-given-twice",
    "error",
    stage="policy",
    source=(arguments("1380-1383"),),
)
def given_twice(ctx: Context) -> Found:
    """Per-module precision is held by the recipe or by a file, not by both.

    Why:
        Megatron takes one ``--te-precision-config-file``. A configuration in the recipe becomes
        that file, so a second one beside it would not be read.

    Bad:
        training:
          te_precision_config_file: te.yaml
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {all: {config: bf16, pattern: "*", enabled: true}}

    Good:
        training: {te_precision_config_file: te.yaml}
    """
    training = ctx.plan.training
    if training.te_precision_config is None or training.te_precision_config_file is None:
        return None
    return ctx.found(
        f"{INLINE} and {FILE} are both set; Megatron reads one file",
        INLINE,
        FILE,
        fix=(set_to((FILE, None)), set_to((INLINE, None))),
    )


@rule(
    "PP151",
    "module-precision-before-0-16",
    "error",
    stage="parse",
    source=(arguments(1403), megatron(f"{_ENGINE}:82")),
)
def too_old(ctx: Context) -> Found:
    """Per-module precision needs Megatron 0.16.

    Why:
        ``--te-precision-config-file`` came with 0.16.0. Earlier versions, and MegaDLM's fork of
        0.10, know no other way to give single modules another recipe; lowering leaves the
        configuration out there.

    Bad:
        software: {megatron_core: 0.15.3}
        training:
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {all: {config: bf16, pattern: "*", enabled: true}}

    Good:
        software: {megatron_core: 0.16.1}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    if ctx.plan.training.te_precision_config is None or not ctx.trains:
        return None
    forked = ctx.target.framework == "megadlm"
    if ctx.core_since(SINCE) and not forked:
        return None
    program = "MegaDLM" if forked else f"Megatron {ctx.target.package('megatron_core')}"
    return ctx.found(
        f"{program} has no --te-precision-config-file for {INLINE}",
        INLINE,
        "software.framework" if forked else "software.megatron_core",
        fix=(
            set_to((INLINE, None)),
            *(() if forked else (set_to(("software.megatron_core", SINCE), also=" or later"),)),
        ),
    )


@rule(
    "PP155",
    "module-configuration-without-recipe",
    "error",
    stage="build",
    source=(megatron(f"{_ENGINE}:185-188"),),
)
def without_recipe(ctx: Context) -> Iterator[Finding]:
    """A configuration for modules must hold a training_recipe, be it empty.

    Why:
        ``training_recipe: {}`` means the base format. A configuration without the key raises
        ValueError when Megatron gives it to a module; so does a key that holds nothing.

    Bad:
        training:
          te_precision_config:
            configs: {bf16: {evaluation_recipe: {}}}
            matchers: {all: {config: bf16, pattern: "*", enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for name, params in config.used().items() if config is not None else ():
        if params.training_recipe is None:
            field = f"{INLINE}.configs.{name}"
            yield ctx.found(
                f"configuration {name} has no training_recipe",
                field,
                Because("an empty one means the base format"),
                fix=(set_to((f"{field}.training_recipe", {})),),
            )


@rule(
    "PP156",
    "matcher-of-unknown-configuration",
    "error",
    stage="build",
    source=(megatron(f"{_CONFIG}:224-228"),),
)
def unknown_configuration(ctx: Context) -> Iterator[Finding]:
    """A matcher asks for a configuration that is not there.

    Why:
        Megatron looks the name up when the matcher fits a module, and stops with a KeyError
        while it builds the model.

    Bad:
        training:
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {all: {config: bfloat16, pattern: "*", enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    known = tuple((config.configs or {}) if config is not None else ())
    for name, matcher in config.active() if config is not None else ():
        if matcher.config is None or matcher.config in known:
            continue
        field = f"{matcher_field(name)}.config"
        yield ctx.found(
            f"matcher {name} asks for {matcher.config}, which is no configuration",
            field,
            Because(f"configurations: {', '.join(known) or 'none'}", f"{INLINE}.configs"),
            fix=tuple(set_to((field, one)) for one in known[:2])
            or (Fix(f"add {INLINE}.configs.{matcher.config}"),),
        )


@rule(
    "PP157",
    "matcher-incomplete",
    "error",
    stage="transformer_config",
    source=(megatron(f"{_CONFIG}:157-161"), arguments(1383)),
)
def incomplete(ctx: Context) -> Iterator[Finding]:
    """A matcher needs a pattern and the name of a configuration.

    Why:
        Megatron asserts both for every matcher that is switched on, when it loads the file.

    Bad:
        training:
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {all: {config: bf16, enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for name, matcher in config.active() if config is not None else ():
        for key in ("pattern", "config"):
            if getattr(matcher, key) is None:
                field = matcher_field(name)
                yield ctx.found(
                    f"matcher {name} has no {key}",
                    field,
                    fix=(Fix(f"add {field}.{key}"), set_to((f"{field}.enabled", False))),
                )


@rule(
    "PP159",
    "kitchen-recipe",
    "error",
    stage="parse",
    source=(
        arguments("3321-3336", "core_v0.15.0"),
        megatron("core/extensions/kitchen.py:111-112", "core_v0.15.3"),
    ),
)
def kitchen(ctx: Context) -> Found:
    """Kitchen takes a configuration file or the number of a recipe, which counts from 1.

    Why:
        ``--kitchen-config-file`` and ``--kitchen-recipe-number`` exclude each other in the
        parser. A number below 1 raises ValueError when the first module is built.

    Bad:
        software: {megatron_core: 0.15.3}
        training: {kitchen_config_file: kitchen.yaml, kitchen_recipe_number: 6}

    Good:
        software: {megatron_core: 0.15.3}
        training: {kitchen_recipe_number: 6}
    """
    training, number = ctx.plan.training, "training.kitchen_recipe_number"
    if training.kitchen_recipe_number is None:
        return None
    if training.kitchen_config_file is not None:
        other = "training.kitchen_config_file"
        return ctx.found(
            f"{number} and {other} exclude each other",
            number,
            other,
            fix=(set_to((other, None)), set_to((number, None))),
        )
    if training.kitchen_recipe_number < 1:
        return ctx.found(
            f"{ctx.shown(number)} is no recipe: their numbers begin at 1",
            number,
            fix=(set_to((number, None)),),
            stage="build",
        )
    return None


RULES: tuple[Rule, ...] = (
    given_twice,
    too_old,
    without_recipe,
    unknown_configuration,
    incomplete,
    kitchen,
)

"""PP160 to PP164: which modules the matchers of a per-module configuration reach."""

from __future__ import annotations

import re
from collections.abc import Iterator

from precision_plan.facts.te_modules import module_names
from precision_plan.plan import Because, Fix
from precision_plan.plan.layer_map import INLINE
from precision_plan.plan.model_modules import EXPERT, ModelModules, model_modules
from precision_plan.plan.pipeline import stages
from precision_plan.plan.te_precision import TeMatcher, TePrecisionConfig
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.by_module import configuration, matcher_field, used_recipes
from precision_plan.rules.sources import megatron

_CONFIG = "core/quantization/quant_config.py"
_NUMBER = re.compile(r"layers\.(\d+)")


@rule(
    "PP160",
    "matcher-switched-off",
    "warning",
    stage="run",
    source=(megatron(f"{_CONFIG}:148-151"),),
)
def switched_off(ctx: Context) -> Iterator[Finding]:
    """A matcher that does not say ``enabled: true`` is switched off.

    Why:
        Megatron's default is off. The matcher is passed over without a message, and the modules
        that it names keep the model's recipe or go to a later matcher.

    Bad:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2"}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    for name, matcher in (config.matchers or {}).items() if config is not None else ():
        if matcher.enabled is None:
            field = f"{matcher_field(name)}.enabled"
            yield ctx.found(
                f"matcher {name} is off: it does not say enabled: true",
                matcher_field(name),
                fix=(set_to((field, True)), set_to((field, False), also=" if that is meant")),
            )


@rule(
    "PP161",
    "matcher-decides-nothing",
    "warning",
    stage="run",
    source=(megatron(f"{_CONFIG}:200-216"), megatron("core/models/gpt/gpt_model.py:263-266")),
)
def decides_nothing(ctx: Context) -> Iterator[Finding]:
    """A matcher fits no module of the model, or only modules that an earlier one takes.

    Why:
        A pattern is compared with the whole name, as ``decoder.layers.0.mlp.linear_fc1``; the
        first matcher that fits decides. A misspelt name, a layer that is not there or a ``*``
        further up leaves a matcher without effect, and Megatron says so in its log alone.
        Embedding, output layer, router and norms are no modules that a recipe reaches.

    Bad:
        model: {num_layers: 4}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "mlp.linear_fc2", enabled: true}}

    Good:
        model: {num_layers: 4}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.mlp.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    modules = model_modules(ctx.plan, ctx.effective) if config is not None else None
    if config is None or modules is None or not modules.complete:
        return
    for name, matcher in config.active():
        if matcher.pattern is None:
            continue
        reached = next(filter(matcher.fits, modules.full_names()), None)
        if reached is None:
            if not _fits_elsewhere(matcher, modules):
                yield _fits_nothing(ctx, name, matcher, modules)
        elif not _decides(config, name, matcher, modules):
            earlier = config.match(reached)
            assert earlier is not None
            yield ctx.found(
                f"matcher {name} decides nothing: earlier ones take every module that it fits",
                matcher_field(name),
                Because(f"{earlier[0]}: {earlier[1].pattern}", matcher_field(earlier[0])),
                fix=(Fix(f"write it before {earlier[0]}"), set_to((matcher_field(name), None))),
            )


def _decides(
    config: TePrecisionConfig, name: str, matcher: TeMatcher, modules: ModelModules
) -> bool:
    """True if the matcher is the first one that fits some module."""
    reached = filter(matcher.fits, modules.full_names())
    return any((found := config.match(module)) and found[0] == name for module in reached)


def _numbers(modules: ModelModules) -> set[int]:
    """The numbers that decoder layers have in their names."""
    layers = range(len(modules.decoder))
    return {number for layer in layers for number in modules.numbers(layer)}


def _fits_elsewhere(matcher: TeMatcher, modules: ModelModules) -> bool:
    """True if a part of a model is meant that the plan does not describe."""
    names = module_names(("elsewhere",), "HEAD")
    return any(
        matcher.fits(f"decoder.layers.{number}.{name}")
        for number in _numbers(modules)
        for name in names
    )


def _fits_nothing(ctx: Context, name: str, matcher: TeMatcher, modules: ModelModules) -> Finding:
    pattern = str(matcher.pattern)
    premise = Because(f"names look like decoder.layers.0.{modules.decoder[0][0]}")
    number, numbers = _NUMBER.search(pattern), _numbers(modules)
    if number is not None and int(number[1]) not in numbers:
        where = "each pipeline stage" if stages(ctx.plan) > 1 else "the model"
        premise = Because(f"the layers of {where} are numbered 0 to {max(numbers)}")
    return ctx.found(
        f"matcher {name} fits no module of the model: {pattern}",
        matcher_field(name),
        premise,
        "model.num_layers",
        fix=(*_suggestions(name, pattern, modules), set_to((matcher_field(name), None))),
    )


def _suggestions(name: str, pattern: str, modules: ModelModules) -> Iterator[Fix]:
    """The pattern from the end of a name, or with the most similar name of a module."""
    from difflib import get_close_matches

    field = f"{matcher_field(name)}.pattern"
    head, dot, last = pattern.rpartition(".")
    known = {module.rpartition(".")[2] for layer in modules.decoder for module in layer}
    close = get_close_matches(last, known, n=1, cutoff=0.75)
    wider = [f"*.{pattern.lstrip('*.')}", *(f"{head}{dot}{one}" for one in close), f"*.{last}"]
    for text in dict.fromkeys(wider):
        if any(map(TeMatcher(pattern=text).fits, modules.full_names())):
            yield set_to((field, text))
            return


@rule(
    "PP162",
    "layer-number-counts-in-stage",
    "warning",
    stage="run",
    source=(
        megatron("core/models/gpt/gpt_model.py:263-266"),
        megatron("core/transformer/transformer_layer.py:39-175"),
    ),
)
def counts_in_stage(ctx: Context) -> Iterator[Finding]:
    """With pipeline parallelism, a layer's number in a pattern counts inside each stage.

    Why:
        Every rank numbers the layers that it holds from 0, and matchers see these names:
        ``decoder.layers.0`` is the first layer of every stage, and of every chunk of a virtual
        pipeline. ``--first-last-layers-bf16`` counts through the whole model.

    Bad:
        model: {num_layers: 8}
        parallel: {pipeline_model_parallel_size: 2}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {first: {config: bf16, pattern: "decoder.layers.0.*", enabled: true}}

    Good:
        model: {num_layers: 8}
        parallel: {pipeline_model_parallel_size: 2}
        training:
          {fp8_format: e4m3, fp8_recipe: mxfp8, first_last_layers_bf16: true,
           num_layers_at_end_in_bf16: 0}
    """
    config = configuration(ctx)
    if config is None or stages(ctx.plan) == 1:
        return
    modules = model_modules(ctx.plan, ctx.effective)
    if modules is None or modules.indices is None:
        return
    for name, matcher in config.active():
        layers = [
            layer
            for layer, names in enumerate(modules.decoder)
            if any(
                matcher.fits(f"decoder.layers.{modules.indices[layer]}.{each.replace(EXPERT, '0')}")
                for each in names
            )
        ]
        numbers = {modules.indices[layer] for layer in layers}
        if numbers == set(modules.indices) or len(layers) == len(numbers):
            continue
        shown = ", ".join(map(str, layers[:8])) + (", ..." if len(layers) > 8 else "")
        yield ctx.found(
            f"matcher {name} reaches decoder layers {shown}: numbers count inside a stage",
            matcher_field(name),
            Because(f"pattern {matcher.pattern}", f"{matcher_field(name)}.pattern"),
            "parallel.pipeline_model_parallel_size",
            fix=(
                Fix("name modules without numbers"),
                set_to(("training.first_last_layers_bf16", True), also=" for the ends"),
            ),
        )


@rule(
    "PP163",
    "module-precision-without-effect",
    "warning",
    stage="run",
    source=(megatron("core/extensions/transformer_engine.py:205-216"),),
)
def without_effect(ctx: Context) -> Found:
    """Recipes for single modules replace the model's, and the model has none.

    Why:
        A configuration holds where the model's own recipe quantizes; elsewhere only with
        ``override_nonquantized_autocast: true``. In a model that trains in its base format every
        module stays as it is, whatever the configuration says.

    Bad:
        training:
          bf16: true
          te_precision_config:
            configs: {mxfp8: {training_recipe: {fp8_quantization_recipe: mxfp8}}}
            matchers: {fc2: {config: mxfp8, pattern: "*.linear_fc2", enabled: true}}

    Good:
        training:
          bf16: true
          te_precision_config:
            configs:
              mxfp8:
                training_recipe:
                  {fp8_quantization_recipe: mxfp8, override_nonquantized_autocast: true}
            matchers: {fc2: {config: mxfp8, pattern: "*.linear_fc2", enabled: true}}
    """
    if configuration(ctx) is None:
        return None
    quantized = bool(ctx.args.fp8 or ctx.args.fp4)
    recipes = tuple(used_recipes(ctx))
    if not recipes or any(recipe.overrides(quantized) for _, recipe in recipes):
        return None
    if quantized:
        field = f"{recipes[0][0]}.override_quantized_autocast"
        return ctx.found(
            f"{INLINE} changes nothing: no recipe overrides the model's",
            INLINE,
            Because("override_quantized_autocast = false", field),
            fix=(set_to((field, None)), set_to((INLINE, None))),
        )
    keeps = not any(recipe.quantizes for _, recipe in recipes)
    wanted = next((field for field, recipe in recipes if recipe.quantizes), recipes[0][0])
    return ctx.found(
        f"{INLINE} changes nothing: the model trains in its base format",
        INLINE,
        "training.fp8_format",
        "training.fp4_format",
        fix=(
            *(() if keeps else (set_to((f"{wanted}.override_nonquantized_autocast", True)),)),
            set_to((INLINE, None)),
        ),
    )


@rule(
    "PP164",
    "module-configuration-unused",
    "advice",
    stage="run",
    source=(megatron(f"{_CONFIG}:218-228"),),
)
def unused(ctx: Context) -> Iterator[Finding]:
    """No matcher asks for a configuration.

    Why:
        Megatron neither uses nor checks it: a leftover, or a matcher is missing.

    Bad:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}, tw: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}

    Good:
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {fc2: {config: bf16, pattern: "*.linear_fc2", enabled: true}}
    """
    config = configuration(ctx)
    if config is None:
        return
    named = {matcher.config for matcher in (config.matchers or {}).values()}
    if not named <= {None, *(config.configs or {})}:
        return  # a misspelt name is the cause, and has a finding of its own
    for name in config.configs or {}:
        if name not in named:
            field = f"{INLINE}.configs.{name}"
            yield ctx.found(
                f"no matcher asks for configuration {name}",
                field,
                fix=(set_to((field, None)), Fix("name it in a matcher that is enabled")),
            )


RULES: tuple[Rule, ...] = (
    switched_off,
    decides_nothing,
    counts_in_stage,
    without_effect,
    unused,
)

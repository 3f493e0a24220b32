"""Plan -> Transformer Engine: the recipe that Megatron builds, and the variables TE reads.

Megatron hands a recipe class only a few arguments; the other fields take their values from
``NVTE_*`` variables when TE is imported, so those are lowered to the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.facts.transformer_engine import (
    BlockScaleRow,
    TeRecipe,
    block_scale_rows,
    recipe_class,
    te_recipes,
)
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason
from precision_plan.plan.environment import FIELD_VARIABLES, env_text
from precision_plan.plan.lowering import TransformerEngineLowering

BLOCK_SCALES = "NVTE_FP8_BLOCK_SCALING_FP32_SCALES"

_FRAMEWORK_DEFAULT = "THUDM/slime@624b824a:slime/ray/actor_group.py:68"
_BUILDER = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/fp8_utils.py:573-640"
_DELAYED = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/extensions/transformer_engine.py:2217"

_FROM_ENVIRONMENT = frozenset(
    field
    for field, name in FIELD_VARIABLES.items()
    if field.startswith("training.") and name.startswith("NVTE_")
)


def recipe_of(context: Context) -> TeRecipe | None:
    """The recipe class that the trainer builds; ``None`` if no GEMM is quantized.

    MegaDLM's Megatron knows delayed scaling only.
    """
    if not context.trains:
        return None
    fp4 = context.get("training.fp4_format") is not None
    if not fp4 and context.get("training.fp8_format") is None:
        return None
    if context.framework == "megadlm":
        return None if fp4 else te_recipes()["DelayedScaling"]
    if fp4:
        name = recipe_class(fp4_recipe=context.argument("fp4_recipe"))
    else:
        name = recipe_class(fp8_recipe=context.argument("fp8_recipe"))
    return te_recipes()[name] if name is not None else None


def transformer_engine(context: Context) -> TransformerEngineLowering:
    """The recipe, its keywords and TE's variables, each with its reason."""
    recipe = recipe_of(context)
    keywords = tuple(_keywords(context, recipe)) if recipe is not None else ()
    variables = te_variables(context)
    return TransformerEngineLowering(
        recipe=recipe.name if recipe is not None else None,
        kwargs=MappingProxyType({item.name: item.value for item in keywords}),
        env=MappingProxyType({item.name: item.value for item in variables}),
        items=(*keywords, *variables),
    )


def _keywords(context: Context, recipe: TeRecipe) -> Iterator[Item]:
    """What Megatron's builder passes, as far as the class of the declared TE has the field.

    TE ignores an unknown keyword without a word, so one that is gone is not lowered.
    """
    for item in _builder_keywords(context, recipe):
        if item.name in _fields(context, recipe):
            yield item


def _fields(context: Context, recipe: TeRecipe) -> Mapping[str, Any]:
    declared = context.target.package("transformer_engine")
    if declared is not None:
        return recipe.fields_at(declared)
    return {field.name: field for field in recipe.fields if field.versions.until is None}


def _builder_keywords(context: Context, recipe: TeRecipe) -> Iterator[Item]:
    if recipe.name == "CustomRecipe":
        fp4 = context.get("training.fp4_format") is not None
        field = f"training.{'fp4' if fp4 else 'fp8'}_quantizer_factory"
        if context.get(field) is not None:
            yield Item("qfactory", context.get(field), Reason(field, field=field))
        return
    if recipe.selector == "fp8_recipe":
        yield Item(
            "fp8_format",
            str(context.get("training.fp8_format")).upper(),
            Reason("training.fp8_format", field="training.fp8_format"),
        )
    if recipe.name == "DelayedScaling":
        yield from _delayed_keywords(context)
    if recipe.name in ("DelayedScaling", "Float8CurrentScaling"):
        because = "Megatron passes its fp8_dot_product_attention, which no flag can turn on"
        yield Item("fp8_dpa", False, Reason(because, fact=_BUILDER))


def _delayed_keywords(context: Context) -> Iterator[Item]:
    for name in ("margin", "amax_history_len", "amax_compute_algo"):
        field = f"training.fp8_{name}"
        given = context.get(field) is not None
        reason = (
            Reason(field, field=field)
            if given
            else Reason("Megatron's default, which replaces TE's", fact=_DELAYED)
        )
        yield Item(name, context.argument(f"fp8_{name}"), reason)


def te_variables(context: Context) -> tuple[Item, ...]:
    """``NVTE_*`` variables from plan fields, and the block scales where nothing sets them."""
    if not context.trains:
        return ()
    items = [
        Item(FIELD_VARIABLES[field], env_text(context.get(field)), Reason(field, field))
        for field in FIELD_VARIABLES
        if field in _FROM_ENVIRONMENT and context.get(field) is not None
    ]
    if all(item.name != BLOCK_SCALES for item in items):
        items.extend(_block_scales(context))
    return tuple(items)


def _block_scales(context: Context) -> Iterator[Item]:
    """FP32 or power-of-two block scales, from the declared GPU and never from the driver's."""
    recipe = recipe_of(context)
    if recipe is None or recipe.name != "Float8BlockScaling" or _declared(context):
        return
    row = _block_scale_row(context)
    if row is None or not row.allowed:
        return
    gpu = context.target.gpu or "{}.{}".format(*(context.target.compute_capability or ()))
    if not row.fp32_scales:
        because = f"FP32 scales do not work on {gpu}: {row.effect}"
        yield Item(BLOCK_SCALES, "0", Reason(because, fact=row.source))
    elif context.is_rl:
        because = f"{gpu}: the framework's own default, written out so that every process has it"
        yield Item(BLOCK_SCALES, "1", Reason(because, fact=_FRAMEWORK_DEFAULT))
    else:
        because = f"{gpu}: TE's own default (power-of-two scales), written out"
        yield Item(BLOCK_SCALES, "0", Reason(because, fact=row.source))


def _declared(context: Context) -> bool:
    """True if the ``env`` section already gives the variable to the train actor."""
    env = context.plan.env
    return any(BLOCK_SCALES in (scope or {}) for scope in (env.all, env.train_actor))


def _block_scale_row(context: Context) -> BlockScaleRow | None:
    capability = context.target.compute_capability
    declared = context.target.package("transformer_engine")
    if capability is None:
        return None
    for row in block_scale_rows():
        known = row.versions.until is None if declared is None else declared in row.versions
        if known and row.covers(capability):
            return row
    return None

"""Plan -> Megatron's command line: what the plan sets, and what would be decided in silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.lower import megadlm
from precision_plan.lower.context import Context
from precision_plan.lower.inference import inference_items
from precision_plan.lower.spelling import flag_item, text
from precision_plan.lower.te_precision import precision_file_items
from precision_plan.plan import SECTIONS, Item, Reason

Flagged = tuple[MegatronFlag, Item]

_NEEDS_EXPERTS = frozenset({"moe_token_dispatcher_type", "moe_router_padding_for_quantization"})
"""Silent decisions that mean nothing for a dense model."""

_NO_NEWS = frozenset({"align_param_gather"})
"""Silent decisions about the order of communication, which no format depends on."""

_CONFIG = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py"

_WRITTEN_OUT = {
    "training.transformer_impl": (
        "only Transformer Engine layers quantize their GEMMs; the default is written out",
        f"{_CONFIG}:880",
    ),
    "training.fp8_recipe": (
        "the recipe decides the scaling; the default is written out",
        f"{_CONFIG}:436",
    ),
    "training.fp4_recipe": (
        "the recipe decides the scaling; the default is written out",
        f"{_CONFIG}:516",
    ),
}
"""Defaults that a low-precision job depends on: plan field -> why, and where they stand."""


def megatron_items(context: Context) -> tuple[Item, ...]:
    """Every flag of the trainer that the plan needs, grouped by the plan's sections.

    Only flags of the declared Megatron version (or of MegaDLM's parsers) are used; a field that
    has none there is left out.
    """
    if not context.trains:
        return ()
    flagged = [
        *_from_plan(context),
        *precision_file_items(context),
        *_written_out(context),
    ]
    if context.infers:
        flagged += inference_items(context)
    elif context.framework == "megadlm":
        flagged += megadlm.silent_items(context)
    else:
        flagged += _silent(context)
    return _by_section(flagged)


def _by_section(flagged: Iterable[Flagged]) -> tuple[Item, ...]:
    found = [(flag.field.partition(".")[0], item) for flag, item in flagged]
    return tuple(item for section in SECTIONS for owner, item in found if owner == section)


def _from_plan(context: Context) -> Iterator[Flagged]:
    for field, value in context.fields.items():
        flag = context.flags.get(field)
        if flag is None:
            continue
        item = flag_item(flag, value, Reason(f"{field} = {text(value)}", field=field))
        if item is not None:
            yield flag, item


def _written_out(context: Context) -> Iterator[Flagged]:
    fp8 = context.get("training.fp8_format") is not None
    fp4 = context.get("training.fp4_format") is not None
    wanted = {
        "training.transformer_impl": fp8 or fp4,
        "training.fp8_recipe": fp8,
        "training.fp4_recipe": fp4,
    }
    for field, (because, source) in _WRITTEN_OUT.items():
        flag = context.flags.get(field)
        if flag is None or not wanted[field] or context.get(field) is not None:
            continue
        item = flag_item(flag, flag.default, Reason(because, fact=source))
        if item is not None:
            yield flag, item


def _silent(context: Context) -> Iterator[Flagged]:
    """What the framework or Megatron would set by itself and a flag can say."""
    resolved = context.effective
    by_dest = {flag.dest: flag for flag in context.flags.values()}
    last_step = {override.dest: override.step for override in resolved.overrides}
    for dest, step in last_step.items():
        flag = by_dest.get(dest)
        after: Any = getattr(resolved.args, dest)
        if flag is None or dest in _NO_NEWS or dest in resolved.given:
            continue
        if after == getattr(resolved.parsed, dest):
            continue
        if dest in _NEEDS_EXPERTS and context.get("model.num_experts") is None:
            continue
        item = flag_item(flag, after, Reason(step.because, fact=step.source))
        if item is not None:
            yield flag, item

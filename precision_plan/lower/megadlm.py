"""MegaDLM: a fork of Megatron-LM 0.10, with silent decisions of its own."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.lower.context import Context
from precision_plan.lower.spelling import flag_item
from precision_plan.plan import Item, Reason

_SOURCE = "JinjieNi/MegaDLMs@bdf75459:megatron"

_SILENT = {
    "training.accumulate_allreduce_grads_in_fp32": (
        "bf16 accumulates and reduces gradients in fp32 unless main grads are bf16",
        f"{_SOURCE}/training/arguments.py:437",
    ),
    "training.check_for_nan_in_loss_and_grad": (
        "overflow is the normal signal of dynamic loss scaling",
        f"{_SOURCE}/training/arguments.py:421",
    ),
}
"""Plan field -> why MegaDLM decides it by itself, and where."""


def silent_items(context: Context) -> Iterator[tuple[MegatronFlag, Item]]:
    """What MegaDLM's ``validate_args`` would change without being asked."""
    for field, (because, source) in _SILENT.items():
        flag = context.flags[field]
        after = context.argument(flag.dest)
        if context.get(field) is not None or after == flag.default:
            continue
        item = flag_item(flag, after, Reason(because, fact=source))
        if item is not None:
            yield flag, item

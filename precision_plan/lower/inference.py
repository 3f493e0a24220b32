"""Plan -> inference with Megatron or MegaDLM: quantization and dtype in their parsers' spelling.

Documents speak of ``--quantization`` and ``--dtype``; no parser has either. The quantization is
ModelOpt's ``--export-quant-cfg``, and the dtype is the base format, ``--fp16`` or ``--bf16``.
"""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason


def inference_items(context: Context) -> Iterator[tuple[MegatronFlag, Item]]:
    """The flags of ``inference.quantization`` and ``inference.dtype``; FP32 needs none."""
    quantization = context.get("inference.quantization")
    flag = context.flags.get("inference.export_quant_cfg")
    if flag and quantization and context.get("inference.export_quant_cfg") is None:
        because = "there is no --quantization flag; the choice belongs to this one"
        yield flag, Item(flag.flags[0], quantization, Reason(because, "inference.quantization"))
    dtype = context.get("inference.dtype")
    flag = context.flags.get(f"training.{dtype}")
    if flag and context.get(f"training.{dtype}") is not True:
        because = "there is no --dtype flag; the base format says it"
        yield flag, Item(flag.flags[0], True, Reason(because, "inference.dtype"))

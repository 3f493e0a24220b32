"""Which tensor parallel sizes a checkpoint takes under vLLM, by its headers and configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import gcd, lcm
from typing import NamedTuple

from precision_plan.facts.checkpoint_contracts import Contract
from precision_plan.facts.sharding import ScaleCut, sharded_layers, sharded_scales
from precision_plan.rules.checkpoint_table import (
    WIDE,
    CheckpointLayers,
    Group,
    Tensors,
    is_encoder,
    quantized,
)

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Tensor parallel sizes that are tried; of threes, those that some checkpoints take."""

ATTENTION = "attention"
"""The cut of the query heads, of which the engine's own configuration speaks too."""

_DECODER = re.compile(r"(?:(?:model|language_model|backbone)\.){0,3}layers\.\d+\.(?P<inside>.+)")
_EXPERTS = re.compile(r"(?:^|\.)experts(?:\.\d+)?$")
_SHARED = re.compile(r"(?:^|\.)shared_experts?$")
_VOCABULARY = 64  # rows that the embedding is padded to, before it is divided
_FINEST = 32  # side of the smallest block that a refined scale may cover


class Cut(NamedTuple):
    """One size that is divided by a number of ranks.

    Each rank's part is a multiple of ``unit``, on one rank only if ``alone``; or, where ``finer``
    is set, has a common divisor of 32 and more with it. ``heads`` is the number of heads
    that make up ``size``: fewer heads than ranks are copied. ``experts`` is set for what expert
    parallelism keeps whole, ``shared`` for the experts of every token.
    """

    layer: str
    what: str
    size: int
    unit: int = 1
    alone: bool = False
    finer: int = 0
    heads: int = 0
    experts: bool = False
    shared: bool = False

    def fault(self, ranks: int) -> str | None:
        """Why vLLM does not divide this by ``ranks``; ``None`` if it does."""
        pieces = ranks
        if self.heads:
            if max(self.heads, ranks) % min(self.heads, ranks):
                return f"{self.heads} {self.what} are neither shared nor copied by {ranks} ranks"
            pieces = min(self.heads, ranks)
        if self.size % pieces:
            return f"{self.size} {self.what} / {ranks} is not whole"
        part = self.size // pieces
        if part % self.unit == 0 or (ranks == 1 and not self.alone):
            return None
        if self.finer and gcd(part, self.finer) >= _FINEST:
            return None
        what = f"{part * self.heads // self.size} {self.what}" if self.heads else self.what
        shown = (
            f"{what}: {part} outputs" if self.heads else f"{self.size} {what} / {ranks} = {part}"
        )
        return f"{shown}, not a multiple of {self.unit}"


class Parallel(NamedTuple):
    """What is parallel beside the tensors; ranks of data parallelism share experts."""

    data: int = 1
    experts: bool = False


def ranks_of(cut: Cut, tensor: int, parallel: Parallel) -> int:
    """Over how many ranks ``cut`` is divided; 1 if it is kept whole."""
    if cut.experts:
        return 1 if parallel.experts else tensor * parallel.data
    if cut.shared and parallel.experts and parallel.data > 1:
        return 1  # some token exchanges keep them whole, others do not
    return tensor


def faults(cuts: Iterable[Cut], tensor: int, parallel: Parallel) -> Iterator[tuple[Cut, str]]:
    """What vLLM refuses, or loads wrongly, at this tensor parallel size."""
    for cut in cuts:
        found = cut.fault(ranks_of(cut, tensor, parallel))
        if found is not None:
            yield cut, f"{cut.layer}: {found}"


def legal_parallel_sizes(
    cuts: Iterable[Cut], parallel: Parallel, sizes: Iterable[int] = SIZES
) -> tuple[int, ...]:
    """The tensor parallel sizes at which no part is cut where it must not be."""
    known = tuple(cuts)
    return tuple(size for size in sizes if next(faults(known, size, parallel), None) is None)


# From headers to cuts ---------------------------------------------------------------------------
class Engine(NamedTuple):
    """What differs between vLLM's versions and settings.

    ``refines``: uneven blocks of experts are split into finer ones. ``pads``: the experts'
    kernel was chosen by hand, and some of them pad. ``merged``: merged outputs are checked.
    """

    refines: bool = True
    pads: bool = False
    merged: bool = True


def cuts_of(layers: CheckpointLayers, engine: Engine) -> tuple[Cut, ...]:
    """Every cut of the language model that vLLM makes; alike ones once."""
    found = dict.fromkeys(_of_config(layers))
    for group in layers.groups:
        kinds = tuple(_kinds(layers, group))
        shape, contract = _shape(layers, group.tensors) if kinds else (None, None)
        if shape is None:
            continue
        for name in kinds:
            found.update(dict.fromkeys(_cuts(layers, name, shape, contract, engine)))
    return tuple(found)


def settled(layers: CheckpointLayers, cuts: Iterable[Cut], experts: bool) -> bool:
    """True if headers tell where scales of the experts, or of other layers, may be cut."""
    if layers.contract is None:
        return False
    where: ScaleCut = "experts" if experts else "inputs"
    known = (layers.contract.format, where) in sharded_scales()
    return known and any(cut.experts == experts and cut.what == "inputs" for cut in cuts)


def _of_config(layers: CheckpointLayers) -> Iterator[Cut]:
    heads = _number(layers, "num_attention_heads")
    if heads is not None:
        yield Cut(ATTENTION, "heads", heads)
    size = _number(layers, "vocab_size")
    if size is not None and any(name.endswith("embed_tokens") for name in layers.modules):
        padded = -(-size // _VOCABULARY) * _VOCABULARY
        yield Cut("embed_tokens", "rows (padded)", padded)


def _kinds(layers: CheckpointLayers, group: Group) -> Iterator[str]:
    """One layer of each kind among alike ones."""
    seen: set[tuple[str, str]] = set()
    for name in group.names:
        parent, _, last = name.rpartition(".")
        if last not in sharded_layers():
            continue
        match = _DECODER.fullmatch(parent)
        if match is None:
            continue
        inside = "experts" if _EXPERTS.search(parent) else match["inside"]
        if (inside, last) not in seen and not is_encoder(name) and not layers.is_mtp(name):
            seen.add((inside, last))
            yield name


def _shape(
    layers: CheckpointLayers, tensors: Tensors
) -> tuple[tuple[int, int] | None, Contract | None]:
    """``(outputs, inputs)`` of a layer, and the contract if it is quantized by it.

    Nothing is known of layers whose scales fit on no number of ranks: that is another fault.
    """
    contract = layers.contract
    if not quantized(tensors):
        head = tensors.get("weight")
        if head is None or head.dtype not in WIDE or len(head.shape) != 2:
            return None, None
        return (head.shape[0], head.shape[1]), None
    head = tensors.get(contract.weight.name) if contract is not None else None
    if contract is None or head is None or head.dtype not in contract.weight.dtypes:
        return None, None
    shape = contract.inputs(head.shape)
    reordered = layers.quantization.get("desc_act") or "weight_g_idx" in tensors
    if shape is None or reordered:  # ranks may then hold the scales of every group
        return None, None
    if any(contract.shape(each, *shape) is None for each in contract.others):
        return None, None
    return shape, contract


def _cuts(
    layers: CheckpointLayers,
    name: str,
    shape: tuple[int, int],
    contract: Contract | None,
    engine: Engine,
) -> Iterator[Cut]:
    parent, _, last = name.rpartition(".")
    row, inside = sharded_layers()[last], parent.rpartition(".")[2]
    if row.cut == "none" or (row.parents and inside not in row.parents):
        return
    (rows, columns), shared = shape, _SHARED.search(parent) is not None
    if _EXPERTS.search(parent):
        if row.cut == "inputs":
            yield _expert_cut(f"experts.{last}", rows, columns, contract, engine)
        return
    label = f"{inside}.{last}"
    if row.cut == "inputs":
        yield Cut(label, "inputs", columns, *_unit(contract, "inputs"), shared=shared)
    elif row.cut == "outputs" or f"{parent}.kv_a_proj_with_mqa" in layers.modules:
        yield Cut(label, "outputs", rows, *_unit(contract, "outputs"))
    else:
        unit, alone = _unit(contract if engine.merged else None, "merged")
        alone = alone and row.cut not in {"value", "second"}  # the last of the merged ones
        if row.cut not in {"key", "value"}:
            yield Cut(label, "outputs", rows, unit, alone, shared=shared)
            return
        heads = _number(layers, "num_key_value_heads")
        if heads is not None and heads * (_head_size(layers, row.cut) or 0) == rows:
            yield Cut(label, "key-value heads", rows, unit, alone, heads=heads)


def _head_size(layers: CheckpointLayers, cut: str) -> int | None:
    hidden, heads = _number(layers, "hidden_size"), _number(layers, "num_attention_heads")
    whole = _number(layers, "v_head_dim") if cut == "value" else None
    return whole or _number(layers, "head_dim") or (hidden // heads if hidden and heads else None)


def _expert_cut(
    label: str, hidden: int, size: int, contract: Contract | None, engine: Engine
) -> Cut:
    row = sharded_scales().get((contract.format, "experts")) if contract else None
    if contract is None or row is None or (row.refined_since and engine.pads):
        return Cut(label, "inputs", size, experts=True)
    finer = gcd(*contract.block, hidden) if row.refined_since and engine.refines else 0
    unit = lcm(*contract.block) if row.alone else contract.shared
    return Cut(label, "inputs", size, unit, row.alone, finer, experts=True)


def _unit(contract: Contract | None, where: ScaleCut) -> tuple[int, bool]:
    """What each rank's part is a multiple of, and whether one rank is judged by it too."""
    row = sharded_scales().get((contract.format, where)) if contract is not None else None
    if row is None or contract is None:
        return 1, False
    return (contract.shared if where == "inputs" else contract.block[0]), row.alone


def experts_of(layers: CheckpointLayers) -> int | None:
    """How many routed experts each layer holds; ``None`` if they differ or are not numbered."""
    last: dict[str, int] = {}
    for name in layers.modules:
        front, dot, rest = name.partition(".experts.")
        number = rest.partition(".")[0] if dot else ""
        if number.isdecimal() and int(number) >= last.get(front, 0):
            last[front] = int(number) + 1
    counts = {
        count for front, count in last.items() if not layers.is_mtp(front) and not is_encoder(front)
    }
    return counts.pop() if len(counts) == 1 else None


def _number(layers: CheckpointLayers, key: str) -> int | None:
    value = layers.files.text_config.get(key)
    return value if type(value) is int and value > 0 else None

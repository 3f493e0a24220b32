"""Names of the linear modules that Transformer Engine can quantize, inside a Megatron layer.

These are the modules that a per-module precision file can name. Embedding, output layer, router
and norms are no such modules: they compute in the base format.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import EVERY_VERSION, VersionRange

ModuleKind = Literal[
    "attention",
    "mla",
    "mla_q",
    "mla_q_lora",
    "dense",
    "grouped_experts",
    "single_experts",
    "shared_experts",
    "mtp",
    "mtp_layer",
    "elsewhere",
]


class TeModule(NamedTuple):
    """One module, by its path below ``decoder.layers.N`` (kind ``mtp``: below ``mtp.layers.N``).

    ``kind`` is the part of a model that has it: ``mla_q`` and ``mla_q_lora`` are latent attention
    without and with a low-rank query, ``mtp_layer`` is the prefix of the transformer layer inside
    a multi-token prediction layer, ``elsewhere`` are parts that a plan does not describe.
    ``{expert}`` in a name stands for the number of an expert on its rank.
    """

    name: str
    kind: ModuleKind
    source: str
    versions: VersionRange = EVERY_VERSION
    note: str | None = None


@lru_cache(maxsize=1)
def te_modules() -> tuple[TeModule, ...]:
    """Every module, in the order of a forward pass."""
    return tuple(record(TeModule, row) for row in table("te_modules"))


@lru_cache(maxsize=256)
def module_names(kinds: Iterable[ModuleKind], megatron_core: str) -> tuple[str, ...]:
    """Names of the modules of these ``kinds`` (a hashable collection) at one Megatron version."""
    wanted = frozenset(kinds)
    return tuple(
        module.name
        for module in te_modules()
        if module.kind in wanted and megatron_core in module.versions
    )

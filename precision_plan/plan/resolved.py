"""The arguments that a run would end up with, in Megatron's names and values."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from precision_plan.facts.megatron import flags_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from precision_plan.plan.effective import Effective

TORCH_DTYPES: Mapping[str, str] = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "uint8",
}
"""``dtype_map`` of Megatron's ``validate_args``: FP8 moments are stored as bytes.

Source: NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py (validate_args).
"""

_MAPPED = (
    "params_dtype",
    "main_grads_dtype",
    "main_params_dtype",
    "exp_avg_dtype",
    "exp_avg_sq_dtype",
)
"""Dests that ``validate_args`` turns into torch dtypes."""


@lru_cache(maxsize=32)
def _dests(megatron_core: str) -> tuple[str, ...]:
    return tuple(flags_at(megatron_core))


def resolved(effective: Effective) -> dict[str, Any]:
    """``{dest: value}`` of every precision flag that exists at the version, and ``params_dtype``.

    Values are those after silent overrides; dtypes are torch's names (``bfloat16``). What is not
    known is left out.
    """
    values = vars(effective.args)
    dests = (*_dests(effective.megatron_core), "params_dtype")
    found = {dest: values[dest] for dest in dests if dest in values}
    for dest in _MAPPED:
        if dest in found:
            found[dest] = TORCH_DTYPES.get(found[dest], found[dest])
    return found

"""Which keys of a Hugging Face ``config.json`` hold which architecture fact."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from precision_plan.facts._load import record, table

KeyKind = Literal["positive", "count", "number", "text", "flag", "dtype"]


class ConfigKeys(NamedTuple):
    """One plan field of ``model`` and the keys that hold it, in the order they are looked up.

    ``kind`` is what a value must be to count: ``positive`` and ``count`` are whole numbers from
    one and from nought.
    """

    field: str
    keys: tuple[str, ...]
    kind: KeyKind
    source: str


@lru_cache(maxsize=1)
def config_keys() -> tuple[ConfigKeys, ...]:
    """Every fact that stands under one key."""
    return tuple(record(ConfigKeys, row) for row in table("hf_config_keys"))


class ModelType(NamedTuple):
    """What a ``model_type``'s configuration class adds to a ``config.json`` that is silent.

    ``head_dim`` is ``derived`` from the hidden size and the heads, or a number of its own
    (``None``: not known). ``experts`` is the default number of experts. ``mla`` is True where
    vLLM treats the type as latent attention if ``kv_lora_rank`` is there.
    """

    model_type: str
    source: str
    head_dim: int | Literal["derived"] | None = None
    experts: int = 0
    mla: bool = False


@lru_cache(maxsize=1)
def model_types() -> Mapping[str, ModelType]:
    """Every model type that was looked at, by name."""
    rows = (record(ModelType, row) for row in table("hf_model_types"))
    return MappingProxyType({row.model_type: row for row in rows})

"""What decides in vLLM 0.33.0 whether a model can draft its own tokens or be cut into stages."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import record, table


class DraftMethod(NamedTuple):
    """One ``method`` of ``--speculative-config``; ``own_layers``: the served model drafts."""

    method: str
    source: str
    own_layers: bool = False


class Predictor(NamedTuple):
    """A family whose checkpoints may hold draft layers, by model type or by architecture.

    ``needs`` is a key of config.json that must be a positive number for it.
    """

    source: str
    model_type: str | None = None
    architecture: str | None = None
    needs: str | None = None


@lru_cache(maxsize=1)
def draft_methods() -> dict[str, DraftMethod]:
    """Every method by its name."""
    return {row["method"]: record(DraftMethod, row) for row in table("vllm_speculative")}


@lru_cache(maxsize=1)
def predictors() -> tuple[Predictor, ...]:
    """Every family with draft layers of its own."""
    return tuple(record(Predictor, row) for row in table("vllm_predictors"))


@lru_cache(maxsize=1)
def one_stage_models() -> frozenset[str]:
    """Text generation architectures without pipeline parallelism."""
    return frozenset(row["architecture"] for row in table("vllm_one_stage"))


@lru_cache(maxsize=2)
def replaying_models(kda: bool = False) -> frozenset[str]:
    """Architectures that can replay their recurrent state; ``kda``: those of Kimi's linear kind."""
    rows = table("vllm_replaying")
    return frozenset(row["architecture"] for row in rows if row.get("kda") or not kda)

"""Model types whose router vLLM computes in FP32."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange


class EngineRouter(NamedTuple):
    """One model type: the router's dtype, and the releases of vLLM that compute it so.

    An open range means that no release is known that did otherwise.
    """

    hf_model_type: str
    router_dtype: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=64)
def fp32_router(hf_model_type: str) -> EngineRouter | None:
    """The row of a model type; ``None`` where the router is not known to be in FP32."""
    for row in table("engine_routers"):
        if row["hf_model_type"] == hf_model_type:
            return record(EngineRouter, row)
    return None

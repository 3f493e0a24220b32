"""Every rule, by id. Explicit on purpose: a rule that is not listed here does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from precision_plan.rules.base import Rule


@lru_cache(maxsize=1)
def rules() -> Mapping[str, Rule]:
    """All rules by id, in order of their id.

    Raises:
        ValueError: if an id or a slug is used twice.
    """
    from precision_plan.rules import (
        determinism,
        distributed,
        environment,
        environment_values,
        fp4,
        fp8,
        fp8_params,
        fsdp,
        graphs,
        hardware,
        hardware_limits,
        inference,
        int4_qat,
        moe,
        nvfp4_qat,
        optimizer,
        pairing,
        recompute,
        shapes,
        shapes_rollout,
        sharding,
        te_recipes,
        training,
        weight_sync,
    )

    families = (
        training,
        fp8,
        fp8_params,
        hardware,
        hardware_limits,
        int4_qat,
        nvfp4_qat,
        pairing,
        weight_sync,
        environment,
        environment_values,
        fp4,
        te_recipes,
        optimizer,
        distributed,
        fsdp,
        sharding,
        inference,
        shapes,
        shapes_rollout,
        moe,
        recompute,
        graphs,
        determinism,
    )
    found: dict[str, Rule] = {}
    slugs: set[str] = set()
    for family in families:
        for rule in family.RULES:
            if rule.id in found or rule.slug in slugs:
                raise ValueError(f"rule {rule.id} {rule.slug} is declared twice")
            found[rule.id] = rule
            slugs.add(rule.slug)
    return MappingProxyType(dict(sorted(found.items())))

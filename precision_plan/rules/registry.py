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
        checkpoint,
        checkpoint_files,
        checkpoint_index,
        checkpoint_layers,
        checkpoint_numbers,
        checkpoint_paths,
        checkpoint_recipe,
        checkpoint_shards,
        determinism,
        dispatcher,
        distributed,
        emerging,
        environment,
        environment_engine,
        environment_values,
        extra_args,
        fake_qat,
        fp4,
        fp8,
        fp8_params,
        framework,
        fsdp,
        graph_recompute,
        graph_scopes,
        graphs,
        hardware,
        hardware_limits,
        inference,
        int4_qat,
        kernels,
        kv_cache,
        kv_scales,
        layer_matching,
        layer_numerics,
        layer_pairing,
        layer_recipes,
        layers,
        legacy,
        moe,
        moe_options,
        nvfp4_qat,
        offloading,
        optimizer,
        optimizer_dtypes,
        overrides,
        overrides_sharding,
        pairing,
        pairing_dtypes,
        process_groups,
        recipe,
        recompute,
        rollout,
        rollout_hardware,
        rollout_moe,
        shapes,
        shapes_rollout,
        sharding,
        state_cache,
        te_recipes,
        torch_fsdp,
        training,
        unused,
        unused_optimizer,
        versions,
        weight_sync,
        weight_sync_modes,
    )

    families = (
        training,
        fp8,
        fp8_params,
        hardware,
        hardware_limits,
        int4_qat,
        fake_qat,
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
        versions,
        rollout,
        rollout_hardware,
        kv_cache,
        state_cache,
        rollout_moe,
        overrides,
        unused,
        emerging,
        torch_fsdp,
        kernels,
        moe_options,
        optimizer_dtypes,
        overrides_sharding,
        offloading,
        unused_optimizer,
        checkpoint,
        checkpoint_layers,
        checkpoint_paths,
        checkpoint_files,
        checkpoint_index,
        checkpoint_shards,
        checkpoint_recipe,
        framework,
        weight_sync_modes,
        kv_scales,
        checkpoint_numbers,
        graph_recompute,
        graph_scopes,
        dispatcher,
        legacy,
        pairing_dtypes,
        layers,
        layer_recipes,
        layer_matching,
        layer_numerics,
        layer_pairing,
        process_groups,
        recipe,
        extra_args,
        environment_engine,
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

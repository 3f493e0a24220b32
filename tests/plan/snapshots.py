"""Snapshots of plans that are made up, for the tests of comparing and locking."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from precision_plan.lower import lower
from precision_plan.plan import Diagnostic, PrecisionPlan
from precision_plan.plan.compiled import Compiled
from precision_plan.plan.snapshot import Snapshot, snapshot_of

BASE: dict[str, dict[str, Any]] = {
    "software": {"framework": "vime", "megatron_core": "0.16.1", "transformer_engine": "2.10.0"},
    "hardware": {"gpu": "h100", "nodes": 1, "gpus_per_node": 8},
    "model": {"num_layers": 4, "hidden_size": 256},
    "training": {"bf16": True},
    "checkpoint": {"load": "here", "save": "here"},
}


def compiled(
    *changes: dict[str, dict[str, Any]], diagnostics: tuple[Diagnostic, ...] = ()
) -> Compiled:
    """The base plan with ``changes`` merged over it; ``None`` leaves a key out."""
    sections: dict[str, dict[str, Any]] = {name: dict(keys) for name, keys in BASE.items()}
    for change in changes:
        for name, keys in change.items():
            sections.setdefault(name, {}).update(keys)
    plan = PrecisionPlan.model_validate(sections)
    return Compiled("made-up", plan, diagnostics, lower(plan), plan.fingerprint(), 0, {}, 0.0)


def snapshot(*changes: dict[str, dict[str, Any]]) -> Snapshot:
    return snapshot_of(compiled(*changes))


TOKENS = st.text("abcdef0123", min_size=8, max_size=12)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "hardware": st.fixed_dictionaries({"gpu": st.sampled_from(["h100", "b200", "mi300x"])}),
        "training": st.fixed_dictionaries(
            {"bf16": st.sampled_from([True, None]), "fp16": st.sampled_from([True, None])},
            optional={
                "fp8_format": st.sampled_from(["e4m3", "hybrid"]),
                "fp8_recipe": st.sampled_from(["delayed", "tensorwise", "blockwise", "mxfp8"]),
                "fp8_param_gather": st.booleans(),
                "fp8_margin": st.integers(0, 2),
            },
        ),
        "optimizer": st.fixed_dictionaries(
            {},
            optional={
                "lr": st.floats(1e-9, 1, allow_nan=False),
                "use_precision_aware_optimizer": st.booleans(),
                "exp_avg_dtype": st.sampled_from(["fp32", "fp16", "bf16", "fp8"]),
                "main_params_dtype": st.sampled_from(["fp32", "fp16"]),
            },
        ),
        "rollout": st.fixed_dictionaries(
            {"kv_cache_dtype": st.sampled_from(["auto", "fp8"])},
        ),
        "env": st.fixed_dictionaries(
            {},
            optional={
                "all": st.dictionaries(st.sampled_from(["A", "B", "HF_TOKEN"]), TOKENS),
                "train_actor": st.dictionaries(st.sampled_from(["A", "WANDB_API_KEY"]), TOKENS),
            },
        ),
        "launch": st.fixed_dictionaries(
            {},
            optional={
                "extra_args": st.dictionaries(
                    st.sampled_from(["seed", "x-y", "wandb-key"]),
                    st.integers(0, 9) | st.booleans() | TOKENS,
                )
            },
        ),
    },
)
"""What a plan may say besides the base."""

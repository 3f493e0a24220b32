"""The environment that each process role sees, from the plan's ``env`` section and its fields.

Transformer Engine reads most of its recipe knobs from variables only, so a training field such
as ``training.nvfp4_disable_rht`` *is* a variable; the same variable may also be written in
``env``. Both spellings end here, and rules compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.unknown import known

FIELD_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "training.fp8_block_scaling_fp32_scales": "NVTE_FP8_BLOCK_SCALING_FP32_SCALES",
        "training.fp8_current_scaling_power_2_scales": "NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES",
        "training.backward_override": "NVTE_BACKWARD_OVERRIDE",
        "training.nvfp4_disable_rht": "NVTE_NVFP4_DISABLE_RHT",
        "training.nvfp4_disable_stochastic_rounding": "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING",
        "training.nvfp4_disable_2d_quantization": "NVTE_NVFP4_DISABLE_2D_QUANTIZATION",
        "training.nvfp4_row_scaled_activation": "NVTE_NVFP4_ROW_SCALED_ACTIVATION",
        "training.nvfp4_4over6": "NVTE_NVFP4_4OVER6",
        "training.nvfp4_4over6_e4m3_use_256": "NVTE_NVFP4_4OVER6_E4M3_USE_256",
        "training.nvfp4_4over6_err_mode": "NVTE_NVFP4_4OVER6_ERR_MODE",
        "training.nvfp4_4over6_err_use_fast_math": "NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH",
        "training.use_fast_math": "NVTE_USE_FAST_MATH",
        "training.dpa_fp8_recipe": "NVTE_DPA_FP8_RECIPE",
        "training.dpa_fp8_format": "NVTE_DPA_FP8_FORMAT",
        "training.fp8_dpa_bwd": "NVTE_FP8_DPA_BWD",
        "qat.int4_fake_qat": "OPEN_TRAINING_INT4_FAKE_QAT_FLAG",
        "qat.int4_group_size": "OPEN_TRAINING_INT4_GROUP_SIZE",
        "qat.nvfp4_fake_qat": "OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG",
    }
)
"""Plan fields that are environment variables of the train actor."""

_FIELDS = tuple((*field.split("."), field, name) for field, name in FIELD_VARIABLES.items())

_SEEN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "driver": ("all", "driver"),
        "train_actor": ("all", "train_actor"),
        "rollout_engine": ("all", "rollout_engine"),
        "vllm_worker": ("all", "rollout_engine", "vllm_worker"),
        "converter": ("all", "converter"),
    }
)


def env_text(value: Any) -> str:
    """A value as an environment variable: ``1``/``0`` for a boolean, its text otherwise."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def declared_env(plan: PrecisionPlan, role: str) -> dict[str, tuple[str, str]]:
    """``{variable: (value, field)}`` that the plan's ``env`` section gives one role.

    ``field`` is the plan field of the winning entry (``env.train_actor.NAME``). Framework
    defaults are not included.
    """
    found: dict[str, tuple[str, str]] = {}
    for scope in _SEEN_BY[role]:
        for name, value in (known(plan.env, scope) or {}).items():
            found[name] = (value, f"env.{scope}.{name}")
    return found


def train_env(plan: PrecisionPlan) -> dict[str, tuple[str, str]]:
    """``{variable: (value, field)}`` of the train actor, plan fields included.

    Where a field and the ``env`` section both give a variable, the field wins (it is the typed
    spelling); that they differ is a rule's finding. A field that is not known gives a reference.
    """
    found = declared_env(plan, "train_actor")
    for section, key, field, name in _FIELDS:
        written = getattr(plan, section).__dict__
        value = written.get(key)
        if value is not None:
            found[name] = (env_text(value), field)
        elif key not in written:
            found[name] = (f"${{{name}}}", field)
    return found

"""Plan -> keyword arguments of megatron-core's config dataclasses.

For every argument of precision and shape the value is the one that Megatron's own command line
would hand over after every silent override; fusions and logging are left to the classes. Values
are plain data:

* a dtype is the name of a torch dtype: ``"bfloat16"``, ``"uint8"`` for FP8 optimizer states;
* ``attention_backend`` is the name of an ``AttnBackend`` member;
* ``activation_func`` is the name of a function of ``torch.nn.functional``.

A per-module precision file (``quant_recipe``) is left out: the class takes the loaded object.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.facts.megatron import MegatronFlag
from precision_plan.facts.megatron_shape import shape_fields
from precision_plan.lower.context import Context
from precision_plan.plan.resolved import TORCH_DTYPES

_OWNER = {
    "ModelParallelConfig": "TransformerConfig",
    "TransformerConfig": "TransformerConfig",
    "MLATransformerConfig": "MLATransformerConfig",
    "OptimizerConfig": "OptimizerConfig",
    "DistributedDataParallelConfig": "DistributedDataParallelConfig",
}
"""Class of a flag's ``feeds`` -> class that is constructed (a subclass or itself)."""

_DTYPE_FIELDS = frozenset(
    {
        "main_grads_dtype",
        "main_params_dtype",
        "exp_avg_dtype",
        "exp_avg_sq_dtype",
        "mamba_training_ssm_states_dtype",
        "megatron_fsdp_main_params_dtype",
        "megatron_fsdp_main_grads_dtype",
        "megatron_fsdp_grad_comm_dtype",
    }
)

_NO_VALUE = frozenset({"quant_recipe", "use_kitchen"})


def settings(context: Context) -> Mapping[str, Mapping[str, Any]]:
    """Constructor keywords by class name.

    The model class is ``MLATransformerConfig`` for multi-latent attention, else
    ``TransformerConfig``.
    """
    mla = context.get("model.multi_latent_attention") is True
    found: dict[str, dict[str, Any]] = {
        "TransformerConfig": {},
        "MLATransformerConfig": {},
        "OptimizerConfig": {},
        "DistributedDataParallelConfig": {},
    }
    for field, flag in context.flags.items():
        value = _value(context, field, flag)
        for feed in flag.feeds:
            owner, _, name = feed.partition(".")
            if owner not in _OWNER or name in _NO_VALUE:
                continue
            if value is not None or owner == "MLATransformerConfig":
                found[_OWNER[owner]][name] = value
    _derived(context, found)
    if not mla:
        del found["MLATransformerConfig"]
        name = "TransformerConfig"
    else:
        name = "MLATransformerConfig"
        found[name] = {**found.pop("TransformerConfig"), **found[name]}
    order = (name, "OptimizerConfig", "DistributedDataParallelConfig")
    return MappingProxyType({key: MappingProxyType(found[key]) for key in order})


def _value(context: Context, field: str, flag: MegatronFlag) -> Any:
    """What Megatron hands over.

    A model's shape is handed over only where the plan gives it, except for latent attention,
    whose class has defaults of its own that differ from the command line's.
    """
    shape = field in shape_fields() and any(f.startswith("TransformerConfig") for f in flag.feeds)
    if shape and context.get(field) is None:
        return None
    value = context.argument(flag.dest)
    if flag.dest in _DTYPE_FIELDS:
        return TORCH_DTYPES.get(value) if isinstance(value, str) else None
    if flag.type == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _derived(context: Context, found: dict[str, dict[str, Any]]) -> None:
    """Keys that no flag feeds directly, or that Megatron changes for the shape."""
    model, optimizer = found["TransformerConfig"], found["OptimizerConfig"]
    dtype = TORCH_DTYPES[context.argument("params_dtype") or "fp32"]
    model["params_dtype"] = model["pipeline_dtype"] = optimizer["params_dtype"] = dtype
    if model.get("gated_linear_unit"):
        model["activation_func"] = "silu"
        model["bias_activation_fusion"] = True
    if context.get("model.group_query_attention") is not True:
        model.pop("num_query_groups", None)
    _virtual_pipeline(context, model)


def _virtual_pipeline(context: Context, model: dict[str, Any]) -> None:
    """Megatron accepts the layers per virtual stage and derives how many stages a rank holds."""
    per_stage = context.get("parallel.num_layers_per_virtual_pipeline_stage")
    layers, pipeline = model.get("num_layers"), model.get("pipeline_model_parallel_size", 1)
    if per_stage is not None and layers is not None:
        model["virtual_pipeline_model_parallel_size"] = layers // pipeline // per_stage
    if model.get("virtual_pipeline_model_parallel_size") in (0, 1):
        model.pop("virtual_pipeline_model_parallel_size")

"""Arguments of Megatron 0.16.1 -> constructor keywords of its config classes, as Megatron does it.

The wheel of megatron-core has neither the parser nor the functions that fill the classes. What
they do is short: a class takes every argument that has the name of one of its fields, and a few
fields get theirs from elsewhere. Here the names come from the facts (``feeds``) and the few from
the functions below; the defaults are those of the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from precision_plan.facts.megatron_shape import command_line_at
from precision_plan.plan.effective import Effective
from tests.conformance.megatron_classes import megatron_class, real

VERSION = "0.16.1"
MODEL_OWNERS = ("ModelParallelConfig", "TransformerConfig", "MLATransformerConfig")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "uint8"}

Keywords = Mapping[str, Any]


def feeds(owner: str) -> dict[str, str]:
    """``{field of the class: dest}`` of every flag whose value ends in ``owner``."""
    found = {}
    for flag in command_line_at(VERSION).values():
        for feed in flag.feeds:
            name, _, field = feed.partition(".")
            if name == owner:
                found[field] = flag.dest
    return found


def after_validation(effective: Effective, others: Mapping[str, Any]) -> SimpleNamespace:
    """The namespace that the classes are filled from.

    ``effective`` has the overrides that concern precision; the other values that
    ``validate_args`` derives for these classes are added here.
    Source: NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py:300-1265.
    """
    args = SimpleNamespace(**{**others, **vars(effective.args)})
    if args.expert_tensor_parallel_size is None:
        args.expert_tensor_parallel_size = args.tensor_model_parallel_size
    stages = args.num_virtual_stages_per_pipeline_rank
    if args.num_layers_per_virtual_pipeline_stage is not None:
        per_rank = args.num_layers // args.pipeline_model_parallel_size
        stages = per_rank // args.num_layers_per_virtual_pipeline_stage
    args.num_virtual_stages_per_pipeline_rank = None if stages == 1 else stages
    if args.num_virtual_stages_per_pipeline_rank is None:
        args.align_param_gather = False
    if args.ffn_hidden_size is None:
        wide = 4 * args.hidden_size
        args.ffn_hidden_size = int(wide * 2 / 3 / 64) * 64 if args.swiglu else wide
    if args.kv_channels is None:
        args.kv_channels = args.hidden_size // args.num_attention_heads
    if args.add_bias_linear:
        args.add_qkv_bias = True
    if args.use_rotary_position_embeddings:
        args.position_embedding_type = "rope"
    if args.position_embedding_type != "rope":
        args.apply_rope_fusion = False
    if args.num_experts == 0:
        args.num_experts = None
    if args.num_experts is not None and args.moe_ffn_hidden_size is None:
        args.moe_ffn_hidden_size = args.ffn_hidden_size
    for name in ("moe_router_load_balancing_type", "moe_aux_loss_coeff"):
        value = getattr(args, name)
        if isinstance(value, tuple):
            setattr(args, name, value[0] if len(value) == 1 else list(value))
    if tuple(args.cuda_graph_scope) == ("full",):
        args.cuda_graph_scope = []
    args.enable_cuda_graph = args.external_cuda_graph = False  # became cuda_graph_impl
    return args


def _filled(name: str, owners: tuple[str, ...], args: SimpleNamespace) -> dict[str, Any]:
    """Every argument that has a field of the class."""
    fields = {field.name for field in dataclasses.fields(megatron_class(name))}
    keywords = {key: value for key, value in vars(args).items() if key in fields}
    for owner in owners:
        keywords.update((field, getattr(args, dest)) for field, dest in feeds(owner).items())
    return {key: _value(key, value) for key, value in keywords.items()}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if key.endswith("_dtype") and key != "moe_router_dtype":
        value = _DTYPES.get(value, value)
    return real(key, value)


def transformer_config(args: SimpleNamespace) -> tuple[str, Keywords]:
    """Class and keywords of the model, as ``core_transformer_config_from_args`` makes them."""
    name = "MLATransformerConfig" if args.multi_latent_attention else "TransformerConfig"
    owners = MODEL_OWNERS if args.multi_latent_attention else MODEL_OWNERS[:2]
    keywords = _filled(name, owners, args)
    keywords["pipeline_dtype"] = keywords["params_dtype"]
    keywords["cpu_offloading"] = args.cpu_offloading_num_layers > 0
    gelu = getattr(args, "bias_gelu_fusion", True) and args.add_bias_linear
    keywords["bias_activation_fusion"] = bool(args.swiglu or gelu)
    if args.swiglu:
        keywords["activation_func"] = real("activation_func", "silu")
    if not args.group_query_attention:
        keywords["num_query_groups"] = None
    del keywords["quant_recipe"]  # the class takes the loaded file
    return name, keywords


def optimizer_config(args: SimpleNamespace) -> tuple[str, Keywords]:
    """Class and keywords of the optimizer, as ``get_megatron_optimizer_config`` makes them."""
    name = "SGDOptimizerConfig" if args.optimizer == "sgd" else "AdamOptimizerConfig"
    return name, _filled(name, ("OptimizerConfig",), args)


def ddp_config(args: SimpleNamespace) -> tuple[str, Keywords]:
    """Class and keywords of data parallelism, as ``get_model`` makes them (not for FSDP2)."""
    name = "DistributedDataParallelConfig"
    return name, _filled(name, (name,), args)

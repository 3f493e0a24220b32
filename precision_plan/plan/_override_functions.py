"""What each silent override does: ``(args, target) -> {dest: new value}``.

``args`` is the argument namespace so far; a dest that does not exist at a version is absent, hence
``getattr``. Who does each of these, since when and where it is written stands in
:mod:`precision_plan.plan.overrides`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from precision_plan.facts.versions import version
from precision_plan.plan.target import Target

Changes = Mapping[str, Any] | None
"""New values by dest; ``None`` if nothing is overridden."""


def te_at_least(target: Target, least: str) -> bool:
    """True unless Transformer Engine is declared and older: an undeclared one counts as recent."""
    found = target.package("transformer_engine")
    return found is None or version(found) >= version(least)


# Frameworks, before Megatron validates -------------------------------------------------------
def bf16_unless_fp16(args: SimpleNamespace, target: Target) -> Changes:
    return {"bf16": not args.fp16}


def distributed_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    return {"use_distributed_optimizer": True}


def distributed_optimizer_for_adam(args: SimpleNamespace, target: Target) -> Changes:
    return {"use_distributed_optimizer": True} if args.optimizer == "adam" else None


def no_allgather_dispatcher(args: SimpleNamespace, target: Target) -> Changes:
    if args.moe_token_dispatcher_type == "allgather":
        return {"moe_token_dispatcher_type": "alltoall"}
    return None


# Megatron: parse_args and validate_args ------------------------------------------------------
def deprecated_cuda_graph(args: SimpleNamespace, target: Target) -> Changes:
    if args.enable_cuda_graph and not args.external_cuda_graph:
        return {"cuda_graph_impl": "local"}
    if args.external_cuda_graph and not args.enable_cuda_graph:
        return {"cuda_graph_impl": "transformer_engine"}
    return None


def full_iteration_scope(args: SimpleNamespace, target: Target) -> Changes:
    scopes = args.cuda_graph_scope_deprecated or args.cuda_graph_modules or ()
    if "full_iteration" in scopes and args.cuda_graph_impl in ("none", "local"):
        return {"cuda_graph_impl": "full_iteration"}
    return None


def recompute_selected(args: SimpleNamespace, target: Target) -> Changes:
    return {"recompute_granularity": "selective"} if args.recompute_activations else None


def fsdp2_without_fp8_params(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_torch_fsdp2 and args.fp8_param_gather and te_at_least(target, "2.0.0"):
        return {"fp8_param_gather": False}
    return None


def fsdp2_without_fp4_params(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_torch_fsdp2 and args.fp4_param_gather and not te_at_least(target, "2.7.0.dev0"):
        return {"fp4_param_gather": False}
    return None


def sharding_overlap(args: SimpleNamespace, target: Target) -> Changes:
    if args.data_parallel_sharding_strategy == "optim_grads_params":
        return {"overlap_param_gather": True, "overlap_grad_reduce": True}
    if args.data_parallel_sharding_strategy == "optim_grads":
        return {"overlap_grad_reduce": True}
    return None


def fsdp_user_buffers(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_megatron_fsdp and args.nccl_ub:
        return {"fsdp_manual_registration": True}
    return None


def fsdp_user_buffers_019(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_megatron_fsdp and args.nccl_ub:
        return {"fsdp_manual_registration": True, "fsdp_double_buffer": True}
    return None


def megatron_fsdp_distributed_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    version_two = getattr(args, "megatron_fsdp_version", 1) == 2
    return (
        {"use_distributed_optimizer": True} if args.use_megatron_fsdp and not version_two else None
    )


def reuse_buffer_off_registered(args: SimpleNamespace, target: Target) -> Changes:
    if args.fsdp_manual_registration and args.use_megatron_fsdp:
        return {"reuse_grad_buf_for_mxfp8_param_ag": False}
    return None


def reuse_buffer_off(args: SimpleNamespace, target: Target) -> Changes:
    return {"reuse_grad_buf_for_mxfp8_param_ag": False} if args.use_megatron_fsdp else None


def params_dtype(args: SimpleNamespace, target: Target) -> Changes:
    return {"params_dtype": "fp16" if args.fp16 else "bf16" if args.bf16 else "fp32"}


def dynamic_loss_scale(args: SimpleNamespace, target: Target) -> Changes:
    if args.fp16 and not args.loss_scale:
        return {"check_for_nan_in_loss_and_grad": False}
    return None


def bf16_accumulation(args: SimpleNamespace, target: Target) -> Changes:
    if not args.bf16 or args.fp16:
        return None
    if args.grad_reduce_in_bf16:
        return {"accumulate_allreduce_grads_in_fp32": False}
    if args.main_grads_dtype == "fp32":
        return {"accumulate_allreduce_grads_in_fp32": True}
    return None


def fsdp_grad_comm(args: SimpleNamespace, target: Target) -> Changes:
    return {"megatron_fsdp_grad_comm_dtype": "bf16"} if args.grad_reduce_in_bf16 else None


def sequence_parallel(args: SimpleNamespace, target: Target) -> Changes:
    if getattr(args, "sequence_parallel", False) and args.tensor_model_parallel_size in (None, 1):
        return {"sequence_parallel": False}
    return None


def query_key_scaling(args: SimpleNamespace, target: Target) -> Changes:
    return {"attention_softmax_in_fp32": True} if args.apply_query_key_layer_scaling else None


def reduce_scatter_accumulation(args: SimpleNamespace, target: Target) -> Changes:
    if args.accumulate_allreduce_grads_in_fp32:
        return {
            "ddp_reduce_scatter_with_fp32_accumulation": False,
            "gtp_remat_reduce_scatter_with_fp32_accumulation": False,
        }
    return None


def stream_dequant(args: SimpleNamespace, target: Target) -> Changes:
    if args.fp8 and args.fp8_recipe == "tensorwise" and args.stream_ckpt_dequant:
        return {"stream_ckpt_dequant": False}
    return None


def cuda_graph_rng(args: SimpleNamespace, target: Target) -> Changes:
    impl = getattr(args, "cuda_graph_impl", "none")
    if impl != "none" and "transformer_engine" in (args.transformer_impl, impl):
        return {"te_rng_tracker": True}
    return None


def cuda_graph_rng_014(args: SimpleNamespace, target: Target) -> Changes:
    graphs = args.enable_cuda_graph or args.external_cuda_graph
    if graphs and args.transformer_impl == "transformer_engine":
        return {"te_rng_tracker": True}
    return None


def cuda_graph_rng_015(args: SimpleNamespace, target: Target) -> Changes:
    if args.cuda_graph_impl != "none" and args.transformer_impl == "transformer_engine":
        return {"te_rng_tracker": True}
    return None


def whole_layer_scope(args: SimpleNamespace, target: Target) -> Changes:
    return {"cuda_graph_scope": ()} if tuple(args.cuda_graph_scope or ()) == ("full",) else None


def whole_layer_modules(args: SimpleNamespace, target: Target) -> Changes:
    return {"cuda_graph_modules": ()} if tuple(args.cuda_graph_modules or ()) == ("full",) else None


def router_and_preprocess(name: str) -> Callable[[SimpleNamespace, Target], Changes]:
    def apply(args: SimpleNamespace, target: Target) -> Changes:
        given = tuple(getattr(args, name, None) or ())
        missing = tuple(part for part in _ROUTER_PARTS if part not in given)
        if getattr(args, "cuda_graph_impl", "none") != "local" or len(missing) != 1:
            return None
        return {name: given + missing}

    return apply


_ROUTER_PARTS = ("moe_router", "moe_preprocess")


def unaligned_gather(args: SimpleNamespace, target: Target) -> Changes:
    stages = args.num_virtual_stages_per_pipeline_rank
    per_stage = args.num_layers_per_virtual_pipeline_stage
    if per_stage and args.num_layers:
        stages = args.num_layers // (args.pipeline_model_parallel_size or 1) // per_stage
    return {"align_param_gather": False} if stages in (None, 1) else None


def emerging_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    if args.optimizer in ("sgd", "adam"):
        return None
    optimizer = "muon" if args.optimizer == "dist_muon" else args.optimizer
    return {"optimizer": optimizer, "use_distributed_optimizer": False}


def moe_padding_alias(args: SimpleNamespace, target: Target) -> Changes:
    return (
        {"moe_router_padding_for_quantization": True} if args.moe_router_padding_for_fp8 else None
    )

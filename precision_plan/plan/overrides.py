"""The silent overrides of the training frameworks and of Megatron, in the order they happen.

Each step is a short function ``(args, target) -> {dest: new value}`` over the argument
namespace; the table at the end gives it its version range, frameworks and source. A dest that
does not exist at a version is simply absent from the namespace, hence ``getattr``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.versions import EVERY_VERSION, VersionRange, version
from precision_plan.plan.target import Target

Changes = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Step:
    """One silent override: who does it, since when, why, and where it is written."""

    slug: str
    because: str
    source: str
    apply: Callable[[SimpleNamespace, Target], Changes]
    versions: VersionRange = EVERY_VERSION
    frameworks: tuple[str, ...] = ()


def _te_at_least(target: Target, least: str) -> bool:
    """True unless Transformer Engine is declared and older: an undeclared one counts as recent."""
    found = target.package("transformer_engine")
    return found is None or version(found) >= version(least)


# Frameworks, before Megatron validates -------------------------------------------------------
def _bf16_unless_fp16(args: SimpleNamespace, target: Target) -> Changes:
    return {"bf16": not args.fp16}


def _distributed_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    return {"use_distributed_optimizer": True}


def _distributed_optimizer_for_adam(args: SimpleNamespace, target: Target) -> Changes:
    return {"use_distributed_optimizer": True} if args.optimizer == "adam" else None


def _no_allgather_dispatcher(args: SimpleNamespace, target: Target) -> Changes:
    if args.moe_token_dispatcher_type == "allgather":
        return {"moe_token_dispatcher_type": "alltoall"}
    return None


# Megatron: parse_args and validate_args ------------------------------------------------------
def _deprecated_cuda_graph(args: SimpleNamespace, target: Target) -> Changes:
    if args.enable_cuda_graph and not args.external_cuda_graph:
        return {"cuda_graph_impl": "local"}
    if args.external_cuda_graph and not args.enable_cuda_graph:
        return {"cuda_graph_impl": "transformer_engine"}
    return None


def _recompute_selected(args: SimpleNamespace, target: Target) -> Changes:
    return {"recompute_granularity": "selective"} if args.recompute_activations else None


def _fsdp2_without_fp8_params(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_torch_fsdp2 and args.fp8_param_gather and _te_at_least(target, "2.0.0"):
        return {"fp8_param_gather": False}
    return None


def _fsdp2_without_fp4_params(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_torch_fsdp2 and args.fp4_param_gather and not _te_at_least(target, "2.7.0.dev0"):
        return {"fp4_param_gather": False}
    return None


def _sharding_overlap(args: SimpleNamespace, target: Target) -> Changes:
    if args.data_parallel_sharding_strategy == "optim_grads_params":
        return {"overlap_param_gather": True, "overlap_grad_reduce": True}
    if args.data_parallel_sharding_strategy == "optim_grads":
        return {"overlap_grad_reduce": True}
    return None


def _fsdp_user_buffers(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_megatron_fsdp and args.nccl_ub:
        return {"fsdp_manual_registration": True}
    return None


def _fsdp_user_buffers_019(args: SimpleNamespace, target: Target) -> Changes:
    if args.use_megatron_fsdp and args.nccl_ub:
        return {"fsdp_manual_registration": True, "fsdp_double_buffer": True}
    return None


def _megatron_fsdp_distributed_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    version_two = getattr(args, "megatron_fsdp_version", 1) == 2
    return (
        {"use_distributed_optimizer": True} if args.use_megatron_fsdp and not version_two else None
    )


def _reuse_buffer_off_registered(args: SimpleNamespace, target: Target) -> Changes:
    if args.fsdp_manual_registration and args.use_megatron_fsdp:
        return {"reuse_grad_buf_for_mxfp8_param_ag": False}
    return None


def _reuse_buffer_off(args: SimpleNamespace, target: Target) -> Changes:
    return {"reuse_grad_buf_for_mxfp8_param_ag": False} if args.use_megatron_fsdp else None


def _params_dtype(args: SimpleNamespace, target: Target) -> Changes:
    return {"params_dtype": "fp16" if args.fp16 else "bf16" if args.bf16 else "fp32"}


def _dynamic_loss_scale(args: SimpleNamespace, target: Target) -> Changes:
    if args.fp16 and not args.loss_scale:
        return {"check_for_nan_in_loss_and_grad": False}
    return None


def _bf16_accumulation(args: SimpleNamespace, target: Target) -> Changes:
    if not args.bf16 or args.fp16:
        return None
    if args.grad_reduce_in_bf16:
        return {"accumulate_allreduce_grads_in_fp32": False}
    if args.main_grads_dtype == "fp32":
        return {"accumulate_allreduce_grads_in_fp32": True}
    return None


def _fsdp_grad_comm(args: SimpleNamespace, target: Target) -> Changes:
    return {"megatron_fsdp_grad_comm_dtype": "bf16"} if args.grad_reduce_in_bf16 else None


def _sequence_parallel(args: SimpleNamespace, target: Target) -> Changes:
    if getattr(args, "sequence_parallel", False) and args.tensor_model_parallel_size in (None, 1):
        return {"sequence_parallel": False}
    return None


def _query_key_scaling(args: SimpleNamespace, target: Target) -> Changes:
    return {"attention_softmax_in_fp32": True} if args.apply_query_key_layer_scaling else None


def _reduce_scatter_accumulation(args: SimpleNamespace, target: Target) -> Changes:
    if args.accumulate_allreduce_grads_in_fp32:
        return {
            "ddp_reduce_scatter_with_fp32_accumulation": False,
            "gtp_remat_reduce_scatter_with_fp32_accumulation": False,
        }
    return None


def _stream_dequant(args: SimpleNamespace, target: Target) -> Changes:
    if args.fp8 and args.fp8_recipe == "tensorwise" and args.stream_ckpt_dequant:
        return {"stream_ckpt_dequant": False}
    return None


def _cuda_graph_rng(args: SimpleNamespace, target: Target) -> Changes:
    impl = getattr(args, "cuda_graph_impl", "none")
    if impl != "none" and "transformer_engine" in (args.transformer_impl, impl):
        return {"te_rng_tracker": True}
    return None


def _cuda_graph_rng_014(args: SimpleNamespace, target: Target) -> Changes:
    graphs = args.enable_cuda_graph or args.external_cuda_graph
    if graphs and args.transformer_impl == "transformer_engine":
        return {"te_rng_tracker": True}
    return None


def _cuda_graph_rng_015(args: SimpleNamespace, target: Target) -> Changes:
    if args.cuda_graph_impl != "none" and args.transformer_impl == "transformer_engine":
        return {"te_rng_tracker": True}
    return None


def _whole_layer_scope(args: SimpleNamespace, target: Target) -> Changes:
    return {"cuda_graph_scope": ()} if tuple(args.cuda_graph_scope or ()) == ("full",) else None


def _whole_layer_modules(args: SimpleNamespace, target: Target) -> Changes:
    return {"cuda_graph_modules": ()} if tuple(args.cuda_graph_modules or ()) == ("full",) else None


def _router_and_preprocess(name: str) -> Callable[[SimpleNamespace, Target], Changes]:
    def apply(args: SimpleNamespace, target: Target) -> Changes:
        given = tuple(getattr(args, name, None) or ())
        missing = tuple(part for part in _ROUTER_PARTS if part not in given)
        if getattr(args, "cuda_graph_impl", "none") != "local" or len(missing) != 1:
            return None
        return {name: given + missing}

    return apply


_ROUTER_PARTS = ("moe_router", "moe_preprocess")


def _unaligned_gather(args: SimpleNamespace, target: Target) -> Changes:
    stages = args.num_virtual_stages_per_pipeline_rank
    per_stage = args.num_layers_per_virtual_pipeline_stage
    if per_stage and args.num_layers:
        stages = args.num_layers // (args.pipeline_model_parallel_size or 1) // per_stage
    return {"align_param_gather": False} if stages in (None, 1) else None


def _emerging_optimizer(args: SimpleNamespace, target: Target) -> Changes:
    if args.optimizer in ("sgd", "adam"):
        return None
    optimizer = "muon" if args.optimizer == "dist_muon" else args.optimizer
    return {"optimizer": optimizer, "use_distributed_optimizer": False}


def _moe_padding_alias(args: SimpleNamespace, target: Target) -> Changes:
    return (
        {"moe_router_padding_for_quantization": True} if args.moe_router_padding_for_fp8 else None
    )


_MEGATRON = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py"
_CONFIG = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py"
_SLIME = "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py"

STEPS: tuple[Step, ...] = (
    Step(
        "framework-bf16",
        "the framework sets bf16 = not fp16 after parsing",
        f"{_SLIME}:157",
        _bf16_unless_fp16,
        frameworks=RL_FRAMEWORKS,
    ),
    Step(
        "framework-distributed-optimizer",
        "the framework always turns the distributed optimizer on",
        f"{_SLIME}:153",
        _distributed_optimizer,
        frameworks=("vime", "slime"),
    ),
    Step(
        "framework-distributed-optimizer",
        "miles turns the distributed optimizer on for Adam",
        "radixark/miles@31f1ca96:miles/backends/megatron_utils/arguments.py:22",
        _distributed_optimizer_for_adam,
        frameworks=("miles",),
    ),
    Step(
        "framework-dispatcher",
        "the framework replaces the allgather token dispatcher by alltoall",
        f"{_SLIME}:82-95",
        _no_allgather_dispatcher,
        frameworks=("vime", "slime"),
    ),
    Step(
        "recompute-activations",
        "recompute_activations is another spelling of selective recomputation",
        f"{_MEGATRON}:430",
        _recompute_selected,
    ),
    Step(
        "cuda-graph-deprecated",
        "the deprecated switch selects cuda_graph_impl",
        f"{_MEGATRON}:435",
        _deprecated_cuda_graph,
        VersionRange("0.15.0"),
    ),
    Step(
        "sharding-overlap",
        "sharded gradients and parameters are reduced and gathered with overlap",
        "NVIDIA/Megatron-LM@core_v0.13.0:megatron/training/arguments.py:588",
        _sharding_overlap,
        VersionRange("0.12.0", "0.13"),
    ),
    Step(
        "fsdp2-without-fp8-params",
        "torch FSDP2 with TE 2.0 and later gathers parameters in BF16",
        f"{_MEGATRON}:626",
        _fsdp2_without_fp8_params,
        VersionRange("0.14.0"),
    ),
    Step(
        "fsdp2-without-fp4-params",
        "torch FSDP2 with TE before 2.7.0.dev0 keeps FP4 parameters off",
        "NVIDIA/Megatron-LM@core_v0.17.1:megatron/training/arguments.py",
        _fsdp2_without_fp4_params,
        VersionRange("0.17.1"),
    ),
    Step(
        "megatron-fsdp-distributed-optimizer",
        "Megatron-FSDP needs the distributed optimizer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py:1119",
        _megatron_fsdp_distributed_optimizer,
        VersionRange("0.18.0"),
    ),
    Step(
        "reuse-buffer-off",
        "manual registration of Megatron-FSDP excludes the shared gradient buffer",
        f"{_MEGATRON}:698",
        _reuse_buffer_off_registered,
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "reuse-buffer-off",
        "Megatron-FSDP excludes the shared gradient buffer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py",
        _reuse_buffer_off,
        VersionRange("0.18.0"),
    ),
    Step(
        "fsdp-user-buffers",
        "user buffers of NCCL are registered by hand under Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py",
        _fsdp_user_buffers,
        VersionRange("0.18.0", "0.18"),
    ),
    Step(
        "fsdp-user-buffers",
        "user buffers of NCCL are registered by hand, twice, under Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.19.0:megatron/training/arguments.py",
        _fsdp_user_buffers_019,
        VersionRange("0.19.0"),
    ),
    Step("params-dtype", "parameters take the base format", f"{_MEGATRON}:701", _params_dtype),
    Step(
        "fp16-dynamic-scale",
        "overflow is the normal signal of dynamic loss scaling",
        f"{_MEGATRON}:708",
        _dynamic_loss_scale,
    ),
    Step(
        "bf16-accumulation",
        "bf16 accumulates and reduces gradients in fp32 unless told otherwise",
        f"{_MEGATRON}:721-723",
        _bf16_accumulation,
    ),
    Step(
        "fsdp-grad-comm",
        "grad_reduce_in_bf16 sets the communication dtype of Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.17.1:megatron/training/arguments.py:927",
        _fsdp_grad_comm,
        VersionRange("0.17.0", "0.18"),
    ),
    Step(
        "sequence-parallel-off",
        "sequence parallelism needs tensor parallelism",
        f"{_MEGATRON}:907",
        _sequence_parallel,
    ),
    Step(
        "query-key-scaling",
        "query-key layer scaling computes the softmax in fp32",
        f"{_MEGATRON}:1085",
        _query_key_scaling,
    ),
    Step(
        "reduce-scatter-accumulation",
        "gradients are in fp32 already",
        "NVIDIA/Megatron-LM@HEAD:megatron/training/arguments.py:1230",
        _reduce_scatter_accumulation,
        VersionRange("HEAD"),
    ),
    Step(
        "stream-dequant",
        "tensorwise FP8 does not stream checkpoints",
        "NVIDIA/Megatron-LM@core_v0.19.0:megatron/training/arguments.py:1092",
        _stream_dequant,
        VersionRange("0.19.0", "0.19.0"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        "NVIDIA/Megatron-LM@core_v0.14.0:megatron/training/arguments.py:1105",
        _cuda_graph_rng_014,
        VersionRange("0.14.0", "0.14"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        "NVIDIA/Megatron-LM@core_v0.15.3:megatron/training/arguments.py:1195",
        _cuda_graph_rng_015,
        VersionRange("0.15.0", "0.15"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        f"{_MEGATRON}:1245",
        _cuda_graph_rng,
        VersionRange("0.16.0"),
    ),
    Step(
        "unaligned-gather",
        "parameters are gathered in step with each other only by the interleaved schedule",
        f"{_MEGATRON}:586",
        _unaligned_gather,
    ),
    Step(
        "whole-layer-graph",
        "the old name of a whole layer's graph is an empty list",
        f"{_MEGATRON}:1255-1260",
        _whole_layer_scope,
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "whole-layer-graph",
        "the old name of a whole layer's graph is an empty list",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/core/transformer/cuda_graph_config.py:40",
        _whole_layer_modules,
        VersionRange("0.18.0"),
    ),
    Step(
        "router-graph",
        "local graphs capture the router and what follows it together",
        f"{_CONFIG}:1723-1734",
        _router_and_preprocess("cuda_graph_scope"),
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "router-graph",
        "local graphs capture the router and what follows it together",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/core/transformer/transformer_config.py:2248-2258",
        _router_and_preprocess("cuda_graph_modules"),
        VersionRange("0.18.0"),
    ),
    Step(
        "emerging-optimizer",
        "muon and its kin bring their own layer-wise distributed optimizer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py:1559",
        _emerging_optimizer,
        VersionRange("0.18.0"),
    ),
    Step(
        "moe-padding-alias",
        "the old name of router padding sets the new one",
        "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py:1615",
        _moe_padding_alias,
        VersionRange("0.16.0"),
    ),
)

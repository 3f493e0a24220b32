"""The silent overrides of the training frameworks and of Megatron, in the order they happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.versions import EVERY_VERSION, VersionRange
from precision_plan.plan import _override_functions as does
from precision_plan.plan._override_functions import Changes
from precision_plan.plan.target import Target


@dataclass(frozen=True, slots=True)
class Step:
    """One silent override: who does it, since when, why, and where it is written.

    ``changes`` are the dests that it may replace.
    """

    slug: str
    because: str
    source: str
    apply: Callable[[SimpleNamespace, Target], Changes]
    changes: tuple[str, ...]
    versions: VersionRange = EVERY_VERSION
    frameworks: tuple[str, ...] = ()


_MEGATRON = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py"
_CONFIG = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py"
_SLIME = "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py"

STEPS: tuple[Step, ...] = (
    Step(
        "framework-bf16",
        "the framework sets bf16 = not fp16 after parsing",
        f"{_SLIME}:157",
        does.bf16_unless_fp16,
        ("bf16",),
        frameworks=RL_FRAMEWORKS,
    ),
    Step(
        "framework-distributed-optimizer",
        "the framework always turns the distributed optimizer on",
        f"{_SLIME}:153",
        does.distributed_optimizer,
        ("use_distributed_optimizer",),
        frameworks=("vime", "slime"),
    ),
    Step(
        "framework-distributed-optimizer",
        "miles turns the distributed optimizer on for Adam",
        "radixark/miles@31f1ca96:miles/backends/megatron_utils/arguments.py:22",
        does.distributed_optimizer_for_adam,
        ("use_distributed_optimizer",),
        frameworks=("miles",),
    ),
    Step(
        "framework-dispatcher",
        "the framework replaces the allgather token dispatcher by alltoall",
        f"{_SLIME}:82-95",
        does.no_allgather_dispatcher,
        ("moe_token_dispatcher_type",),
        frameworks=("vime", "slime"),
    ),
    Step(
        "recompute-activations",
        "recompute_activations is another spelling of selective recomputation",
        f"{_MEGATRON}:430",
        does.recompute_selected,
        ("recompute_granularity",),
    ),
    Step(
        "cuda-graph-deprecated",
        "the deprecated switch selects cuda_graph_impl",
        f"{_MEGATRON}:435",
        does.deprecated_cuda_graph,
        ("cuda_graph_impl",),
        VersionRange("0.15.0"),
    ),
    Step(
        "full-iteration-scope",
        "the deprecated scope full_iteration selects cuda_graph_impl",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py:286-302",
        does.full_iteration_scope,
        ("cuda_graph_impl",),
        VersionRange("0.18.0"),
    ),
    Step(
        "sharding-overlap",
        "sharded gradients and parameters are reduced and gathered with overlap",
        "NVIDIA/Megatron-LM@core_v0.13.0:megatron/training/arguments.py:588",
        does.sharding_overlap,
        ("overlap_param_gather", "overlap_grad_reduce"),
        VersionRange("0.12.0", "0.13"),
    ),
    Step(
        "fsdp2-without-fp8-params",
        "torch FSDP2 with TE 2.0 and later gathers parameters in BF16",
        f"{_MEGATRON}:626",
        does.fsdp2_without_fp8_params,
        ("fp8_param_gather",),
        VersionRange("0.14.0"),
    ),
    Step(
        "fsdp2-without-fp4-params",
        "torch FSDP2 with TE before 2.7.0.dev0 keeps FP4 parameters off",
        "NVIDIA/Megatron-LM@core_v0.17.1:megatron/training/arguments.py",
        does.fsdp2_without_fp4_params,
        ("fp4_param_gather",),
        VersionRange("0.17.1"),
    ),
    Step(
        "megatron-fsdp-distributed-optimizer",
        "Megatron-FSDP needs the distributed optimizer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py:1119",
        does.megatron_fsdp_distributed_optimizer,
        ("use_distributed_optimizer",),
        VersionRange("0.18.0"),
    ),
    Step(
        "reuse-buffer-off",
        "manual registration of Megatron-FSDP excludes the shared gradient buffer",
        f"{_MEGATRON}:698",
        does.reuse_buffer_off_registered,
        ("reuse_grad_buf_for_mxfp8_param_ag",),
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "reuse-buffer-off",
        "Megatron-FSDP excludes the shared gradient buffer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py",
        does.reuse_buffer_off,
        ("reuse_grad_buf_for_mxfp8_param_ag",),
        VersionRange("0.18.0"),
    ),
    Step(
        "fsdp-user-buffers",
        "user buffers of NCCL are registered by hand under Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py",
        does.fsdp_user_buffers,
        ("fsdp_manual_registration",),
        VersionRange("0.18.0", "0.18"),
    ),
    Step(
        "fsdp-user-buffers",
        "user buffers of NCCL are registered by hand, twice, under Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.19.0:megatron/training/arguments.py",
        does.fsdp_user_buffers_019,
        ("fsdp_manual_registration", "fsdp_double_buffer"),
        VersionRange("0.19.0"),
    ),
    Step(
        "params-dtype",
        "parameters take the base format",
        f"{_MEGATRON}:701",
        does.params_dtype,
        ("params_dtype",),
    ),
    Step(
        "fp16-dynamic-scale",
        "overflow is the normal signal of dynamic loss scaling",
        f"{_MEGATRON}:708",
        does.dynamic_loss_scale,
        ("check_for_nan_in_loss_and_grad",),
    ),
    Step(
        "bf16-accumulation",
        "bf16 accumulates and reduces gradients in fp32 unless told otherwise",
        f"{_MEGATRON}:721-723",
        does.bf16_accumulation,
        ("accumulate_allreduce_grads_in_fp32",),
    ),
    Step(
        "fsdp-grad-comm",
        "grad_reduce_in_bf16 sets the communication dtype of Megatron-FSDP",
        "NVIDIA/Megatron-LM@core_v0.17.1:megatron/training/arguments.py:927",
        does.fsdp_grad_comm,
        ("megatron_fsdp_grad_comm_dtype",),
        VersionRange("0.17.0", "0.18"),
    ),
    Step(
        "sequence-parallel-off",
        "sequence parallelism needs tensor parallelism",
        f"{_MEGATRON}:907",
        does.sequence_parallel,
        ("sequence_parallel",),
    ),
    Step(
        "query-key-scaling",
        "query-key layer scaling computes the softmax in fp32",
        f"{_MEGATRON}:1085",
        does.query_key_scaling,
        ("attention_softmax_in_fp32",),
    ),
    Step(
        "reduce-scatter-accumulation",
        "gradients are in fp32 already",
        "NVIDIA/Megatron-LM@HEAD:megatron/training/arguments.py:1230",
        does.reduce_scatter_accumulation,
        (
            "ddp_reduce_scatter_with_fp32_accumulation",
            "gtp_remat_reduce_scatter_with_fp32_accumulation",
        ),
        VersionRange("HEAD"),
    ),
    Step(
        "stream-dequant",
        "tensorwise FP8 does not stream checkpoints",
        "NVIDIA/Megatron-LM@core_v0.19.0:megatron/training/arguments.py:1092",
        does.stream_dequant,
        ("stream_ckpt_dequant",),
        VersionRange("0.19.0", "0.19.0"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        "NVIDIA/Megatron-LM@core_v0.14.0:megatron/training/arguments.py:1105",
        does.cuda_graph_rng_014,
        ("te_rng_tracker",),
        VersionRange("0.14.0", "0.14"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        "NVIDIA/Megatron-LM@core_v0.15.3:megatron/training/arguments.py:1195",
        does.cuda_graph_rng_015,
        ("te_rng_tracker",),
        VersionRange("0.15.0", "0.15"),
    ),
    Step(
        "cuda-graph-rng",
        "CUDA graphs of Transformer Engine need its random number tracker",
        f"{_MEGATRON}:1245",
        does.cuda_graph_rng,
        ("te_rng_tracker",),
        VersionRange("0.16.0"),
    ),
    Step(
        "unaligned-gather",
        "parameters are gathered in step with each other only by the interleaved schedule",
        f"{_MEGATRON}:586",
        does.unaligned_gather,
        ("align_param_gather",),
    ),
    Step(
        "whole-layer-graph",
        "the old name of a whole layer's graph is an empty list",
        f"{_MEGATRON}:1255-1260",
        does.whole_layer_scope,
        ("cuda_graph_scope",),
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "whole-layer-graph",
        "the old name of a whole layer's graph is an empty list",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/core/transformer/cuda_graph_config.py:40",
        does.whole_layer_modules,
        ("cuda_graph_modules",),
        VersionRange("0.18.0"),
    ),
    Step(
        "router-graph",
        "local graphs capture the router and what follows it together",
        f"{_CONFIG}:1723-1734",
        does.router_and_preprocess("cuda_graph_scope"),
        ("cuda_graph_scope",),
        VersionRange("0.16.0", "0.17"),
    ),
    Step(
        "router-graph",
        "local graphs capture the router and what follows it together",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/core/transformer/transformer_config.py:2248-2258",
        does.router_and_preprocess("cuda_graph_modules"),
        ("cuda_graph_modules",),
        VersionRange("0.18.0"),
    ),
    Step(
        "emerging-optimizer",
        "muon and its kin bring their own layer-wise distributed optimizer",
        "NVIDIA/Megatron-LM@core_v0.18.2:megatron/training/arguments.py:1559",
        does.emerging_optimizer,
        ("optimizer", "use_distributed_optimizer"),
        VersionRange("0.18.0"),
    ),
    Step(
        "moe-padding-alias",
        "the old name of router padding sets the new one",
        "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/transformer_config.py:1615",
        does.moe_padding_alias,
        ("moe_router_padding_for_quantization",),
        VersionRange("0.16.0"),
    ),
)

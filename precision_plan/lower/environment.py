"""The variables that the trainer's own code asks for, by rule rather than by plan field."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.versions import version
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason
from precision_plan.plan.environment import FIELD_VARIABLES, env_text

_MEGATRON = "NVIDIA/Megatron-LM@core_v0.16.1:megatron"
_ATTENTION = f"{_MEGATRON}/core/extensions/transformer_engine.py"

SHARDED = ("use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp")
"""Arguments that turn on fully sharded data parallelism."""


def trainer_variables(context: Context) -> tuple[Item, ...]:
    """Variables that Megatron demands and those of fake-quantized training, with reasons."""
    if not context.trains:
        return ()
    return (
        *_paths(context),
        *_connections(context),
        *_attention(context),
        *_fake_quantization(context),
    )


def _paths(context: Context) -> Iterator[Item]:
    path = context.get("launch.megatron_path")
    if path is None:
        return
    given = (context.plan.env.all or {}).get("PYTHONPATH")
    already = given is not None and path.rstrip("/") in (p.rstrip("/") for p in given.split(":"))
    value = path if given is None else given if already else f"{path}:{given}"
    yield Item(
        "PYTHONPATH", value, Reason("Megatron is imported from here", "launch.megatron_path")
    )


def _connections(context: Context) -> Iterator[Item]:
    """One hardware queue where communication has to stay ahead of the GEMM it overlaps."""
    capability = context.target.compute_capability
    sharded = any(context.argument(dest) for dest in SHARDED)
    overlapped = context.argument("overlap_moe_expert_parallel_comm")
    if capability is None or capability >= (10, 0) or sharded or overlapped:
        return
    for field in ("parallel.tensor_model_parallel_size", "parallel.context_parallel_size"):
        if (context.get(field) or 1) > 1:
            because = f"{field} > 1 below compute capability 10.0 demands it"
            source = f"{_MEGATRON}/training/arguments.py:951"
            yield Item("CUDA_DEVICE_MAX_CONNECTIONS", "1", Reason(because, field, source))
            return


def _attention(context: Context) -> Iterator[Item]:
    if context.argument("transformer_impl") != "transformer_engine":
        return
    if context.argument("apply_query_key_layer_scaling"):
        because = "TE's attention must scale as the flag says"
        field = "training.apply_query_key_layer_scaling"
        yield Item("NVTE_APPLY_QK_LAYER_SCALING", "1", Reason(because, field, f"{_ATTENTION}:1180"))
    if context.argument("deterministic_mode"):
        because = "deterministic mode refuses TE's non-deterministic kernels"
        field = "training.deterministic_mode"
        yield Item(
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", Reason(because, field, f"{_ATTENTION}:1255")
        )
    te = context.target.package("transformer_engine")
    offloads = context.argument("fine_grained_activation_offloading")
    if offloads and te is not None and version(te) >= version("2.10.0"):
        because = "activation offloading needs TE's first implementation from 2.10 on"
        field = "training.fine_grained_activation_offloading"
        source = f"{_MEGATRON}/training/arguments.py:1226"
        yield Item("NVTE_CPU_OFFLOAD_V1", "1", Reason(because, field, source))


def _fake_quantization(context: Context) -> Iterator[Item]:
    for field, name in FIELD_VARIABLES.items():
        value = context.get(field)
        if field.startswith("qat.") and value is not None:
            yield Item(name, env_text(value), Reason(field, field))

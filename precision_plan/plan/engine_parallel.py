"""What vLLM's parallel configuration refuses: ranges, heads, experts.

Source: vllm@0.33.0:vllm/config/model.py:1537-1568; vllm@0.33.0:vllm/config/parallel.py:521-620.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.vllm_options import limits
from precision_plan.plan.engine_model import ServedModel, whole
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.unknown import look_up

Refused = tuple[str, str, str, str | None]
"""Rule, message, plan field, and the field that it rests on."""

_TENSOR = "rollout.tensor_parallel_size"
_EXTRA = "launch.extra_args"
_STATE_BACKENDS = ("TRITON", "FLASHINFER", "CPU")
_LEVELS = ("0", "1", "2", "3")


def out_of_range(plan: PrecisionPlan) -> Iterator[tuple[str, str]]:
    """``(message, plan field)`` of engine arguments outside of what the configuration takes."""
    extra: Mapping[str, Any] = look_up(plan.launch.extra_args, _EXTRA)
    given = [(dest, value, f"rollout.{dest}") for dest, value in plan.rollout.set_items()]
    given += [(dest, value, _EXTRA) for dest, value in extra.items()]
    for dest, value, field in given:
        limit = limits().get(dest)
        if limit is None or not isinstance(value, (int, float)):
            continue
        broken = limit.broken(value)
        if broken is not None:
            yield f"{dest} is {value}; it must be {broken}", field
    backend = extra.get("mamba_backend")
    if isinstance(backend, str) and backend.upper() not in _STATE_BACKENDS:
        yield f"mamba_backend is {backend}; it must be triton, flashinfer or cpu", _EXTRA
    level = extra.get("optimization_level")
    if level is not None and str(level) not in _LEVELS:
        yield f"optimization_level is {level}; it must be 0 to 3", _EXTRA


def parallel_refusals(plan: PrecisionPlan, model: ServedModel) -> Iterator[Refused]:
    """Everything that is refused for the sake of numbers and ranks."""
    for message, field in out_of_range(plan):
        yield "PP415", message, field, None
    rollout = plan.rollout
    tensor = rollout.tensor_parallel_size or 1
    yield from _heads(plan, model, tensor)
    yield from _microbatches(plan)
    if rollout.enable_expert_parallel and model.experts() == 0:
        message = "expert parallelism of a model without experts"
        yield "PP445", message, "rollout.enable_expert_parallel", "model.num_experts"
    eplb, ranks = "rollout.enable_eplb", tensor * (rollout.data_parallel_size or 1)
    if rollout.enable_eplb and not rollout.enable_expert_parallel:
        message = "expert load balancing without expert parallelism"
        yield "PP442", message, eplb, "rollout.enable_expert_parallel"
    elif rollout.enable_eplb and ranks <= 1:
        yield "PP417", "expert load balancing needs tensor or data parallelism", eplb, _TENSOR
    config = look_up(plan.launch.extra_args, _EXTRA).get("eplb_config")
    redundant = config.get("num_redundant_experts") if isinstance(config, Mapping) else None
    if redundant and not rollout.enable_eplb:
        yield "PP417", "redundant experts without expert load balancing", eplb, None


def _microbatches(plan: PrecisionPlan) -> Iterator[Refused]:
    """Source: vllm@0.33.0:vllm/config/vllm.py:2171-2205."""
    extra: Mapping[str, Any] = look_up(plan.launch.extra_args, _EXTRA)
    backend = plan.rollout.all2all_backend or "allgather_reducescatter"
    if extra.get("enable_dbo") is True and backend not in _MICROBATCHING:
        known = ", ".join(_MICROBATCHING)
        message = f"microbatches (--enable-dbo) go with {known}, not with {backend}"
        yield "PP420", message, "rollout.all2all_backend", None


_MICROBATCHING = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")


def _heads(plan: PrecisionPlan, model: ServedModel, tensor: int) -> Iterator[Refused]:
    extra: Mapping[str, Any] = look_up(plan.launch.extra_args, _EXTRA)
    context = extra.get("decode_context_parallel_size")
    prefill = extra.get("prefill_context_parallel_size", 1)
    if type(context) is int and context > 0 and prefill == 1 and tensor % context:
        message = f"{tensor} tensor-parallel ranks do not hold {context} context-parallel ones"
        yield "PP416", message, _TENSOR, None
    kv_heads = whole(model.text.get("num_key_value_heads"))
    if type(context) is int and context > 1 and not model.latent and kv_heads is not None:
        if tensor <= kv_heads:
            message = f"context parallelism needs more ranks than the {kv_heads} key-value heads"
            yield "PP416", message, _TENSOR, "model.num_query_groups"
        elif context > tensor // kv_heads:
            message = f"at most {tensor // kv_heads} context-parallel ranks, not {context}"
            yield "PP416", message, _TENSOR, "model.num_query_groups"
    heads = whole(model.text.get("num_attention_heads"))
    if heads is not None and tensor > 0 and heads % tensor:
        message = f"{heads} attention heads cannot be shared by {tensor} tensor-parallel ranks"
        yield "PP416", message, _TENSOR, "model.num_attention_heads"

"""PP830 and PP832: tensor and expert parallel sizes against the rollout checkpoint's headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.shapes_rollout import engine_tp
from precision_plan.rules.sharding_arithmetic import (
    ATTENTION,
    Parallel,
    experts_of,
    faults,
    legal_parallel_sizes,
)
from precision_plan.rules.vllm_engine import refused

_FP8_UTILS = "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py"
_LINEAR = "vllm@0.33.0:vllm/model_executor/layers/linear.py"
_MOE = "vllm@0.33.0:vllm/model_executor/layers/fused_moe"
_EXPERT_PARALLEL = "rollout.enable_expert_parallel"
_SHOWN = 3


def parallel_of(ctx: Context, experts: bool | None = None) -> Parallel:
    """What the plan says of data and expert parallelism; ``experts`` in its place if given."""
    rollout = ctx.plan.rollout
    whole = rollout.enable_expert_parallel if experts is None else experts
    return Parallel(rollout.data_parallel_size or 1, bool(whole))


class LegalSizes(NamedTuple):
    """Tensor parallel sizes that a checkpoint takes; ``expert`` with expert parallelism.

    Each is also the number of expert parallel ranks, if there is no data parallelism beside it.
    """

    tensor: tuple[int, ...]
    expert: tuple[int, ...] | None


def legal_sizes(ctx: Context) -> LegalSizes | None:
    """The sizes of :data:`SIZES` that are legal; ``None`` if no header tells."""
    layers, cuts = ctx.checkpoint_layers, ctx.checkpoint_cuts
    if layers is None or not any(cut.what == "inputs" for cut in cuts):
        return None
    data = parallel_of(ctx).data
    whole = None
    if any(cut.experts for cut in cuts):
        held = experts_of(layers)
        found = legal_parallel_sizes(cuts, Parallel(data, experts=True))
        whole = tuple(size for size in found if held is None or size * data <= held)
    return LegalSizes(legal_parallel_sizes(cuts, Parallel(data)), whole)


def _in_words(ctx: Context) -> str:
    plain = _listed(legal_parallel_sizes(ctx.checkpoint_cuts, parallel_of(ctx)))
    whole = _listed(legal_parallel_sizes(ctx.checkpoint_cuts, parallel_of(ctx, experts=True)))
    return plain if plain == whole else f"{plain}; with expert parallelism {whole}"


@rule(
    "PP830",
    "tensor-parallel-size-cuts-checkpoint",
    "error",
    stage="build",
    source=(
        f"{_LINEAR}:1063-1071",
        f"{_LINEAR}:1706-1710",
        f"{_FP8_UTILS}:1296-1373",
        f"{_MOE}/oracle/fp8.py:292-395",
        f"{_MOE}/config.py:1106-1114",
        "vllm@0.33.0:vllm/distributed/utils.py:130-155",
        "vllm-project/vllm#17569",
    ),
)
def cuts_checkpoint(ctx: Context) -> Found:
    """A layer of the checkpoint cannot be divided by the tensor parallel size.

    Why:
        Each rank holds a part of every layer: whole heads, and whole blocks or groups that share
        a scale. vLLM refuses another size when it builds the layer, or gives ranks scales that
        are not theirs. Without expert parallelism, data-parallel ranks cut the experts further;
        with it experts stay whole. Key-value heads are copied if there are fewer than ranks.

    Bad:
        software: {framework: vllm, vllm: 0.28.0}
        rollout: {tensor_parallel_size: 8}
        files:
          config:
            model_type: qwen3_moe
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.experts.0.down_proj.weight: "F8_E4M3 [2048, 768]"
            model.layers.0.mlp.experts.0.down_proj.weight_scale_inv: "F32 [16, 6]"

    Good:
        software: {framework: vllm, vllm: 0.28.0}
        rollout: {tensor_parallel_size: 8, enable_expert_parallel: true}
        files:
          config:
            model_type: qwen3_moe
            quantization_config:
              {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
          tensors:
            model.layers.0.mlp.experts.0.down_proj.weight: "F8_E4M3 [2048, 768]"
            model.layers.0.mlp.experts.0.down_proj.weight_scale_inv: "F32 [16, 6]"
    """
    tensor, field = engine_tp(ctx)
    if tensor is None or not ctx.checkpoint_cuts:
        return None
    parallel = parallel_of(ctx)
    found = tuple(faults(ctx.checkpoint_cuts, tensor, parallel))
    if any(True for _ in refused(ctx, "PP416")):  # which speaks of the heads
        found = tuple(each for each in found if each[0].layer != ATTENTION)
    if not found:
        return None
    because = [Because(text) for _, text in found[1 : _SHOWN + 1]]
    if len(found) > _SHOWN + 1:
        because.append(Because(f"and {len(found) - _SHOWN - 1} more"))
    because.append(Because(f"legal tensor parallel sizes: {_in_words(ctx)}"))
    return ctx.found(found[0][1], field, *_given(ctx), *because, fix=_ways(ctx, tensor, field))


def _given(ctx: Context) -> Iterator[str]:
    for name in ("data_parallel_size", "enable_expert_parallel"):
        if ctx.plan.get(f"rollout.{name}") is not None:
            yield f"rollout.{name}"


def _ways(ctx: Context, tensor: int, field: str) -> tuple[Fix, ...]:
    """Expert parallelism where that is enough, and the largest smaller size."""
    found = []
    whole = parallel_of(ctx, experts=True)
    apart = any(cut.experts for cut in ctx.checkpoint_cuts)
    if apart and legal_parallel_sizes(ctx.checkpoint_cuts, whole, (tensor,)):
        found.append(set_to((_EXPERT_PARALLEL, True)))
    smaller = legal_parallel_sizes(ctx.checkpoint_cuts, parallel_of(ctx), range(1, tensor))
    if smaller and field.startswith("rollout."):
        found.append(set_to((field, smaller[-1])))
    elif smaller:  # the GPUs of an engine are pipeline stages times tensor parallelism
        found.append(Fix(f"a tensor parallel size of {smaller[-1]} in the engine"))
    return tuple(found) or (Fix("serve a checkpoint in another format"),)


@rule(
    "PP832",
    "experts-not-even-on-ranks",
    "error",
    stage="build",
    source=(f"{_MOE}/layer.py:270-285",),
)
def uneven_experts(ctx: Context) -> Found:
    """Expert load balancing needs as many experts on each rank.

    Why:
        Without it, ranks may hold one expert more than others. The load balancer exchanges slots
        one for one: vLLM raises ValueError if experts and redundant ones together are no multiple
        of the expert-parallel ranks.

    Bad:
        software: {framework: vllm}
        rollout:
          {tensor_parallel_size: 4, enable_expert_parallel: true, enable_eplb: true}
        files:
          tensors:
            model.layers.0.mlp.experts.{0..5}.down_proj.weight: "BF16 [64, 64]"

    Good:
        software: {framework: vllm}
        rollout:
          {tensor_parallel_size: 4, enable_expert_parallel: true, enable_eplb: true}
        launch: {extra_args: {eplb_config: {num_redundant_experts: 2}}}
        files:
          tensors:
            model.layers.0.mlp.experts.{0..5}.down_proj.weight: "BF16 [64, 64]"
    """
    layers, rollout = ctx.checkpoint_layers, ctx.plan.rollout
    if layers is None or not rollout.enable_eplb or not rollout.enable_expert_parallel:
        return None
    tensor, field = engine_tp(ctx)
    experts = experts_of(layers) if ctx.checkpoint_cuts else None
    if tensor is None or experts is None:
        return None
    config = (ctx.plan.launch.extra_args or {}).get("eplb_config")
    given = config.get("num_redundant_experts", 0) if isinstance(config, Mapping) else 0
    if config is not None and not isinstance(config, Mapping):
        return None
    ranks = tensor * (rollout.data_parallel_size or 1)
    if type(given) is not int or (experts + given) % ranks == 0:
        return None
    more = given + -(experts + given) % ranks
    redundant = f" and {given} redundant ones" if given else ""
    return ctx.found(
        f"{experts} experts{redundant} cannot be spread evenly over {ranks} ranks",
        "rollout.enable_eplb",
        field,
        *_given(ctx),
        fix=(
            Fix(f"num_redundant_experts: {more} in eplb_config"),
            set_to(("rollout.enable_eplb", None)),
        ),
    )


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes)) or "none"


RULES: tuple[Rule, ...] = (cuts_checkpoint, uneven_experts)

"""Where Megatron puts the decoder layers: the index that a layer has inside its model chunk.

A rank holds one chunk of consecutive layers, or several with a virtual pipeline, and numbers the
layers of each chunk from 0 (``NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/transformer/
transformer_layer.py:39-175``, ``.../transformer_block.py:75-202``).
"""

from __future__ import annotations

from precision_plan.plan.precision_plan import PrecisionPlan

_OTHER_LAYOUTS = (
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
"""Flags without a plan field that distribute layers in another way."""


def stages(plan: PrecisionPlan) -> int:
    """Number of pipeline stages; Megatron has one if none is asked for."""
    return plan.parallel.pipeline_model_parallel_size or 1


def virtual_stages(plan: PrecisionPlan) -> int | None:
    """Number of model chunks of a rank; ``None`` where a flag or number decides that is not known.

    Source: NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py:517-556.
    """
    per_chunk = plan.parallel.num_layers_per_virtual_pipeline_stage
    if _other_layout(plan):
        return None
    if per_chunk is None:
        return plan.parallel.virtual_pipeline_model_parallel_size or 1
    layers = plan.model.num_layers
    return None if layers is None else max(layers // stages(plan) // per_chunk, 1)


def _other_layout(plan: PrecisionPlan) -> bool:
    given = {str(key).lstrip("-").replace("-", "_") for key in plan.launch.extra_args or {}}
    return not given.isdisjoint(_OTHER_LAYOUTS)


def local_layers(plan: PrecisionPlan) -> tuple[int, ...] | None:
    """Index inside its chunk of every decoder layer, in order of the layers.

    ``None`` if the number of layers is not known, if a flag that the plan does not model
    distributes them, or if they cannot be distributed as asked.
    """
    layers = plan.model.num_layers
    if layers is None:
        return None
    if stages(plan) == 1:
        return tuple(range(layers))
    if _other_layout(plan):
        return None
    chunks = _chunks(plan, layers)
    return None if chunks is None else tuple(at for size in chunks for at in range(size))


def _chunks(plan: PrecisionPlan, layers: int) -> list[int] | None:
    """Sizes of the chunks in order of their layers."""
    sizes = _ranks(plan, layers)
    if sizes is None:
        return None
    parallel = plan.parallel
    virtual = parallel.virtual_pipeline_model_parallel_size or 1
    per_chunk = parallel.num_layers_per_virtual_pipeline_stage
    if per_chunk is not None:
        virtual, rest = divmod(layers // stages(plan), per_chunk)
        if rest or not virtual:
            return None
    if any(size % virtual for size in sizes):
        return None
    return [size // virtual for size in sizes] * virtual


def _ranks(plan: PrecisionPlan, layers: int) -> list[int] | None:
    """Number of layers of each pipeline rank; the ends may be given, the others are equal."""
    first = plan.parallel.decoder_first_pipeline_num_layers
    last = plan.parallel.decoder_last_pipeline_num_layers
    before = [] if first is None else [first]
    after = [] if last is None else [last]
    rest = layers - sum(before) - sum(after)
    others = stages(plan) - len(before) - len(after)
    if rest == 0 and others >= 0:
        return [*before, *after]
    if rest < 0 or others < 1 or rest % others:
        return None
    return [*before, *([rest // others] * others), *after]

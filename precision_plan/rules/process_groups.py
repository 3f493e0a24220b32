"""PP820 to PP823: process groups and graphs that Megatron checks before any precision setting."""

from __future__ import annotations

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron

_SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
)


def trainer_world_size(ctx: Context) -> tuple[int, str] | None:
    """GPUs of the trainer and the plan field that tells; ``None`` if it is not declared.

    RL frameworks give the trainer its own share (``--actor-num-nodes`` times
    ``--actor-num-gpus-per-node``); elsewhere it has the whole machine.
    """
    launch = ctx.plan.launch
    if launch.actor_num_nodes is not None and launch.actor_num_gpus_per_node is not None:
        return launch.actor_num_nodes * launch.actor_num_gpus_per_node, "launch.actor_num_nodes"
    if ctx.target.framework in RL_FRAMEWORKS or ctx.target.world_size is None:
        return None
    return ctx.target.world_size, "hardware.gpus_per_node"


def _weight_shards(ctx: Context, tensor_parallel: int) -> int:
    """How many ways weights are sharded beside tensor parallelism (0.19 and later)."""
    shards = ctx.args.tensor_parallel_num_weight_shards
    return max(shards // tensor_parallel, 1) if shards else 1


@rule(
    "PP820",
    "world-size-not-a-multiple-of-model-size",
    "error",
    stage="validate",
    source=(arguments("314-319"), arguments(430, "core_v0.19.0")),
)
def world_size(ctx: Context) -> Found:
    """The GPUs of the trainer are a whole number of model copies.

    Why:
        One copy of the model takes tensor x pipeline x context parallel GPUs (from 0.19 also times
        the weight shards beyond tensor parallelism); the rest of the job is data parallel over
        such copies. validate_args refuses a remainder.

    Bad:
        hardware: {nodes: 1, gpus_per_node: 4}
        software: {framework: megatron-lm}
        parallel: {tensor_model_parallel_size: 8}

    Good:
        hardware: {nodes: 1, gpus_per_node: 8}
        software: {framework: megatron-lm}
        parallel: {tensor_model_parallel_size: 8}
    """
    known = trainer_world_size(ctx)
    if known is None:
        return None
    gpus, field = known
    tensor, pipeline, context = (getattr(ctx.args, size) or 1 for size in _SIZES)
    shards = _weight_shards(ctx, tensor)
    model = tensor * pipeline * context * shards
    if gpus % model == 0:
        return None
    factors = [size for size in _SIZES if ctx.plan.get(f"parallel.{size}")]
    also = () if shards == 1 else ("parallel.tensor_parallel_num_weight_shards",)
    return ctx.found(
        f"{gpus} GPUs hold no whole number of model copies: one copy takes {model}",
        f"parallel.{factors[0]}" if factors else field,
        *(f"parallel.{size}" for size in factors[1:]),
        *also,
        Because(f"the trainer has {gpus} GPUs", field=field),
        fix=(Fix(f"give the trainer a multiple of {model} GPUs"),),
    )


@rule(
    "PP821",
    "local-attention-needs-local-spec",
    "error",
    stage="validate",
    source=(arguments(321),),
)
def local_attention(ctx: Context) -> Found:
    """The local attention backend exists in Megatron's local layers only.

    Why:
        ``--attention-backend local`` is Megatron's own attention, which only the layers of
        ``--spec local`` have. Without that flag validate_args stops, with a message about the
        spec or, if no spec is given at all, with a bare TypeError.

    Bad:
        software: {framework: megatron-lm}
        training: {attention_backend: local}

    Good:
        software: {framework: megatron-lm}
        training: {attention_backend: local}
        launch: {extra_args: {spec: [local]}}
    """
    if ctx.args.attention_backend != "local":
        return None
    spec = ctx.extra("spec")
    first = spec[0] if isinstance(spec, (list, tuple)) and spec else spec
    if first == "local":
        return None
    return ctx.found(
        "training.attention_backend = local needs --spec local",
        "training.attention_backend",
        Because("--spec is not given" if first is None else f"--spec starts with {first}"),
        fix=(
            set_to(("training.attention_backend", "unfused")),
            set_to(("launch.extra_args.spec", ["local"])),
        ),
    )


_INFERENCE_SCOPES = {
    "none": ("none",),
    "local": ("layer", "block"),
    "transformer_engine": ("none",),
    "full_iteration": ("none",),
}
"""Inference graph scopes that each training graph implementation leaves room for."""


@rule(
    "PP822",
    "inference-graph-scope-without-local-graphs",
    "error",
    stage="validate",
    source=(
        arguments("640-646", "core_v0.18.2"),
        megatron("core/transformer/cuda_graph_config.py:17-22", "core_v0.18.2"),
    ),
    versions=core("0.18.0"),
)
def inference_scope(ctx: Context) -> Found:
    """Inference graphs by layer or block come with local CUDA graphs.

    Why:
        Only the local implementation captures inference, and it always does, by layer or by
        block; the others know no inference scope but ``none``. validate_args refuses the rest.

    Bad:
        software: {megatron_core: 0.18.2}
        inference: {inference_cuda_graph_scope: layer}

    Good:
        software: {megatron_core: 0.18.2}
        training: {cuda_graph_impl: local, te_rng_tracker: true}
        inference: {inference_cuda_graph_scope: layer}
    """
    scope = ctx.args.inference_cuda_graph_scope
    implementation = ctx.args.cuda_graph_impl
    if scope is None or scope in _INFERENCE_SCOPES.get(implementation, (scope,)):
        return None
    allowed = " or ".join(_INFERENCE_SCOPES[implementation])
    return ctx.found(
        f"inference.inference_cuda_graph_scope = {scope} must be {allowed} "
        f"with training.cuda_graph_impl = {implementation}",
        "inference.inference_cuda_graph_scope",
        "training.cuda_graph_impl",
        fix=(
            set_to(("inference.inference_cuda_graph_scope", None)),
            set_to(("training.cuda_graph_impl", "local")),
        ),
    )


@rule(
    "PP823",
    "evaluation-batch-not-a-multiple",
    "error",
    stage="validate",
    source=(arguments(710, "core_v0.18.2"), arguments("715-720", "HEAD")),
    frameworks=("megatron-lm",),
    versions=core("0.18.0"),
)
def evaluation_batch(ctx: Context) -> Found:
    """The evaluation batch is a whole number of micro batches on every rank.

    Why:
        Without ``--eval-global-batch-size`` the training batch is taken, and without
        ``--global-batch-size`` that is one micro batch per data parallel rank. At the development
        head weight shards beyond tensor parallelism evaluate data of their own, so that this
        default no longer divides. validate_args refuses a remainder.

    Bad:
        hardware: {nodes: 1, gpus_per_node: 8}
        software: {framework: megatron-lm, megatron_core: HEAD}
        parallel: {tensor_parallel_num_weight_shards: 2}
        training: {micro_batch_size: 1}

    Good:
        hardware: {nodes: 1, gpus_per_node: 8}
        software: {framework: megatron-lm, megatron_core: HEAD}
        parallel: {tensor_parallel_num_weight_shards: 2}
        training: {micro_batch_size: 1, global_batch_size: 8}
    """
    known = trainer_world_size(ctx)
    micro = ctx.plan.training.micro_batch_size
    if known is None or micro is None:
        return None
    tensor, pipeline, context = (getattr(ctx.args, size) or 1 for size in _SIZES)
    shards = _weight_shards(ctx, tensor)
    ranks, remainder = divmod(known[0], tensor * pipeline * context * shards)
    if remainder or not ranks:
        return None  # PP820 speaks
    batch = ctx.extra("eval_global_batch_size") or ctx.plan.training.global_batch_size
    step = (ctx.extra("eval_micro_batch_size") or micro) * ranks
    step *= shards if ctx.core_since("HEAD") else 1
    if (batch or micro * ranks) % step == 0:
        return None
    return ctx.found(
        f"an evaluation batch of {batch or micro * ranks} is no multiple of {step} samples",
        "training.global_batch_size" if batch else "training.micro_batch_size",
        Because(f"{ranks} data parallel ranks, {shards} weight shards beyond tensor parallelism"),
        fix=(set_to(("training.global_batch_size", step), also=" or a multiple of it"),),
    )


RULES: tuple[Rule, ...] = (world_size, local_attention, inference_scope, evaluation_batch)

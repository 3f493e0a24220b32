"""PP371: recomputation together with CUDA graphs, whose limits changed twice."""

from __future__ import annotations

from dataclasses import dataclass

from precision_plan.plan import Stage
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.graphs import full_iteration, graph_scopes, graphs_of
from precision_plan.rules.sources import arguments, transformer_config

_MEGATRON_DROPOUT = 0.1
"""Megatron's default of both dropouts on the command line."""


@dataclass(frozen=True, slots=True)
class _Conflict:
    """What a CUDA graph excludes, the field that asks for it, and where it is refused."""

    what: str
    field: str
    stage: Stage | None = None


@rule(
    "PP371",
    "cuda-graph-with-recompute",
    "error",
    stage="transformer_config",
    source=(
        transformer_config("1755-1830"),
        transformer_config("1398-1408", "core_v0.15.3"),
        arguments(1203, "core_v0.15.3"),
    ),
)
def cuda_graph_recompute(ctx: Context) -> Found:
    """CUDA graphs and recomputation go together in few ways.

    Why:
        A captured layer replays fixed kernels: it can neither be run again by full recomputation
        nor draw new dropout masks. Up to Megatron 0.14 local graphs exclude recomputation; 0.15
        allows selective recomputation beside TE graphs of the attention; later versions allow full
        recomputation in a graph of the whole iteration, and selective recomputation of captured
        modules without dropout.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: local, recompute_granularity: full,
                   recompute_method: uniform, recompute_num_layers: 1}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: local}
    """
    granularity = ctx.args.recompute_granularity
    if granularity is None:
        return None
    graphs = graphs_of(ctx)
    if graphs is None:
        return None
    if ctx.core_since("0.16.0"):
        conflict = _recent(ctx, graphs[0], granularity)
    elif ctx.core_since("0.15.0"):
        conflict = _of_015(ctx, graphs[0], granularity)
    else:
        conflict = _up_to_014(ctx, graphs[0], granularity)
    if conflict is None:
        return None
    return ctx.found(
        f"CUDA graphs of the {graphs[0]} implementation exclude {conflict.what}",
        conflict.field,
        graphs[1],
        "training.recompute_granularity",
        fix=(set_to((graphs[1], None)), set_to((conflict.field, None))),
        stage=conflict.stage,
    )


def _modules(ctx: Context) -> tuple[str, ...]:
    return tuple(ctx.args.recompute_modules or ("core_attn",))


def _up_to_014(ctx: Context, implementation: str, granularity: str) -> _Conflict | None:
    if implementation == "local":
        return _Conflict("recomputation", "training.recompute_granularity")
    if granularity == "full" and ctx.core_since("0.14.0"):
        return _Conflict("full recomputation", "training.recompute_granularity", "validate")
    return None


def _of_015(ctx: Context, implementation: str, granularity: str) -> _Conflict | None:
    scope = ctx.plan.training.cuda_graph_scope or ("full",)
    if granularity == "full":
        return _Conflict("full recomputation", "training.recompute_granularity", "validate")
    if implementation != "transformer_engine" or tuple(scope) != ("attn",):
        return _Conflict("recomputation outside the attention", "training.recompute_granularity")
    captured = {"core_attn", "mla_up_proj"}.intersection(_modules(ctx))
    if captured:
        return _Conflict(f"recomputing {' and '.join(sorted(captured))}", _recomputed_field(ctx))
    return None


def _recent(ctx: Context, implementation: str, granularity: str) -> _Conflict | None:
    if granularity == "full":
        alone = ctx.core_since("0.18.0") or len(graph_scopes(ctx)) == 1
        if full_iteration(ctx, implementation) and alone:
            return None
        return _Conflict("full recomputation", "training.recompute_granularity")
    model = ctx.plan.model
    scope = {*graph_scopes(ctx)} - {"full"}
    whole = not scope or full_iteration(ctx, implementation)
    modules = _modules(ctx)
    if implementation == "transformer_engine" and "moe" in modules and "moe_router" in scope:
        return _Conflict("recomputing moe around a captured router", "training.recompute_modules")
    attention = _MEGATRON_DROPOUT if model.attention_dropout is None else model.attention_dropout
    if attention and "core_attn" in modules and (whole or "attn" in scope):
        return _Conflict("recomputing attention with dropout", _recomputed_field(ctx))
    hidden = _MEGATRON_DROPOUT if model.hidden_dropout is None else model.hidden_dropout
    for name in ("mlp", "moe"):
        if hidden and name in modules and (whole or name in scope):
            return _Conflict(f"recomputing {name} with dropout", "training.recompute_modules")
    return None


def _recomputed_field(ctx: Context) -> str:
    if ctx.plan.training.recompute_modules is None:
        return "training.recompute_granularity"
    return "training.recompute_modules"


RULES: tuple[Rule, ...] = (cuda_graph_recompute,)

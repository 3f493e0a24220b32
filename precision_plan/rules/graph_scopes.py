"""PP385: what CUDA graphs may capture."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron_values import listed_values
from precision_plan.plan import Stage
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.graphs import graph_scopes, graphs_of, scope_field
from precision_plan.rules.sources import arguments, core, transformer_config

_OLD = frozenset({"full_iteration", "full_iteration_inference"})
"""Scopes that became implementations in 0.18."""


@rule(
    "PP385",
    "cuda-graph-scope-does-not-fit",
    "error",
    stage="transformer_config",
    source=(
        transformer_config("1699-1778"),
        arguments("1255-1260"),
        transformer_config("2245-2295", "core_v0.18.2"),
    ),
    versions=core("0.16.0"),
)
def scope_fits(ctx: Context) -> Iterator[Finding]:
    """CUDA graphs are to capture what the model does not have, or what cannot be captured.

    Why:
        From 0.16 on ``--cuda-graph-scope`` (from 0.18 on ``--cuda-graph-modules``) names parts of
        a layer. TransformerConfig refuses expert parts without experts, dense parts without dense
        layers, whole experts whose number of tokens varies, overlapping parts, and a whole
        iteration in graphs of Transformer Engine.

    Bad:
        software: {megatron_core: 0.16.1}
        model: {num_layers: 4}
        training: {bf16: true, cuda_graph_impl: local, cuda_graph_scope: [attn, moe_router]}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, cuda_graph_impl: local, cuda_graph_scope: [attn, moe_router]}
    """
    scopes, field = graph_scopes(ctx), scope_field(ctx)
    if "full" in scopes and len(scopes) > 1:
        yield _refused(ctx, "full means the whole layer and stands alone", field, stage="validate")
        return
    flag = f"--{field.partition('.')[2].replace('_', '-')}"
    known = listed_values(flag, ctx.effective.megatron_core)
    unknown = [scope for scope in scopes if scope not in known]
    if unknown:
        names = f"{', '.join(unknown)} cannot be captured; known: {', '.join(known)}"
        yield _refused(ctx, names, field, stage="parse")
        return
    graphs = graphs_of(ctx)
    if ctx.core_since("0.18.0"):
        clash = _one_of_old_and_new(ctx, scopes, "none" if graphs is None else graphs[0])
        if clash is not None:
            yield _refused(ctx, clash, field, stage="validate")
            return
    if graphs is None or graphs[0] == "full_iteration" or not scopes:
        return
    for problem, premise in _problems(ctx, {*scopes}, graphs[0]):
        yield _refused(ctx, problem, field, graphs[1], *premise)


def _refused(
    ctx: Context, problem: str, field: str, *premises: str, stage: Stage | None = None
) -> Finding:
    return ctx.found(
        f"{ctx.shown(field)}: {problem}",
        field,
        *premises,
        fix=(set_to((field, None)),),
        stage=stage,
    )


def _one_of_old_and_new(ctx: Context, scopes: tuple[str, ...], implementation: str) -> str | None:
    """Why 0.18 cannot turn an old scope into an implementation; ``None`` if it can."""
    old = sorted(_OLD.intersection(scopes))
    if len(old) > 1:
        return f"{' and '.join(old)} exclude each other"
    whole = old == ["full_iteration"]
    refused = {"transformer_engine"} if whole else {"transformer_engine", "full_iteration"}
    if old and implementation in refused:
        return f"{old[0]} excludes {implementation} graphs"
    asked = ctx.args.inference_cuda_graph_scope
    if old and asked not in {None, "none" if whole else "block"}:
        return f"{old[0]} excludes an inference scope of {asked}"
    if (whole or implementation == "full_iteration") and {*scopes} - {*old, "full"}:
        return "a graph of the whole iteration has no parts"
    return None


def _problems(
    ctx: Context, scopes: set[str], implementation: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each problem, with the plan fields that it rests on."""
    model, args = ctx.plan.model, ctx.args
    if implementation == "local" and scopes & {"moe_router", "moe_preprocess"}:
        scopes = scopes | {"moe_router", "moe_preprocess"}  # captured together
    if implementation == "transformer_engine" and "full_iteration" in scopes:
        yield "a whole iteration needs local graphs", ()
    if {"moe", "moe_router"} <= scopes:
        yield "moe contains moe_router", ()
    if "moe_preprocess" in scopes and "moe_router" not in scopes:
        yield "moe_preprocess needs moe_router", ()
    if model.num_experts is None and model.num_layers is None:
        return  # nothing is known of the model
    if (model.num_experts or 0) <= 1:
        if scopes & {"moe", "moe_router"}:
            yield "the model has no experts", ("model.num_experts",)
        return
    frequency = model.moe_layer_freq or 1
    if "mlp" in scopes and (frequency == 1 if isinstance(frequency, int) else 0 not in frequency):
        yield "every layer has experts, none is dense", ("model.moe_layer_freq",)
    factor = ctx.extra("moe_expert_capacity_factor")
    if isinstance(factor, (int, float)) and factor < 0:
        factor = None  # Megatron's way to say that there is none
    if factor is not None and ctx.extra("moe_pad_expert_input_to_capacity"):
        return
    if "moe" in scopes:
        yield "experts can be captured only if they are padded to a capacity", ()
    waits = factor is not None or args.moe_router_padding_for_fp8
    if "moe_preprocess" in scopes and waits and args.moe_token_dispatcher_type == "alltoall":
        yield (
            "preprocessing waits for the host in the alltoall dispatcher",
            ("training.moe_token_dispatcher_type",),
        )


RULES: tuple[Rule, ...] = (scope_fits,)

"""PP367 to PP370 and PP372: CUDA graphs."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"

_SEGMENTS = "expandable_segments:True"


def graphs_of(ctx: Context) -> tuple[str, str] | None:
    """The CUDA graph implementation that is on, and the plan field that asks for it."""
    args = ctx.args
    if args.cuda_graph_impl not in {"none", None}:
        field = ctx.given.get("cuda_graph_impl")
        if field is None:
            field = f"training.{'enable' if args.enable_cuda_graph else 'external'}_cuda_graph"
        return args.cuda_graph_impl, field
    if args.external_cuda_graph:
        return "transformer_engine", "training.external_cuda_graph"
    return ("local", "training.enable_cuda_graph") if args.enable_cuda_graph else None


def graph_scopes(ctx: Context) -> tuple[str, ...]:
    """What the graphs were asked to capture, by either name of the flag."""
    training = ctx.plan.training
    return (*(training.cuda_graph_scope or ()), *(training.cuda_graph_modules or ()))


def scope_field(ctx: Context) -> str:
    """The plan field that asks for the scopes."""
    named = ctx.plan.training.cuda_graph_modules is not None
    return "training.cuda_graph_modules" if named else "training.cuda_graph_scope"


@rule(
    "PP367",
    "cuda-graph-switches-disagree",
    "error",
    stage="validate",
    source=(arguments("434-440"), arguments("1101-1104", "core_v0.14.0")),
    versions=core("0.14.0"),
)
def cuda_graph_switches(ctx: Context) -> Found:
    """CUDA graphs are asked for in one way, not in two.

    Why:
        ``--enable-cuda-graph`` and ``--external-cuda-graph`` are the old spellings of
        ``--cuda-graph-impl local`` and ``transformer_engine``. validate_args refuses both at once,
        and from 0.15 on either of them beside the new flag.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, enable_cuda_graph: true, external_cuda_graph: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: transformer_engine}
    """
    args = ctx.args
    if not (args.enable_cuda_graph or args.external_cuda_graph):
        return None
    if args.enable_cuda_graph and args.external_cuda_graph:
        return ctx.found(
            "training.enable_cuda_graph and training.external_cuda_graph exclude each other",
            "training.enable_cuda_graph",
            "training.external_cuda_graph",
            fix=(set_to(("training.enable_cuda_graph", None)),),
        )
    if ctx.parsed.cuda_graph_impl in {"none", None}:
        return None
    old = f"training.{'enable' if args.enable_cuda_graph else 'external'}_cuda_graph"
    return ctx.found(
        f"{old} = true excludes {ctx.shown('training.cuda_graph_impl')}",
        old,
        "training.cuda_graph_impl",
        fix=(set_to((old, None)),),
    )


@rule(
    "PP368",
    "full-iteration-graph-with-nan-check",
    "error",
    stage="validate",
    source=(arguments(727), arguments(1235, "HEAD")),
    versions=core("0.14.0"),
)
def full_iteration_nan_check(ctx: Context) -> Found:
    """A graph of the whole iteration leaves no room for the NaN check.

    Why:
        ``--check-for-nan-in-loss-and-grad`` reads values back on the host, which a captured graph
        cannot do. It is on by default and must be switched off by name. With dynamic inference
        batching Megatron 0.15 and 0.16 exclude FP8 instead.

    Bad:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, cuda_graph_impl: full_iteration}

    Good:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, cuda_graph_impl: full_iteration,
                   check_for_nan_in_loss_and_grad: false}
    """
    old = "training.cuda_graph_scope" if ctx.is_set("training.cuda_graph_scope") else None
    implementation, field = graphs_of(ctx) or ("none", old or "training.cuda_graph_modules")
    if not full_iteration(ctx, implementation):
        return None
    args = ctx.args
    if ctx.extra("inference_dynamic_batching") and _dynamic_inference_excludes_fp8(ctx):
        if not args.fp8:
            return None
        return ctx.found(
            "a CUDA graph of the full iteration excludes FP8 in dynamic inference",
            field,
            "training.fp8_format",
            fix=(set_to(("training.fp8_format", None)), set_to((field, None))),
        )
    if not args.check_for_nan_in_loss_and_grad:
        return None
    return ctx.found(
        "a CUDA graph of the full iteration needs training.check_for_nan_in_loss_and_grad = false",
        field,
        "training.check_for_nan_in_loss_and_grad",
        fix=(set_to(("training.check_for_nan_in_loss_and_grad", False)),),
    )


def full_iteration(ctx: Context, implementation: str) -> bool:
    """True if the graph holds a whole iteration, in the spelling of the version at hand."""
    if "full_iteration" in graph_scopes(ctx):
        return ctx.core_since("0.18.0") or implementation == "local"
    return implementation == "full_iteration"


def _dynamic_inference_excludes_fp8(ctx: Context) -> bool:
    return ctx.core_since("0.15.0") and not ctx.core_since("0.17.0")


@rule(
    "PP369",
    "inference-graph-in-fp8",
    "error",
    stage="validate",
    source=(arguments("1010-1016", "core_v0.17.1"), arguments("1190-1196", "core_v0.18.2")),
    versions=core("0.17.0"),
)
def inference_graph_fp8(ctx: Context) -> Found:
    """One graph for a whole block of inference takes FP8 in one form only.

    Why:
        ``--inference-cuda-graph-scope block`` (in 0.17 the scope ``full_iteration_inference``)
        with FP8 needs the inference-optimized layers and the mxfp8 recipe.

    Bad:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, cuda_graph_impl: local}
        inference: {inference_cuda_graph_scope: block}

    Good:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, cuda_graph_impl: local}
        inference: {inference_cuda_graph_scope: block}
    """
    args = ctx.args
    if not args.fp8:
        return None
    field = "inference.inference_cuda_graph_scope"
    if args.inference_cuda_graph_scope != "block":
        if "full_iteration_inference" not in graph_scopes(ctx) or args.cuda_graph_impl != "local":
            return None
        field = scope_field(ctx)
    if args.transformer_impl == "inference_optimized" and args.fp8_recipe == "mxfp8":
        return None
    return ctx.found(
        "one CUDA graph for a whole block of FP8 inference needs the inference-optimized layers "
        "and the mxfp8 recipe",
        field,
        "training.transformer_impl",
        "training.fp8_recipe",
        fix=(set_to((field, "layer" if field.startswith("inference") else None)),),
    )


@rule(
    "PP370",
    "cuda-graph-with-expandable-segments",
    "error",
    stage="validate",
    source=(arguments(1248), arguments(1198, "core_v0.15.3")),
    versions=core("0.14.0"),
)
def cuda_graph_segments(ctx: Context) -> Found:
    """CUDA graphs and expandable segments of the allocator need a third setting between them.

    Why:
        A graph that holds NCCL buffers in expandable segments reads freed memory. Megatron 0.14
        and 0.15 refuse the pair; from 0.16 on ``NCCL_GRAPH_REGISTER=0`` makes it acceptable.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: transformer_engine}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, cuda_graph_impl: transformer_engine}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True", NCCL_GRAPH_REGISTER: "0"}}
    """
    found = ctx.train_env.get(_ALLOCATOR)
    if found is None or _SEGMENTS not in found[0]:
        return None
    graphs = graphs_of(ctx)
    if graphs is None:
        return None
    recent = ctx.core_since("0.16.0")
    if graphs[0] != "transformer_engine" and (recent or not ctx.core_since("0.15.0")):
        return None
    if recent and ctx.env("NCCL_GRAPH_REGISTER") == "0":
        return None
    variable = "env.all.NCCL_GRAPH_REGISTER"
    fixes: tuple[Fix, ...] = (set_to((found[1], None)),)
    if recent:
        fixes = (Fix(f'{variable}: "0"', {variable: "0"}), *fixes)
    return ctx.found(
        f"{_ALLOCATOR}={found[0]} excludes CUDA graphs"
        + (" without NCCL_GRAPH_REGISTER=0" if recent else ""),
        found[1],
        graphs[1],
        fix=fixes,
    )


@rule(
    "PP372",
    "external-graph-needs-rng-tracker",
    "error",
    stage="validate",
    source=(arguments(1083, "core_v0.13.0"),),
    versions=core("0.13.0", "0.13"),
)
def external_graph_rng(ctx: Context) -> Found:
    """In Megatron 0.13 TE's CUDA graphs need TE's random number tracker by name.

    Why:
        Later versions switch ``--te-rng-tracker`` on by themselves; 0.13 asserts it.

    Bad:
        software: {megatron_core: 0.13.0}
        training: {bf16: true, external_cuda_graph: true}

    Good:
        software: {megatron_core: 0.13.0}
        training: {bf16: true, external_cuda_graph: true, te_rng_tracker: true}
    """
    args = ctx.args
    if not args.external_cuda_graph or args.te_rng_tracker:
        return None
    return ctx.found(
        "training.external_cuda_graph = true needs training.te_rng_tracker",
        "training.external_cuda_graph",
        "training.te_rng_tracker",
        fix=(set_to(("training.te_rng_tracker", True)),),
    )


RULES: tuple[Rule, ...] = (
    cuda_graph_switches,
    full_iteration_nan_check,
    inference_graph_fp8,
    cuda_graph_segments,
    external_graph_rng,
)

"""PP349 and PP356 to PP358: communication and parameter layout of experts."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.plan.pipeline import virtual_stages
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.graphs import graph_scopes, graphs_of
from precision_plan.rules.sources import arguments, core, megatron, transformer_config


@rule(
    "PP356",
    "expert-overlap-limits",
    "error",
    stage="transformer_config",
    source=(transformer_config("1852-1906"),),
    versions=core("0.14.0"),
)
def expert_overlap(ctx: Context) -> Iterator[Finding]:
    """Overlapping expert-parallel communication needs a half-precision model and EP.

    Why:
        TransformerConfig asserts bf16 or fp16, an expert-parallel size above 1, the alltoall or
        flex dispatcher, virtual stages where there is a pipeline, no full recomputation (nor,
        from 0.17 on, recomputation of whole experts), at most one layer of multi-token prediction
        and no CUDA graph of the experts.

    Bad:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {overlap_moe_expert_parallel_comm: true}
        training: {bf16: true, moe_token_dispatcher_type: alltoall}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {overlap_moe_expert_parallel_comm: true, expert_model_parallel_size: 8}
        training: {bf16: true, moe_token_dispatcher_type: alltoall}
    """
    if not ctx.args.overlap_moe_expert_parallel_comm:
        return
    field = "parallel.overlap_moe_expert_parallel_comm"
    for met, demand, premise in (*_overlap_basics(ctx), *_overlap_layers(ctx)):
        if not met:
            yield ctx.found(
                f"{field} = true needs {demand}", field, premise, fix=(set_to((field, None)),)
            )


_Demand = tuple[object, str, str]
"""Whether it is met, what it is, and the plan field that decides it."""


def _overlap_basics(ctx: Context) -> tuple[_Demand, ...]:
    args, plan = ctx.args, ctx.plan
    training = plan.training
    return (
        (args.bf16 or args.fp16, "a bf16 or fp16 model", "training.bf16"),
        (
            (plan.parallel.expert_model_parallel_size or 1) > 1,
            "expert parallelism",
            "parallel.expert_model_parallel_size",
        ),
        (
            args.moe_token_dispatcher_type in {"alltoall", "flex"},
            "the alltoall or flex dispatcher",
            "training.moe_token_dispatcher_type",
        ),
        (
            args.recompute_granularity != "full" and training.recompute_method is None,
            "no full recomputation",
            "training.recompute_granularity",
        ),
        (
            training.recompute_num_layers is None,
            "training.recompute_num_layers not to be set",
            "training.recompute_num_layers",
        ),
        (
            not ctx.core_since("0.17.0") or "moe" not in (args.recompute_modules or ()),
            "moe not to be recomputed",
            "training.recompute_modules",
        ),
        (
            not ctx.extra("moe_shared_expert_overlap"),
            "no overlap of the shared experts",
            "launch.extra_args",
        ),
    )


def _overlap_layers(ctx: Context) -> tuple[_Demand, ...]:
    """Demands on pipeline, multi-token prediction and graphs."""
    predicted = ctx.plan.model.mtp_num_layers
    stages = ctx.plan.parallel.pipeline_model_parallel_size or 1
    one_stage = ctx.core_since("0.16.0") and not ctx.core_since("0.18.0")
    scopes = {*graph_scopes(ctx)}
    graphs = graphs_of(ctx) if ctx.core_since("0.16.0") else None
    implementation = "none" if graphs is None else graphs[0]
    captured = implementation == "transformer_engine" and scopes & {"moe", "mlp"}
    return (
        (
            stages == 1 or virtual_stages(ctx.plan) != 1,
            "virtual stages in a pipeline",
            "parallel.virtual_pipeline_model_parallel_size",
        ),
        (
            predicted in {None, 1} or (predicted == 0 and ctx.core_since("0.19.0")),
            "at most one layer of multi-token prediction",
            "model.mtp_num_layers",
        ),
        (
            not one_stage or predicted != 1 or stages > 1,
            "a pipeline for the layer of multi-token prediction",
            "model.mtp_num_layers",
        ),
        (
            not captured and (implementation != "local" or ctx.core_since("0.18.0")),
            "no CUDA graph of the experts",
            "training.cuda_graph_impl" if not captured else "training.cuda_graph_scope",
        ),
    )


@rule(
    "PP357",
    "quantized-dispatch-limits",
    "error",
    stage="transformer_config",
    source=(transformer_config("1781-1800", "HEAD"),),
    versions=core("HEAD"),
)
def quantized_dispatch(ctx: Context) -> Iterator[Finding]:
    """MXFP8 on the wire between experts needs the flex dispatcher and grouped GEMMs.

    Why:
        ``--moe-dispatch-fwd-dtype`` and ``--moe-combine-bwd-dtype`` other than bf16 are refused
        unless the flex dispatcher runs on its ncclep backend, with grouped GEMMs through TE's
        operation fuser.

    Bad:
        software: {megatron_core: HEAD}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_dispatch_fwd_dtype: mxfp8}

    Good:
        software: {megatron_core: HEAD}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_dispatch_fwd_dtype: mxfp8, moe_token_dispatcher_type: flex,
                   moe_grouped_gemm: true}
        launch: {extra_args: {moe-flex-dispatcher-backend: ncclep,
                              use-transformer-engine-op-fuser: true}}
    """
    args = ctx.args
    for name in ("moe_dispatch_fwd_dtype", "moe_combine_bwd_dtype"):
        value = getattr(args, name)
        if value == "bf16" or value is None:
            continue
        field = f"training.{name}"
        for met, wanted in (
            (
                args.moe_token_dispatcher_type == "flex",
                ("training.moe_token_dispatcher_type", "flex"),
            ),
            (bool(args.moe_grouped_gemm), ("training.moe_grouped_gemm", True)),
            (
                ctx.extra("moe_flex_dispatcher_backend") == "ncclep",
                ("launch.extra_args.moe-flex-dispatcher-backend", "ncclep"),
            ),
            (
                bool(ctx.extra("use_transformer_engine_op_fuser")),
                ("launch.extra_args.use-transformer-engine-op-fuser", True),
            ),
        ):
            if not met:
                needs = set_to(wanted)
                yield ctx.found(
                    f"{field} = {value} needs {needs.text}",
                    field,
                    wanted[0] if wanted[0].startswith("training.") else "launch.extra_args",
                    fix=(needs, set_to((field, None))),
                )


@rule(
    "PP358",
    "single-grouped-parameters",
    "error",
    stage="transformer_config",
    source=(
        transformer_config("1563-1592", "core_v0.19.0"),
        arguments("1115-1125", "core_v0.19.0"),
        megatron("core/transformer/transformer_config.py:1415", "core_v0.18.2"),
    ),
    versions=core("0.18.0"),
)
def single_grouped(ctx: Context) -> Iterator[Finding]:
    """One parameter for all experts' weights works with few settings.

    Why:
        ``--moe-single-grouped-weight`` and ``-bias`` need grouped GEMMs and TE 2.14. 0.18 takes
        them with FP8 mxfp8 only; from 0.19 on also in high precision and with nvfp4, through TE's
        operation fuser, and not under Megatron-FSDP.

    Bad:
        software: {megatron_core: 0.18.2, transformer_engine: 2.14.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_grouped_gemm: true, moe_single_grouped_weight: true}

    Good:
        software: {megatron_core: 0.18.2, transformer_engine: 2.14.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_grouped_gemm: true, moe_single_grouped_weight: true,
                   fp8_format: e4m3, fp8_recipe: mxfp8}
    """
    args = ctx.args
    weight, bias = args.moe_single_grouped_weight, args.moe_single_grouped_bias
    if not (weight or bias):
        return
    field = "training.moe_single_grouped_weight" if weight else "training.moe_single_grouped_bias"
    off = set_to((field, None))
    if not args.moe_grouped_gemm:
        yield ctx.found(
            f"{field} = true needs training.moe_grouped_gemm",
            field,
            "training.moe_grouped_gemm",
            fix=(set_to(("training.moe_grouped_gemm", True)), off),
        )
    if ctx.at_least("transformer_engine", "2.14.0") is False:
        yield ctx.found(
            f"{field} = true needs Transformer Engine 2.14 or later",
            field,
            "software.transformer_engine",
            fix=(set_to(("software.transformer_engine", "2.14.0"), also=" or later"), off),
        )
    if args.use_megatron_fsdp and ctx.core_since("0.19.0"):
        yield ctx.found(
            f"{field} = true excludes Megatron-FSDP",
            field,
            "parallel.use_megatron_fsdp",
            fix=(off,),
            stage="validate",
        )
    if not _grouped_tensor(ctx, weight):
        fuser = "launch.extra_args.use-transformer-engine-op-fuser"
        yield ctx.found(
            f"{field} = true needs Transformer Engine's operation fuser",
            field,
            "launch.extra_args",
            fix=(set_to((fuser, True)), off),
        )
    if weight and args.fp4 and ctx.core_since("HEAD") and not ctx.fp4_param_gather:
        yield ctx.found(
            f"{field} = true in FP4 needs training.fp4_param_gather",
            field,
            "training.fp4_param_gather",
            fix=(set_to(("training.fp4_param_gather", True)), off),
        )
    if weight and not _grouped_weight_format(ctx):
        yield ctx.found(
            "training.moe_single_grouped_weight = true needs the mxfp8 recipe"
            + (", nvfp4 or high precision" if ctx.core_since("0.19.0") else ""),
            field,
            "training.fp8_recipe",
            "training.fp8_format",
            fix=(Fix("training.fp8_recipe: mxfp8", {"training.fp8_recipe": "mxfp8"}), off),
        )
    if bias and ctx.plan.model.add_bias_linear is False:
        yield ctx.found(
            "training.moe_single_grouped_bias = true needs model.add_bias_linear",
            "training.moe_single_grouped_bias",
            "model.add_bias_linear",
            fix=(set_to(("training.moe_single_grouped_bias", None)),),
        )


def _grouped_tensor(ctx: Context, weight: bool | None) -> bool:
    """True unless the version at hand misses TE's operation fuser (or grouped tensors)."""
    if ctx.extra("use_transformer_engine_op_fuser") or not ctx.core_since("0.19.0"):
        return True
    if ctx.core_since("HEAD"):
        return bool(ctx.extra("moe_use_grouped_tensor"))
    return not weight


def _grouped_weight_format(ctx: Context) -> bool:
    args = ctx.args
    if not ctx.core_since("0.19.0"):
        return bool(args.fp8) and args.fp8_recipe == "mxfp8" and not args.fp4
    if args.fp8 and args.fp8_recipe != "mxfp8":
        return False
    return not (args.fp4 and args.fp4_recipe != "nvfp4")


@rule(
    "PP349",
    "local-graphs-with-expert-parallelism",
    "error",
    stage="validate",
    source=(arguments(1159), arguments(1459, "core_v0.17.1")),
    versions=core("0.16.0", "0.17"),
)
def local_graphs_with_experts(ctx: Context) -> Found:
    """Local CUDA graphs with expert parallelism need padded experts.

    Why:
        A captured layer has fixed shapes, and each rank may get another number of tokens.
        validate_args of 0.16 and 0.17 asserts ``--moe-pad-experts-for-cuda-graph-inference``; 0.17
        not for the inference-optimized layers.

    Bad:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {expert_model_parallel_size: 8}
        training: {bf16: true, cuda_graph_impl: local}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {expert_model_parallel_size: 8}
        training: {bf16: true, cuda_graph_impl: local}
        launch: {extra_args: {moe-pad-experts-for-cuda-graph-inference: true}}
    """
    graphs = graphs_of(ctx)
    size = ctx.plan.parallel.expert_model_parallel_size or 1
    if graphs is None or graphs[0] != "local" or size <= 1:
        return None
    if ctx.extra("moe_pad_experts_for_cuda_graph_inference"):
        return None
    if ctx.args.transformer_impl == "inference_optimized" and ctx.core_since("0.17.0"):
        return None
    pad = "launch.extra_args.moe-pad-experts-for-cuda-graph-inference"
    return ctx.found(
        f"local CUDA graphs with parallel.expert_model_parallel_size = {size} need "
        "--moe-pad-experts-for-cuda-graph-inference",
        graphs[1],
        "parallel.expert_model_parallel_size",
        fix=(set_to((pad, True)), set_to(("training.cuda_graph_impl", None))),
    )


RULES: tuple[Rule, ...] = (
    expert_overlap,
    quantized_dispatch,
    single_grouped,
    local_graphs_with_experts,
)

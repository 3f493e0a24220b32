"""PP360 to PP364 and PP386: recomputation and delayed weight gradients in reduced precision."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron_values import listed_values
from precision_plan.plan import Because
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron, transformer_config


def _recomputed(ctx: Context) -> frozenset[str]:
    """The modules that selective recomputation runs twice."""
    if ctx.args.recompute_granularity != "selective":
        return frozenset()
    return frozenset(ctx.args.recompute_modules or ("core_attn",))


@rule(
    "PP360",
    "recompute-of-fp8-modules",
    "error",
    stage="transformer_config",
    source=(transformer_config("1244-1254"), transformer_config(846, "core_v0.13.0")),
    versions=core("0.13.0"),
)
def recompute_of_fp8_modules(ctx: Context) -> Found:
    """Recomputing the expert activation or the norms in FP8 depends on recipe and TE version.

    Why:
        Both modules produce the quantized input of the next GEMM. Megatron 0.13 refuses to
        recompute them in any FP8 recipe; from 0.14 on only delayed scaling is excluded (a second
        forward pass would record its amax twice), and TE must be 2.6.0.dev0 or later.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: hybrid, recompute_granularity: selective,
                   recompute_modules: [layernorm]}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.9.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   recompute_granularity: selective, recompute_modules: [layernorm]}
    """
    args = ctx.args
    if args.recompute_granularity != "selective" or not args.fp8:
        return None
    modules = sorted(_recomputed(ctx) & {"moe_act", "layernorm"})
    if not modules:
        return None
    field = "training.recompute_modules"
    fix = (set_to((field, sorted(_recomputed(ctx) - set(modules)) or None)),)
    if not ctx.core_since("0.14.0") or args.fp8_recipe == "delayed":
        return ctx.found(
            f"recomputing {' and '.join(modules)} excludes FP8"
            + (" with the delayed recipe" if ctx.core_since("0.14.0") else ""),
            field,
            "training.fp8_format",
            "training.fp8_recipe",
            fix=(*fix, set_to(("training.fp8_recipe", "blockwise"))),
        )
    if ctx.at_least("transformer_engine", "2.6.0.dev0") is False:
        return ctx.found(
            f"recomputing {' and '.join(modules)} in FP8 needs Transformer Engine 2.6 or later",
            field,
            "training.fp8_format",
            "software.transformer_engine",
            fix=(set_to(("software.transformer_engine", "2.6.0"), also=" or later"), *fix),
        )
    return None


@rule(
    "PP361",
    "recompute-with-legacy-grouped-gemm",
    "error",
    stage="build",
    source=(megatron("core/transformer/moe/experts.py:106"),),
    versions=core("0.14.0", "0.16.1"),
)
def recompute_legacy_grouped(ctx: Context) -> Found:
    """The legacy grouped GEMM cannot recompute quantized expert activations.

    Why:
        GroupedMLP, which ``--moe-use-legacy-grouped-gemm`` selects, raises ValueError while the
        model is built. TE's grouped linear layers can.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.9.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, moe_grouped_gemm: true,
                   moe_use_legacy_grouped_gemm: true, recompute_granularity: selective,
                   recompute_modules: [moe_act]}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.9.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, moe_grouped_gemm: true,
                   recompute_granularity: selective, recompute_modules: [moe_act]}
    """
    args = ctx.args
    if not args.moe_use_legacy_grouped_gemm or not (args.fp8 or args.fp4):
        return None
    if "moe_act" not in _recomputed(ctx):
        return None
    return ctx.found(
        "training.moe_use_legacy_grouped_gemm = true excludes recomputing moe_act in FP8 or FP4",
        "training.moe_use_legacy_grouped_gemm",
        "training.recompute_modules",
        "training.fp8_format",
        fix=(set_to(("training.moe_use_legacy_grouped_gemm", None)),),
    )


@rule(
    "PP362",
    "recompute-settings-disagree",
    "error",
    stage="transformer_config",
    source=(arguments(900), transformer_config("1154-1185")),
)
def recompute_settings(ctx: Context) -> Iterator[Finding]:
    """Full recomputation needs a method and a number of layers; selective takes neither.

    Why:
        The method (uniform or block) and the number of layers say which whole layers run twice.
        Selective recomputation names modules instead, and Megatron refuses a mixture.

    Bad:
        training: {bf16: true, recompute_granularity: full}

    Good:
        training: {bf16: true, recompute_granularity: full, recompute_method: uniform,
                   recompute_num_layers: 1}
    """
    training = ctx.plan.training
    granularity = ctx.args.recompute_granularity
    if granularity is None:
        return
    for name, wanted in (("recompute_method", "uniform"), ("recompute_num_layers", 1)):
        field = f"training.{name}"
        given = getattr(training, name) is not None
        if granularity == "full" and not given:
            yield ctx.found(
                f"training.recompute_granularity = full needs {field}",
                "training.recompute_granularity",
                field,
                fix=(set_to((field, wanted)),),
            )
        elif granularity == "selective" and given:
            yield ctx.found(
                f"training.recompute_granularity = selective excludes {field}",
                field,
                "training.recompute_granularity",
                fix=(set_to((field, None)),),
                stage="validate" if name == "recompute_method" else None,
            )


@rule(
    "PP386",
    "recompute-modules-do-not-fit",
    "error",
    stage="transformer_config",
    source=(transformer_config("1197-1240"), transformer_config("1942-1973", "HEAD")),
)
def recompute_modules_fit(ctx: Context) -> Iterator[Finding]:
    """A module to recompute is unknown, or the model has none of its kind.

    Why:
        TransformerConfig knows the modules by name. It recomputes the activation of experts only
        in a grouped GEMM, and the up-projection of queries and keys only in latent attention.
        Nothing is checked unless the granularity is selective.

    Bad:
        training: {bf16: true, recompute_granularity: selective, recompute_modules: [moe_act]}

    Good:
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_grouped_gemm: true, recompute_granularity: selective,
                   recompute_modules: [moe_act]}
    """
    field = "training.recompute_modules"
    modules = _recomputed(ctx)
    known = listed_values("--recompute-modules", ctx.effective.megatron_core)
    without = sorted(modules.intersection(known))
    unknown = sorted(modules.difference(known))
    if unknown:
        yield ctx.found(
            f"{field} has {', '.join(unknown)}; it takes {', '.join(known)}",
            field,
            fix=(set_to((field, without or None)),),
        )
    demands = (
        ("moe_act", ctx.args.moe_grouped_gemm, "training.moe_grouped_gemm"),
        ("mla_up_proj", ctx.plan.model.multi_latent_attention, "model.multi_latent_attention"),
    )
    for module, met, other in demands:
        if module in modules and not met:
            yield ctx.found(
                f"recomputing {module} needs {other} = true",
                field,
                other,
                fix=(set_to((field, sorted(modules - {module}) or None)), set_to((other, True))),
            )
    overlapped = ctx.extra("moe_shared_expert_overlap")
    shared = ctx.plan.model.moe_shared_expert_intermediate_size is not None
    if shared and overlapped and "shared_experts" in without:
        yield ctx.found(
            "recomputing shared_experts excludes --moe-shared-expert-overlap",
            field,
            Because("launch.extra_args has it", "launch.extra_args"),
            fix=(set_to((field, sorted(modules - {"shared_experts"}) or None)),),
        )


@rule(
    "PP363",
    "delayed-weight-gradient-limits",
    "error",
    stage="validate",
    source=(arguments(1210), arguments("1080-1092", "core_v0.14.0")),
    versions=core("0.13.0"),
)
def delayed_weight_gradient(ctx: Context) -> Iterator[Finding]:
    """Delayed weight gradients need TE's layers, of a version that can delay them.

    Why:
        ``--delay-wgrad-compute`` splits the backward pass of TE's linear layers. validate_args
        asserts the implementation, and the TE version where the gradient reduction is overlapped
        (2.8; 2.7 in Megatron 0.14; never in 0.13) or gradients are not fused into the buffer (2.7).

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.6.0}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {overlap_moe_expert_parallel_comm: true, expert_model_parallel_size: 8}
        training: {bf16: true, moe_token_dispatcher_type: alltoall, delay_wgrad_compute: true,
                   gradient_accumulation_fusion: false}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.7.0}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {overlap_moe_expert_parallel_comm: true, expert_model_parallel_size: 8}
        training: {bf16: true, moe_token_dispatcher_type: alltoall, delay_wgrad_compute: true,
                   gradient_accumulation_fusion: false}
    """
    args = ctx.args
    if not args.delay_wgrad_compute:
        return
    field = "training.delay_wgrad_compute"
    off = set_to((field, None))
    if args.transformer_impl != "transformer_engine":
        yield ctx.found(
            f"{field} = true needs training.transformer_impl = transformer_engine",
            field,
            "training.transformer_impl",
            fix=(set_to(("training.transformer_impl", "transformer_engine")), off),
        )
    since_014 = ctx.core_since("0.14.0")
    if args.overlap_grad_reduce and not since_014:
        yield ctx.found(
            f"{field} = true excludes parallel.overlap_grad_reduce in Megatron 0.13",
            field,
            "parallel.overlap_grad_reduce",
            fix=(off, set_to(("parallel.overlap_grad_reduce", None))),
        )
    elif args.overlap_grad_reduce:
        least = "2.8.0" if ctx.core_since("0.15.0") else "2.7.0"
        if ctx.at_least("transformer_engine", least) is False:
            yield ctx.found(
                f"{field} = true with parallel.overlap_grad_reduce needs Transformer Engine "
                f"{least} or later",
                field,
                "parallel.overlap_grad_reduce",
                "software.transformer_engine",
                fix=(set_to(("software.transformer_engine", least), also=" or later"), off),
            )
    unfused = since_014 and not args.gradient_accumulation_fusion
    if unfused and ctx.at_least("transformer_engine", "2.7.0") is False:
        yield ctx.found(
            f"{field} = true without fused gradient accumulation needs Transformer Engine "
            "2.7.0 or later",
            field,
            "training.gradient_accumulation_fusion",
            "software.transformer_engine",
            fix=(set_to(("software.transformer_engine", "2.7.0"), also=" or later"), off),
        )
    if args.moe_use_legacy_grouped_gemm:
        yield ctx.found(
            f"{field} = true excludes training.moe_use_legacy_grouped_gemm",
            field,
            "training.moe_use_legacy_grouped_gemm",
            fix=(set_to(("training.moe_use_legacy_grouped_gemm", None)), off),
            stage="transformer_config" if since_014 else None,
        )


@rule(
    "PP364",
    "delayed-weight-gradient-needs-expert-overlap",
    "error",
    stage="transformer_config",
    source=(transformer_config(1910), transformer_config("1918-1923")),
    versions=core("0.14.0"),
)
def delayed_needs_overlap(ctx: Context) -> Iterator[Finding]:
    """Delayed weight gradients serve the overlap of expert-parallel communication.

    Why:
        TransformerConfig asserts ``--overlap-moe-expert-parallel-comm``; with TE's CUDA graphs it
        also asserts TE 2.10 (from Megatron 0.16 on).

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, delay_wgrad_compute: true}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {overlap_moe_expert_parallel_comm: true, expert_model_parallel_size: 8}
        training: {bf16: true, moe_token_dispatcher_type: alltoall, delay_wgrad_compute: true}
    """
    args = ctx.args
    if not args.delay_wgrad_compute:
        return
    field = "training.delay_wgrad_compute"
    if not args.overlap_moe_expert_parallel_comm:
        yield ctx.found(
            f"{field} = true needs parallel.overlap_moe_expert_parallel_comm",
            field,
            "parallel.overlap_moe_expert_parallel_comm",
            fix=(
                set_to((field, None)),
                set_to(("parallel.overlap_moe_expert_parallel_comm", True)),
            ),
        )
    if args.cuda_graph_impl != "transformer_engine" or not ctx.core_since("0.16.0"):
        return
    if ctx.at_least("transformer_engine", "2.10.0") is False:
        yield ctx.found(
            f"{field} = true with TE's CUDA graphs needs Transformer Engine 2.10 or later",
            field,
            "training.cuda_graph_impl",
            "software.transformer_engine",
            fix=(set_to(("software.transformer_engine", "2.10.0"), also=" or later"),),
        )


RULES: tuple[Rule, ...] = (
    recompute_of_fp8_modules,
    recompute_legacy_grouped,
    recompute_settings,
    recompute_modules_fit,
    delayed_weight_gradient,
    delayed_needs_overlap,
)

"""PP365 and PP366: offloading of activations."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron_values import listed_values
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, transformer_config

_OFFLOAD_V1 = "NVTE_CPU_OFFLOAD_V1"


@rule(
    "PP365",
    "fine-grained-offloading-limits",
    "error",
    stage="validate",
    source=(arguments(1223), transformer_config("1268-1292")),
    versions=core("0.16.0"),
)
def fine_grained_offloading(ctx: Context) -> Iterator[Finding]:
    """Fine-grained activation offloading needs TE's layers and, with TE 2.10, a variable.

    Why:
        From 2.10 on TE has an offloading of its own that would move weights, too, unless
        ``NVTE_CPU_OFFLOAD_V1=1`` selects the old one; validate_args asserts the variable. The
        modules to offload must be named (``--offload-modules``, ``attn_proj`` not without
        ``core_attn``), and whole layers cannot be offloaded beside them.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.10.0}
        training: {bf16: true, fine_grained_activation_offloading: true}
        launch: {extra_args: {offload-modules: [core_attn]}}
        env: {all: {NVTE_CPU_OFFLOAD_V1: "0"}}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.10.0}
        training: {bf16: true, fine_grained_activation_offloading: true}
        launch: {extra_args: {offload-modules: [core_attn]}}
        env: {all: {NVTE_CPU_OFFLOAD_V1: "1"}}
    """
    args = ctx.args
    if not args.fine_grained_activation_offloading:
        return
    field = "training.fine_grained_activation_offloading"
    off = set_to((field, None))
    if args.transformer_impl != "transformer_engine":
        yield ctx.found(
            f"{field} = true needs training.transformer_impl = transformer_engine",
            field,
            "training.transformer_impl",
            fix=(set_to(("training.transformer_impl", "transformer_engine")), off),
        )
    te_new = ctx.at_least("transformer_engine", "2.10.0")
    if te_new and ctx.env_known and ctx.env(_OFFLOAD_V1) != "1":
        variable = f"env.all.{_OFFLOAD_V1}"
        yield ctx.found(
            f"{field} = true with Transformer Engine 2.10 or later needs {_OFFLOAD_V1}=1",
            field,
            "software.transformer_engine",
            fix=(Fix(f'{variable}: "1"', {variable: "1"}), off),
        )
    problem = _modules_problem(ctx)
    if problem is not None:
        yield ctx.found(
            problem,
            field,
            Because("read from launch.extra_args.offload-modules", "launch.extra_args"),
            fix=(set_to((ctx.extra_field("offload_modules"), ["core_attn"])), off),
            stage="transformer_config",
        )
    if args.cpu_offloading_num_layers:
        yield ctx.found(
            f"{field} = true excludes training.cpu_offloading_num_layers",
            field,
            "training.cpu_offloading_num_layers",
            fix=(set_to(("training.cpu_offloading_num_layers", None)), off),
            stage="transformer_config",
        )


def _modules_problem(ctx: Context) -> str | None:
    """What TransformerConfig would say of the modules to offload; ``None`` if nothing."""
    given = ctx.extra("offload_modules")
    modules = (given,) if isinstance(given, str) else tuple(given or ())
    if not modules:
        return "fine-grained offloading needs --offload-modules"
    known = listed_values("--offload-modules", ctx.effective.megatron_core)
    unknown = [module for module in modules if module not in known]
    if unknown:
        return f"--offload-modules has {', '.join(unknown)}; it takes {', '.join(known)}"
    if "attn_proj" in modules and "core_attn" not in modules:
        return "--offload-modules attn_proj needs core_attn, whose output is its input"
    return None


@rule(
    "PP366",
    "layer-offloading-limits",
    "error",
    stage="transformer_config",
    source=(transformer_config("1137-1152"),),
    versions=core("0.16.0"),
)
def layer_offloading(ctx: Context) -> Iterator[Finding]:
    """Offloading the activations of whole layers excludes recomputation, pipelines and graphs.

    Why:
        TransformerConfig raises for each, and for a number of layers that is not smaller than the
        model's. (From 0.18 on full-iteration graphs are allowed.)

    Bad:
        software: {megatron_core: 0.16.1}
        model: {num_layers: 4}
        training: {bf16: true, cpu_offloading_num_layers: 4}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_layers: 4}
        training: {bf16: true, cpu_offloading_num_layers: 3}
    """
    args = ctx.args
    count = args.cpu_offloading_num_layers
    if not count:
        return
    field = "training.cpu_offloading_num_layers"
    layers = ctx.plan.model.num_layers
    if layers is not None and count >= layers:
        yield ctx.found(
            f"{field} = {count} must be less than model.num_layers = {layers}",
            field,
            "model.num_layers",
            fix=(set_to((field, layers - 1)),),
        )
    graphs = args.cuda_graph_impl not in {"none", None}
    if args.cuda_graph_impl == "full_iteration" and ctx.core_since("0.18.0"):
        graphs = False
    conflicts = (
        (
            (ctx.plan.parallel.pipeline_model_parallel_size or 1) > 1,
            "parallel.pipeline_model_parallel_size",
        ),
        (args.recompute_granularity is not None, "training.recompute_granularity"),
        (graphs, "training.cuda_graph_impl"),
    )
    for conflict, other in conflicts:
        if conflict:
            yield ctx.found(
                f"{field} = {count} excludes {ctx.shown(other)}",
                field,
                other,
                fix=(set_to((field, None)), set_to((other, None))),
            )


RULES: tuple[Rule, ...] = (
    fine_grained_offloading,
    layer_offloading,
)

"""PP350 to PP355 and PP359: mixture-of-experts layers in reduced precision."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.capability import gpu_field, has_capability
from precision_plan.rules.sources import arguments, core, transformer_config

MANY_EXPERTS = 32
"""From this number of experts on Megatron recommends fp32 routing."""


@rule(
    "PP350",
    "bias-in-experts",
    "error",
    stage="transformer_config",
    source=(transformer_config(1198, "core_v0.14.0"), transformer_config(1590)),
)
def bias_in_experts(ctx: Context) -> Found:
    """Experts take no bias, or only without tensor parallelism among them.

    Why:
        Linear layers have a bias unless ``--disable-bias-linear`` is given. TransformerConfig
        refuses it for MoE models up to 0.14; from 0.15 on it is accepted if the expert
        tensor-parallel size is 1 (it follows the tensor-parallel size if not set).

    Bad:
        model: {num_experts: 8, add_bias_linear: true}
        parallel: {tensor_model_parallel_size: 2}

    Good:
        model: {num_experts: 8, add_bias_linear: false}
        parallel: {tensor_model_parallel_size: 2}
    """
    plan = ctx.plan
    model = plan.model
    if not model.num_experts or model.add_bias_linear is False or not ctx.trains:
        return None
    parallel = plan.parallel
    size = parallel.expert_tensor_parallel_size or parallel.tensor_model_parallel_size or 1
    if size == 1 and ctx.core_since("0.15.0"):
        return None
    if model.add_bias_linear is None and plan.software.megatron_core is None:
        return None
    shown = "true" if model.add_bias_linear else "true (Megatron's default)"
    return ctx.found(
        f"model.add_bias_linear = {shown} is not supported in experts"
        + (" with tensor parallelism" if ctx.core_since("0.15.0") else ""),
        "model.add_bias_linear",
        "model.num_experts",
        "parallel.expert_tensor_parallel_size",
        "parallel.tensor_model_parallel_size",
        fix=(
            set_to(("model.add_bias_linear", False)),
            set_to(("parallel.expert_tensor_parallel_size", 1)),
        ),
    )


@rule(
    "PP351",
    "moe-of-old-megatron-needs-bf16",
    "error",
    stage="validate",
    source=(arguments(877, "core_v0.15.3"), arguments(1041, "core_v0.15.3")),
    versions=core(None, "0.15"),
)
def moe_needs_bf16(ctx: Context) -> Iterator[Finding]:
    """Up to Megatron 0.15, grouped GEMMs need bf16 and expert parallelism excludes fp16.

    Why:
        validate_args asserts both; 0.16 dropped both checks.

    Bad:
        software: {megatron_core: 0.15.3}
        model: {num_experts: 8, add_bias_linear: false}
        training: {moe_grouped_gemm: true}

    Good:
        software: {megatron_core: 0.15.3}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_grouped_gemm: true}
    """
    args = ctx.args
    if args.moe_grouped_gemm and not args.bf16:
        yield ctx.found(
            "training.moe_grouped_gemm = true needs training.bf16",
            "training.moe_grouped_gemm",
            "training.bf16",
            "software.megatron_core",
            fix=(set_to(("training.bf16", True)), set_to(("training.moe_grouped_gemm", None))),
        )
    size = ctx.plan.parallel.expert_model_parallel_size
    if args.fp16 and size is not None and size > 1:
        yield ctx.found(
            f"parallel.expert_model_parallel_size = {size} excludes training.fp16",
            "parallel.expert_model_parallel_size",
            "training.fp16",
            "software.megatron_core",
            fix=(set_to(("training.bf16", True), ("training.fp16", None)),),
        )


@rule(
    "PP352",
    "grouped-gemm-needs-sm80",
    "error",
    stage="validate",
    source=(arguments(854),),
    needs=("gpu",),
    hardware="compute capability 8.0 and later",
)
def grouped_gemm_needs_sm80(ctx: Context) -> Found:
    """Grouped GEMM kernels need Ampere or later.

    Why:
        validate_args reads the compute capability of the GPU and asserts 8.0.

    Bad:
        hardware: {compute_capability: "7.0"}
        training: {bf16: true, moe_grouped_gemm: true}

    Good:
        hardware: {compute_capability: "8.0"}
        training: {bf16: true, moe_grouped_gemm: true}
    """
    capability = ctx.target.compute_capability
    if not ctx.args.moe_grouped_gemm or capability is None or capability >= (8, 0):
        return None
    return ctx.found(
        "training.moe_grouped_gemm = true needs compute capability 8.0 or later; "
        f"{has_capability(ctx)}",
        "training.moe_grouped_gemm",
        gpu_field(ctx),
        fix=(set_to(("training.moe_grouped_gemm", None)),),
    )


@rule(
    "PP353",
    "fp8-experts-need-transformer-engine",
    "error",
    stage="transformer_config",
    source=(transformer_config("1600-1612"),),
    needs=("transformer_engine",),
)
def fp8_experts_need_te(ctx: Context) -> Found:
    """FP8 experts need Transformer Engine 1.7, and 1.11 with grouped GEMMs.

    Why:
        An expert may receive no token at all, which older TE versions cannot quantize.

    Bad:
        software: {transformer_engine: 1.10.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: hybrid, moe_grouped_gemm: true}

    Good:
        software: {transformer_engine: 1.11.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: hybrid, moe_grouped_gemm: true}
    """
    args = ctx.args
    if not args.fp8 or not ctx.plan.model.num_experts:
        return None
    least = "1.11.0" if args.moe_grouped_gemm else "1.7.0.dev0"
    if ctx.at_least("transformer_engine", least):
        return None
    shown = least.removesuffix(".dev0")
    return ctx.found(
        f"FP8 experts need Transformer Engine {shown} or later; the target has "
        f"{ctx.target.package('transformer_engine')}",
        "training.fp8_format",
        "model.num_experts",
        "training.moe_grouped_gemm",
        "software.transformer_engine",
        fix=(set_to(("software.transformer_engine", shown), also=" or later"),),
    )


@rule(
    "PP354",
    "router-padding-needs-quantization",
    "error",
    stage="transformer_config",
    source=(transformer_config(1623), transformer_config("1331", "core_v0.15.3")),
    versions=core("0.13.0"),
)
def router_padding(ctx: Context) -> Iterator[Finding]:
    """Padding of routed tokens needs FP8 or FP4, and a dispatcher that can pad.

    Why:
        The padding aligns each expert's tokens for quantized GEMMs, so TransformerConfig refuses
        it in plain BF16 (before 0.16 only FP8 counts). It is also refused with the ``allgather``
        dispatcher, which is the default, so the dispatcher has to be named.

    Bad:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_router_padding_for_quantization: true,
                   moe_token_dispatcher_type: alltoall}

    Good:
        software: {megatron_core: 0.16.1}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
                   moe_router_padding_for_quantization: true, moe_token_dispatcher_type: alltoall}
    """
    args = ctx.args
    if not (args.moe_router_padding_for_quantization or args.moe_router_padding_for_fp8):
        return
    field = ctx.given.get("moe_router_padding_for_quantization")
    if field is None:
        field = "training.moe_router_padding_for_fp8"
    if not args.fp8 and not (args.fp4 and ctx.core_since("0.16.0")):
        yield ctx.found(
            f"{field} = true needs quantized training",
            field,
            "training.fp8_format",
            "training.fp4_format",
            fix=(set_to((field, None)), set_to(("training.fp8_format", "e4m3"))),
        )
    if args.moe_token_dispatcher_type in {"allgather", "alltoall_seq"}:
        yield ctx.found(
            f"{field} = true excludes the {args.moe_token_dispatcher_type} dispatcher",
            field,
            "training.moe_token_dispatcher_type",
            fix=(
                set_to(("training.moe_token_dispatcher_type", "alltoall")),
                set_to((field, None)),
            ),
        )


@rule(
    "PP355",
    "many-experts-without-fp32-routing",
    "advice",
    stage="transformer_config",
    source=(transformer_config(1949),),
)
def fp32_routing(ctx: Context) -> Found:
    """With 32 experts or more, route in fp32.

    Why:
        The softmax over router logits decides which experts a token sees; in bf16 close scores
        tie, and training and rollout may choose differently. Megatron warns; RL needs it more.

    Bad:
        model: {num_experts: 128, add_bias_linear: false}
        training: {bf16: true}

    Good:
        model: {num_experts: 128, add_bias_linear: false}
        training: {bf16: true, moe_router_dtype: fp32}
    """
    experts = ctx.plan.model.num_experts
    if experts is None or experts < MANY_EXPERTS or ctx.args.moe_router_dtype or not ctx.trains:
        return None
    return ctx.found(
        f"{experts} experts are routed in the base format of the model",
        "model.num_experts",
        "training.moe_router_dtype",
        fix=(set_to(("training.moe_router_dtype", "fp32")),),
    )


@rule(
    "PP359",
    "expert-parallelism-needs-experts",
    "error",
    stage="validate",
    source=(arguments("1026-1028"),),
)
def expert_parallelism(ctx: Context) -> Found:
    """Expert parallelism distributes experts, in equal parts.

    Why:
        validate_args refuses an expert-parallel size above 1 for a dense model, and one that does
        not divide the number of experts.

    Bad:
        model: {num_layers: 4, num_experts: 8, add_bias_linear: false}
        parallel: {expert_model_parallel_size: 3}

    Good:
        model: {num_layers: 4, num_experts: 8, add_bias_linear: false}
        parallel: {expert_model_parallel_size: 4}
    """
    size = ctx.plan.parallel.expert_model_parallel_size
    model = ctx.plan.model
    if size is None or size <= 1 or not ctx.trains:
        return None
    experts = model.num_experts
    if (experts is None and model.num_layers is None) or (experts and experts % size == 0):
        return None
    return ctx.found(
        f"parallel.expert_model_parallel_size = {size} "
        + (f"does not divide the {experts} experts" if experts else "needs a model with experts"),
        "parallel.expert_model_parallel_size",
        "model.num_experts",
        fix=(set_to(("parallel.expert_model_parallel_size", 1)),),
    )


RULES: tuple[Rule, ...] = (
    bias_in_experts,
    moe_needs_bf16,
    grouped_gemm_needs_sm80,
    fp8_experts_need_te,
    router_padding,
    fp32_routing,
    expert_parallelism,
)

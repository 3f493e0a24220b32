"""PP373, PP374 and PP379: bitwise reproducible training and the inference-optimized layers."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron, transformer_config

_OLD_ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")
_NEW_ALGORITHMS = frozenset({"Ring", "CollnetDirect", "CollnetChain", "^NVLS"})
_ACCEPTED = {
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("0",),
    "CUBLAS_WORKSPACE_CONFIG": (":4096:8", ":16:8"),
}
_FOLLOWERS = {"MAMBA_DETERMINISTIC": "0.19.0", "CAUSAL_CONV1D_DETERMINISTIC": "HEAD"}


@rule(
    "PP373",
    "deterministic-mode-limits",
    "error",
    stage="validate",
    source=(
        arguments(1074),
        megatron("training/determinism.py:24-143", "HEAD"),
        megatron("core/extensions/transformer_engine.py:1255"),
    ),
)
def deterministic_mode(ctx: Context) -> Iterator[Finding]:
    """Deterministic mode needs a fixed NCCL algorithm and excludes some fusions.

    Why:
        Up to Megatron 0.18 ``NCCL_ALGO`` must be set to one of five values, and flash attention
        and fused cross entropy must be off. From 0.19 on the variables get defaults, ``Tree`` is
        refused, flash attention is allowed, and overlapped tensor-parallel communication must be
        off.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, deterministic_mode: true}
        env: {all: {NCCL_ALGO: NVLS}}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, deterministic_mode: true}
        env: {all: {NCCL_ALGO: Ring, NVTE_ALLOW_NONDETERMINISTIC_ALGO: "0"}}
    """
    args = ctx.args
    if not args.deterministic_mode:
        return
    recent = ctx.core_since("0.19.0")
    excluded = ["training.cross_entropy_loss_fusion"]
    excluded.append("parallel.tp_comm_overlap" if recent else "training.use_flash_attn")
    for field in excluded:
        if getattr(args, field.partition(".")[2]):
            yield ctx.found(
                f"training.deterministic_mode = true excludes {field}",
                field,
                "training.deterministic_mode",
                fix=(set_to((field, None)), set_to(("training.deterministic_mode", None))),
            )
    if recent:
        yield from _variables(ctx)
    elif ctx.env_known:
        if ctx.env("NCCL_ALGO") not in _OLD_ALGORITHMS:
            yield _algorithm(ctx, f"one of {', '.join(_OLD_ALGORITHMS)}")
        if args.transformer_impl == "transformer_engine":
            yield from _nondeterministic_attention(ctx)


def _algorithm(ctx: Context, demand: str) -> Finding:
    found = ctx.train_env.get("NCCL_ALGO")
    field = "training.deterministic_mode" if found is None else found[1]
    has = "it is not set" if found is None else f"it is {found[0]}"
    variable = "env.all.NCCL_ALGO"
    return ctx.found(
        f"training.deterministic_mode = true needs NCCL_ALGO to be {demand}; {has}",
        field,
        "training.deterministic_mode",
        fix=(Fix(f"{variable}: Ring", {variable: "Ring"}),),
    )


def _nondeterministic_attention(ctx: Context) -> Iterator[Finding]:
    """TE's attention asserts its variable while the model is built; unset counts as 1."""
    name = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"
    if (ctx.env(name) or "1") == "0":
        return
    variable = f"env.all.{name}"
    yield ctx.found(
        f"training.deterministic_mode = true needs {name}=0 for Transformer Engine's attention",
        "training.deterministic_mode",
        "training.transformer_impl",
        fix=(Fix(f'{variable}: "0"', {variable: "0"}),),
        stage="build",
    )


def _variables(ctx: Context) -> Iterator[Finding]:
    algorithm = ctx.env("NCCL_ALGO")
    if algorithm is not None:
        tokens = {token.strip() for token in algorithm.split(",") if token.strip()}
        if not tokens or not tokens <= _NEW_ALGORITHMS:
            yield _algorithm(ctx, f"made of {', '.join(sorted(_NEW_ALGORITHMS))}")
    for name, accepted in _ACCEPTED.items():
        found = ctx.train_env.get(name)
        if found is not None and found[0] not in accepted:
            yield _variable(ctx, name, found, " or ".join(accepted))
    for name, since in _FOLLOWERS.items():
        found = ctx.train_env.get(name)
        if found and found[0] and not found[0].startswith("1") and ctx.core_since(since):
            yield _variable(ctx, name, found, "1")


def _variable(ctx: Context, name: str, found: tuple[str, str], wanted: str) -> Finding:
    return ctx.found(
        f"training.deterministic_mode = true needs {name}={wanted}, not {found[0]}",
        found[1],
        "training.deterministic_mode",
        fix=(set_to((found[1], None)),),
    )


@rule(
    "PP374",
    "batch-invariant-mode-limits",
    "error",
    stage="transformer_config",
    source=(transformer_config(2000), transformer_config("3200-3235", "HEAD")),
    versions=core("0.16.0"),
)
def batch_invariant_mode(ctx: Context) -> Iterator[Finding]:
    """Batch-invariant mode needs flash attention, and with MoE excludes quantized training.

    Why:
        Results that do not depend on the batch need kernels with a fixed reduction order.
        TransformerConfig asserts ``--attention-backend flash``; from 0.19 on also
        ``--flash-attention-version`` 3 or 4, no context parallelism and no attention dropout; at
        the head of development also bf16 parameters, and for MoE models no FP8 or FP4 and the
        alltoall dispatcher.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, batch_invariant_mode: true}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, batch_invariant_mode: true, attention_backend: flash}
    """
    args = ctx.args
    if not args.batch_invariant_mode:
        return
    plan = ctx.plan
    head = ctx.core_since("HEAD")
    dropout = 0.1 if plan.model.attention_dropout is None else plan.model.attention_dropout
    experts = bool(plan.model.num_experts) and head
    inference = args.transformer_impl == "inference_optimized"
    recent = ctx.core_since("0.19.0")
    context = plan.parallel.context_parallel_size or 1
    demands: tuple[tuple[bool, str, str, object], ...] = (
        (args.attention_backend == "flash", "", "training.attention_backend", "flash"),
        (
            not recent or str(ctx.extra("flash_attention_version")) in {"3", "4"},
            "",
            "launch.extra_args.flash-attention-version",
            3,
        ),
        (not recent or context == 1, "", "parallel.context_parallel_size", 1),
        (not recent or dropout == 0, "", "model.attention_dropout", 0.0),
        (not head or (args.bf16 and not args.fp16), "", "training.bf16", True),
        (not (experts and args.fp8), "in an MoE model ", "training.fp8_format", None),
        (not (experts and args.fp4), "in an MoE model ", "training.fp4_format", None),
        (
            not experts or inference or args.moe_token_dispatcher_type == "alltoall",
            "in an MoE model ",
            "training.moe_token_dispatcher_type",
            "alltoall",
        ),
    )
    for met, where, field, wanted in demands:
        if met:
            continue
        fix = set_to((field, wanted))
        verb = "excludes" if wanted is None else "needs"
        what = field if wanted is None else fix.text
        yield ctx.found(
            f"training.batch_invariant_mode = true {where}{verb} {what}",
            "training.batch_invariant_mode",
            field if not field.startswith("launch.") else "launch.extra_args",
            fix=(fix, set_to(("training.batch_invariant_mode", None))),
        )


@rule(
    "PP379",
    "inference-optimized-layers-limits",
    "error",
    stage="transformer_config",
    source=(
        transformer_config(1981),
        transformer_config("1183-1225", "core_v0.17.1"),
        arguments(950, "core_v0.17.1"),
    ),
    versions=core("0.16.0"),
)
def inference_optimized(ctx: Context) -> Iterator[Finding]:
    """The inference-optimized layers fit RMSNorm models without biases.

    Why:
        ``--transformer-impl inference_optimized`` asserts RMSNorm and no linear or QKV bias. From
        0.17 on MoE models need fp32 routing, no padding for quantization and no expert tensor
        parallelism, and the mxfp8 recipe needs FlashInfer 0.6.4.

    Bad:
        software: {megatron_core: 0.16.1}
        model: {normalization: LayerNorm, add_bias_linear: false}
        training: {bf16: true, transformer_impl: inference_optimized}

    Good:
        software: {megatron_core: 0.16.1}
        model: {normalization: RMSNorm, add_bias_linear: false}
        training: {bf16: true, transformer_impl: inference_optimized}
    """
    args = ctx.args
    if args.transformer_impl != "inference_optimized":
        return
    model = ctx.plan.model
    demands: list[tuple[bool, str, object]] = [
        (model.normalization == "RMSNorm", "model.normalization", "RMSNorm"),
        (model.add_bias_linear is False, "model.add_bias_linear", False),
        (not model.add_qkv_bias, "model.add_qkv_bias", False),
        (
            not (ctx.extra("layernorm_zero_centered_gamma") or ctx.extra("apply_layernorm_1p")),
            "launch.extra_args.apply-layernorm-1p",
            None,
        ),
    ]
    if model.num_experts and ctx.core_since("0.17.0"):
        demands += [
            (args.moe_router_dtype == "fp32", "training.moe_router_dtype", "fp32"),
            (
                not args.moe_router_padding_for_quantization,
                "training.moe_router_padding_for_quantization",
                None,
            ),
            (
                (
                    ctx.plan.parallel.expert_tensor_parallel_size
                    or ctx.plan.parallel.tensor_model_parallel_size
                    or 1
                )
                == 1,
                "parallel.expert_tensor_parallel_size",
                1,
            ),
        ]
        demands += _gated(ctx)
    for met, field, wanted in demands:
        if not met:
            fix = set_to((field, wanted))
            yield ctx.found(
                f"training.transformer_impl = inference_optimized needs {fix.text}",
                "training.transformer_impl",
                field if not field.startswith("launch.") else "launch.extra_args",
                fix=(fix, set_to(("training.transformer_impl", "transformer_engine"))),
            )
    old = ctx.at_least("flashinfer", "0.6.4") is False
    if args.fp8_recipe == "mxfp8" and old and ctx.core_since("0.17.0"):
        yield ctx.found(
            "the mxfp8 recipe in the inference-optimized layers needs FlashInfer 0.6.4 or later",
            "training.transformer_impl",
            "software.flashinfer",
            "training.fp8_recipe",
            fix=(set_to(("software.flashinfer", "0.6.4"), also=" or later"),),
            stage="validate",
        )


def _gated(ctx: Context) -> list[tuple[bool, str, object]]:
    """SwiGLU experts: not in graphs (0.17), not at all (0.18, 0.19), by backend (later)."""
    args = ctx.args
    backend = args.inference_grouped_gemm_backend
    swiglu = bool(ctx.plan.model.swiglu)
    if not ctx.core_since("0.18.0"):
        local = args.cuda_graph_impl == "local"
        return [
            (not (swiglu and local), "training.cuda_graph_impl", None),
            (not (local and backend == "te"), "inference.inference_grouped_gemm_backend", "torch"),
        ]
    if not ctx.core_since("HEAD"):
        return [(not swiglu, "model.swiglu", None)]
    suits = backend in {"torch", "vllm"} or not swiglu
    return [(suits, "inference.inference_grouped_gemm_backend", "torch")]


RULES: tuple[Rule, ...] = (
    deterministic_mode,
    batch_invariant_mode,
    inference_optimized,
)

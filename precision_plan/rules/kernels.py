"""PP375 to PP378 and PP387: fused kernels, attention logits, residual streams, precision files."""

from __future__ import annotations

from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, transformer_config


@rule(
    "PP375",
    "fused-cross-entropy-of-te",
    "error",
    stage="validate",
    source=(arguments(1528, "core_v0.18.2"),),
    versions=core("0.18.0"),
)
def fused_cross_entropy(ctx: Context) -> Found:
    """TE's fused cross entropy is switched off in recent Megatron.

    Why:
        It was found unstable; validate_args refuses it from 0.18 on. The native fusion stays.

    Bad:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, cross_entropy_loss_fusion: true, cross_entropy_fusion_impl: te}

    Good:
        software: {megatron_core: 0.18.2}
        training: {bf16: true, cross_entropy_loss_fusion: true, cross_entropy_fusion_impl: native}
    """
    args = ctx.args
    if not args.cross_entropy_loss_fusion or args.cross_entropy_fusion_impl != "te":
        return None
    return ctx.found(
        "training.cross_entropy_fusion_impl = te is refused from Megatron 0.18 on",
        "training.cross_entropy_fusion_impl",
        "training.cross_entropy_loss_fusion",
        "software.megatron_core",
        fix=(set_to(("training.cross_entropy_fusion_impl", "native")),),
    )


@rule(
    "PP376",
    "attention-logits-need-transformer-engine",
    "error",
    stage="validate",
    source=(arguments(973), arguments(982)),
    versions=core("0.16.0"),
    needs=("transformer_engine",),
)
def attention_logits(ctx: Context) -> Found:
    """Clipping or logging attention logits needs Transformer Engine 2.9.

    Why:
        TE's attention returns the largest logit from 2.9 on; validate_args asserts the version.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.8.0}
        training: {bf16: true, qk_clip: true}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.9.0}
        training: {bf16: true, qk_clip: true}
    """
    args = ctx.args
    if not (args.qk_clip or args.log_max_attention_logit):
        return None
    if ctx.at_least("transformer_engine", "2.9.0"):
        return None
    field = "training.qk_clip" if args.qk_clip else "training.log_max_attention_logit"
    return ctx.found(
        f"{field} = true needs Transformer Engine 2.9 or later; the target has "
        f"{ctx.target.package('transformer_engine')}",
        field,
        "software.transformer_engine",
        fix=(set_to(("software.transformer_engine", "2.9.0"), also=" or later"),),
    )


@rule(
    "PP387",
    "fused-permutation-needs-transformer-engine",
    "error",
    stage="transformer_config",
    source=(
        transformer_config(1850),
        transformer_config(1031, "core_v0.12.0"),
        "NVIDIA/TransformerEngine@v2.1:transformer_engine/pytorch/permutation.py:535-730",
    ),
    needs=("transformer_engine",),
)
def fused_permutation(ctx: Context) -> Found:
    """Fused permutation of tokens needs the kernels of Transformer Engine 2.1.

    Why:
        ``--moe-permute-fusion`` looks for five functions of TE, the last of which came with 2.1,
        and TransformerConfig raises if one is missing, for a dense model, too.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.0.0}
        training: {bf16: true, moe_permute_fusion: true}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.1.0}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_permute_fusion: true}
    """
    if not ctx.args.moe_permute_fusion or ctx.at_least("transformer_engine", "2.1.0"):
        return None
    return ctx.found(
        "training.moe_permute_fusion = true needs Transformer Engine 2.1 or later; the target has "
        f"{ctx.target.package('transformer_engine')}",
        "training.moe_permute_fusion",
        "software.transformer_engine",
        fix=(
            set_to(("software.transformer_engine", "2.1.0"), also=" or later"),
            set_to(("training.moe_permute_fusion", None)),
        ),
    )


@rule(
    "PP377",
    "hyper-connections-with-fp32-residual",
    "error",
    stage="transformer_config",
    source=(transformer_config(2104, "HEAD"),),
    versions=core("HEAD"),
)
def hyper_connections(ctx: Context) -> Found:
    """Hyper-connections exclude the fp32 residual stream.

    Why:
        They widen the residual stream into several, kept in the model's format.
        TransformerConfig raises NotImplementedError for fp32 ones, and for full recomputation.

    Bad:
        software: {megatron_core: HEAD}
        training: {bf16: true, enable_mhc_connections: true, fp32_residual_connection: true}

    Good:
        software: {megatron_core: HEAD}
        training: {bf16: true, enable_mhc_connections: true}
    """
    args = ctx.args
    if not args.enable_mhc_connections:
        return None
    if args.fp32_residual_connection:
        other = "training.fp32_residual_connection"
    elif args.recompute_granularity == "full":
        other = "training.recompute_granularity"
    else:
        return None
    return ctx.found(
        f"training.enable_mhc_connections = true excludes {ctx.shown(other)}",
        "training.enable_mhc_connections",
        other,
        fix=(set_to((other, None)), set_to(("training.enable_mhc_connections", None))),
    )


@rule(
    "PP378",
    "precision-file-with-kitchen",
    "error",
    stage="transformer_config",
    source=(arguments(1381),),
    versions=core("0.16.0", "0.17"),
)
def precision_file_with_kitchen(ctx: Context) -> Found:
    """A module's precision is given by one file, not by two.

    Why:
        ``--te-precision-config-file`` and the kitchen flags both fill ``quant_recipe``; building
        the configuration asserts that only one does. A configuration in the recipe becomes such
        a file.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, te_precision_config_file: te.yaml, kitchen_config_file: k.yaml}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, te_precision_config_file: te.yaml}
    """
    training = ctx.plan.training
    own = "training.te_precision_config_file"
    if training.te_precision_config_file is None:
        if training.te_precision_config is None:
            return None
        own = "training.te_precision_config"
    other = "training.kitchen_config_file"
    if training.kitchen_config_file is None:
        if training.kitchen_recipe_number is None:
            return None
        other = "training.kitchen_recipe_number"
    return ctx.found(
        f"{own} excludes {other}",
        own,
        other,
        fix=(set_to((other, None)), set_to((own, None))),
    )


RULES: tuple[Rule, ...] = (
    fused_cross_entropy,
    attention_logits,
    fused_permutation,
    hyper_connections,
    precision_file_with_kitchen,
)

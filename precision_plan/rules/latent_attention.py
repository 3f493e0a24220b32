"""PP671 and PP672: FlashAttention by name for the trainer's multi-head latent attention."""

from __future__ import annotations

from precision_plan.facts.versions import VersionRange
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import megatron

_BACKEND = "training.attention_backend"
_FILTERS = "pytorch/attention/dot_product_attention/utils.py"
_SOURCE = (
    f"transformer_engine@2.7.0:transformer_engine/{_FILTERS}:483",
    f"transformer_engine@2.10.0:transformer_engine/{_FILTERS}:599",
    "transformer_engine@2.10.0:transformer_engine/pytorch/attention/dot_product_attention/"
    "dot_product_attention.py:1398",
    megatron("core/models/common/language_module/language_module.py:111-114"),
)
_HOPPER = (9, 0)


@rule(
    "PP671",
    "flash-attention-for-latent-attention",
    "error",
    stage="run",
    source=_SOURCE,
    versions={"transformer_engine": VersionRange("1.13", "2.14")},
)
def no_backend(ctx: Context) -> Found:
    """Latent attention has no FlashAttention here, and the other backends are switched off.

    Why:
        Queries and keys of latent attention are wider than its values. Up to Transformer Engine
        2.7 FlashAttention is disabled for that, from 2.8 to 2.14 FlashAttention 2 is, and
        FlashAttention 3 exists on Hopper alone. `--attention-backend flash` turns the fused and
        the unfused backend off, so that the first forward pass finds none. Release 2.15 brings
        FlashAttention 4, and 2.17 pads the values for FlashAttention 2.

    Bad:
        hardware: {gpu: b200}
        software: {transformer_engine: 2.10.0}
        model: {multi_latent_attention: true}
        training: {attention_backend: flash}

    Good:
        hardware: {gpu: b200}
        software: {transformer_engine: 2.10.0}
        model: {multi_latent_attention: true}
        training: {attention_backend: fused}
    """
    if not _asks_for_flash(ctx):
        return None
    capability = ctx.target.compute_capability
    if ctx.at_least("transformer_engine", "2.8") and capability in {None, _HOPPER}:
        return None
    return ctx.found(
        "Transformer Engine has no FlashAttention for latent attention here",
        _BACKEND,
        "model.multi_latent_attention",
        "software.transformer_engine",
        fix=(set_to((_BACKEND, "fused")), set_to((_BACKEND, None))),
    )


@rule(
    "PP672",
    "latent-attention-needs-flash-attention-3",
    "advice",
    stage="run",
    source=_SOURCE,
    versions={"transformer_engine": VersionRange("2.8", "2.14")},
    needs=("gpu",),
)
def needs_the_third(ctx: Context) -> Found:
    """On Hopper, FlashAttention for latent attention is FlashAttention 3, a package of its own.

    Why:
        Transformer Engine 2.8 to 2.14 disables FlashAttention 2 for it. Where the package of
        FlashAttention 3 is absent, `--attention-backend flash` leaves no backend at all.

    Bad:
        hardware: {gpu: h100}
        software: {transformer_engine: 2.10.0}
        model: {multi_latent_attention: true}
        training: {attention_backend: flash}

    Good:
        hardware: {gpu: h100}
        software: {transformer_engine: 2.10.0}
        model: {multi_latent_attention: true}
    """
    if ctx.target.compute_capability != _HOPPER or not _asks_for_flash(ctx):
        return None
    return ctx.found(
        "latent attention in FlashAttention needs FlashAttention 3 in the image",
        _BACKEND,
        "model.multi_latent_attention",
        "hardware.gpu",
        fix=(set_to((_BACKEND, None)),),
    )


def _asks_for_flash(ctx: Context) -> bool:
    """True if nothing but FlashAttention may compute attention whose head sizes differ."""
    args = ctx.args
    if args.attention_backend != "flash" or args.transformer_impl != "transformer_engine":
        return False
    model = ctx.plan.model
    if not model.multi_latent_attention or ctx.target.platform == "rocm" or not ctx.trains:
        return False
    keys = (model.qk_head_dim or 128) + (model.qk_pos_emb_head_dim or 64)
    return keys != (model.v_head_dim or 128)


RULES: tuple[Rule, ...] = (no_backend, needs_the_third)

"""PP516 to PP518, PP550: what INT4 and NVFP4 fake quantization have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.pairs import train_rollout_pair
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import INT4_FLAG, NVFP4_FLAG, fake_qat, rollout_format

_KERNEL = "THUDM/slime@624b824a:docker/patch/latest/megatron.patch:275"
_GUIDE = "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md"


@rule(
    "PP516",
    "fake-qat-needs-grouped-experts",
    "error",
    stage="run",
    source=(
        _KERNEL,
        "vllm-project/vime@8c1c944:vime/backends/megatron_utils/transformer_engine.py",
    ),
)
def needs_grouped_experts(ctx: Context) -> Found:
    """Fake quantization reaches routed experts in TE grouped linear layers, and there are none.

    Why:
        INT4 and NVFP4 fake quantization wrap the weights of TEGroupedLinear and nothing else.
        A dense model, experts without --moe-grouped-gemm, the legacy grouped GEMM and the
        local transformer implementation have no such layer: the run trains in plain BF16.

    Bad:
        model: {num_layers: 36}
        qat: {int4_fake_qat: true, int4_group_size: 128}

    Good:
        model: {num_layers: 48, num_experts: 128}
        training: {moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
    """
    kind = fake_qat(ctx)
    if kind is None:
        return None
    model, args = ctx.plan.model, ctx.args
    if model.num_experts is None and model.num_layers is not None:
        field, text = "model.num_experts", "the model has no routed experts"
    elif not args.moe_grouped_gemm:
        field, text = "training.moe_grouped_gemm", "the experts are not in a grouped GEMM"
    elif args.moe_use_legacy_grouped_gemm:
        field, text = "training.moe_use_legacy_grouped_gemm", "the legacy grouped GEMM is not TE's"
    elif args.transformer_impl == "local":
        field, text = "training.transformer_impl", "the local implementation has no TE layers"
    else:
        return None
    flag = ctx.train_env[INT4_FLAG if kind == "int4_qat" else NVFP4_FLAG][1]
    fixes = {
        "training.moe_grouped_gemm": (set_to(("training.moe_grouped_gemm", True)),),
        "training.moe_use_legacy_grouped_gemm": (set_to((field, None)),),
        "training.transformer_impl": (set_to((field, "transformer_engine")),),
    }
    return ctx.found(
        f"fake quantization has nothing to act on: {text}",
        flag,
        field,
        fix=(*fixes.get(field, ()), set_to((flag, None), also=" to train in plain BF16")),
    )


@rule(
    "PP517",
    "fake-qat-without-a-reader",
    "error",
    stage="run",
    source=(
        _KERNEL,
        "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors/"
        "__init__.py:6-22",
        "radixark/miles@31f1ca96:docs/advanced/low-precision.md",
    ),
)
def without_a_reader(ctx: Context) -> Found:
    """The framework does not know the fake quantization that the plan turns on.

    Why:
        OPEN_TRAINING_INT4_* is read by the patched Megatron of vime, slime and miles,
        OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG by vime and miles. Elsewhere the variable has no
        reader, and training runs without QAT in silence.

    Bad:
        software: {framework: slime}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}
        qat: {nvfp4_fake_qat: true}

    Good:
        software: {framework: vime}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}
        qat: {nvfp4_fake_qat: true}
    """
    framework = ctx.target.framework
    if framework is None:
        return None
    kind = fake_qat(ctx)
    if kind is None:
        return None
    pair = train_rollout_pair(kind, kind.removesuffix("_qat"), framework)
    if pair is not None and pair.supported:
        return None
    flag = ctx.train_env[INT4_FLAG if kind == "int4_qat" else NVFP4_FLAG][1]
    return ctx.found(
        f"{framework} does not read the variable behind {flag}: training would run without QAT",
        flag,
        "software.framework",
        fix=(
            Fix("choose a framework that has it", {"software.framework": "vime"}),
            set_to((flag, None)),
        ),
    )


@rule(
    "PP518",
    "fake-qat-of-another-format",
    "warning",
    stage="run",
    source=(_GUIDE, "radixark/miles@31f1ca96:docs/advanced/int4-qat.md"),
    frameworks=RL_FRAMEWORKS,
)
def other_format(ctx: Context) -> Found:
    """Fake quantization simulates another format than the rollout serves.

    Why:
        Fake quantization exists to show the trainer the rounding that the rollout applies. With
        a rollout in BF16, FP8 or another 4-bit format the trainer learns a rounding that nothing
        applies, and the one that is applied stays unseen: the mismatch grows instead of closing.

    Bad:
        software: {framework: vime}
        training: {bf16: true, moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: vime}
        training: {bf16: true, moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128}
    """
    kind, served = fake_qat(ctx), rollout_format(ctx.plan)
    if kind is None or served is None or served == kind.removesuffix("_qat"):
        return None
    flag = ctx.train_env[INT4_FLAG if kind == "int4_qat" else NVFP4_FLAG][1]
    config = ctx.plan.checkpoint.quantization_config
    field = "checkpoint.hf_weight_format"
    if config is not None:
        field = "checkpoint.quantization_config"
    elif ctx.plan.weight_sync.weight_format is not None:
        field = "weight_sync.weight_format"
    return ctx.found(
        f"fake quantization simulates {kind.removesuffix('_qat')}, the rollout serves {served}",
        flag,
        field,
        fix=(
            set_to((flag, None), also=" to train in plain BF16"),
            Fix(f"serve a checkpoint in {kind.removesuffix('_qat')}"),
        ),
    )


def names_attention(patterns: Iterable[str]) -> bool:
    """True if an ignore list seems to cover attention layers, however it spells them.

    Generous on purpose: names, prefixes, wildcards and ``re:`` patterns are all tried.
    """
    name = "model.layers.0.self_attn.o_proj"
    for pattern in patterns:
        if any(word in pattern for word in ("attn", "attention", "mixer")):
            return True
        text = pattern.removeprefix("re:")
        if text != pattern:
            try:
                if re.match(text, name):
                    return True
            except re.error:
                return True  # not for this rule to say
        elif fnmatchcase(name, text) or name.startswith(text):
            return True
    return False


@rule(
    "PP550",
    "int4-qat-does-not-see-attention",
    "warning",
    stage="run",
    source=(_KERNEL, "radixark/miles@31f1ca96:docs/advanced/int4-qat.md:228-231"),
    frameworks=RL_FRAMEWORKS,
)
def wider_in_rollout(ctx: Context) -> Found:
    """The INT4 checkpoint quantizes attention, and QAT simulates routed experts only.

    Why:
        Fake quantization wraps the routed experts. The weight update packs every linear layer
        that the checkpoint's ignore list does not name. Attention that is packed but not
        simulated is rounded in the rollout alone. The converter's --ignore-rules decide; a
        checkpoint whose list is not known is left alone.

    Bad:
        software: {framework: slime}
        model: {num_layers: 48, num_experts: 128}
        training: {bf16: true, moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128,
             symmetric: true, ignore: ["re:.*lm_head.*"]}

    Good:
        software: {framework: slime}
        model: {num_layers: 48, num_experts: 128}
        training: {bf16: true, moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128,
             symmetric: true, ignore: ["re:.*lm_head.*", "re:.*self_attn.*"]}
    """
    config = ctx.plan.checkpoint.quantization_config
    if fake_qat(ctx) != "int4_qat" or rollout_format(ctx.plan) != "int4":
        return None
    if config is None or config.ignore is None or names_attention(config.ignore):
        return None
    return ctx.found(
        "attention is INT4 in the checkpoint, and QAT simulates routed experts only",
        "checkpoint.quantization_config.ignore",
        ctx.train_env[INT4_FLAG][1],
        fix=(Fix("convert again with --ignore-rules that name self_attn"),),
    )


RULES: tuple[Rule, ...] = (needs_grouped_experts, without_a_reader, other_format, wider_in_rollout)

"""PP51x: INT4 fake quantization (QAT) against the INT4 rollout checkpoint and the model."""

from __future__ import annotations

from precision_plan.facts.qat import int4_group_size
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import INT4_FLAG, INT4_GROUP

_KERNEL = "THUDM/slime@624b824a:docker/patch/latest/megatron.patch:275"
_GUIDE = "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md"
_PACKER = (
    "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors/"
    "quantizer_compressed_tensors.py"
)

DEFAULT_GROUP = 128
"""What the trainer assumes without ``OPEN_TRAINING_INT4_GROUP_SIZE`` (same line of the patch)."""


def _on(ctx: Context) -> bool:
    return ctx.env(INT4_FLAG) == "1"


def _group(ctx: Context) -> tuple[int | None, str]:
    """Group size that the trainer simulates, and the plan field that gives it."""
    found = ctx.train_env.get(INT4_GROUP)
    if found is None:
        return DEFAULT_GROUP, "qat.int4_group_size"
    value, field = found
    return (int(value) if value.isascii() and value.isdigit() else None), field


@rule(
    "PP511",
    "int4-qat-group-differs-from-checkpoint",
    "error",
    stage="run",
    source=(_KERNEL, _PACKER, "THUDM/slime#1172"),
)
def group_differs_from_checkpoint(ctx: Context) -> Found:
    """INT4 QAT simulates another group size than the rollout checkpoint has.

    Why:
        The trainer rounds weights in groups of OPEN_TRAINING_INT4_GROUP_SIZE (128 unless set),
        the weight update packs them in groups of the checkpoint's group_size, and nothing
        compares the two. With different groups every scale differs: the trainer learns to live
        with a rounding that the engine never applies. The converter's default group is 32.

    Bad:
        qat: {int4_fake_qat: true, int4_group_size: 128}
        model: {num_experts: 384}
        training: {moe_grouped_gemm: true}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32}

    Good:
        qat: {int4_fake_qat: true, int4_group_size: 32}
        model: {num_experts: 384}
        training: {moe_grouped_gemm: true}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.group_size is None or not _on(ctx):
        return None
    group, field = _group(ctx)
    if group is None or group == config.group_size:
        return None
    return ctx.found(
        f"INT4 QAT simulates groups of {group}, the rollout checkpoint has groups of "
        f"{config.group_size}",
        field,
        "checkpoint.quantization_config.group_size",
        fix=(
            set_to((field, config.group_size)),
            Fix(f"convert the rollout checkpoint again with --group-size {group}"),
        ),
    )


@rule(
    "PP512",
    "int4-qat-group-differs-from-model",
    "error",
    stage="run",
    source=(_GUIDE, _KERNEL),
)
def group_differs_from_model(ctx: Context) -> Found:
    """INT4 QAT simulates another group size than the model's published INT4 checkpoint has.

    Why:
        Kimi-K2-Thinking is published in groups of 32; Moonlight-16B-A3B, Qwen3-30B-A3B and
        Qwen3-235B-A22B are converted in groups of 128. Where the plan does not say what its
        own checkpoint holds, the group of the model's checkpoint is taken. A plan that states
        checkpoint.quantization_config.group_size is compared with that instead (PP511).

    Bad:
        model: {name: kimi-k2-thinking}
        training: {moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}

    Good:
        model: {name: kimi-k2-thinking}
        training: {moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 32}
    """
    name = ctx.plan.model.name
    if name is None or not _on(ctx):
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is not None and config.group_size is not None:
        return None
    known = int4_group_size(name)
    group, field = _group(ctx)
    if known is None or group is None or group == known.group_size:
        return None
    return ctx.found(
        f"INT4 QAT simulates groups of {group}, the INT4 checkpoint of {name} has groups of "
        f"{known.group_size}",
        field,
        "model.name",
        fix=(
            set_to(("qat.int4_group_size", known.group_size)),
            set_to(
                ("checkpoint.quantization_config.group_size", group),
                also=" if the checkpoint was converted so",
            ),
        ),
    )


@rule(
    "PP513",
    "int4-qat-is-symmetric",
    "error",
    stage="run",
    source=(_KERNEL, _PACKER, "THUDM/slime#1472"),
)
def needs_symmetric(ctx: Context) -> Found:
    """INT4 QAT simulates symmetric groups only, and the checkpoint (or the plan) asks for others.

    Why:
        The fake quantizer rounds to -7..7 around zero. An asymmetric checkpoint has a zero
        point per group, so the served weights are rounded on another grid than the trained
        ones. The direct converter of vime and slime writes asymmetric groups unless
        --is-symmetric is given.

    Bad:
        qat: {int4_fake_qat: true, int4_group_size: 32}
        training: {moe_grouped_gemm: true}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32,
             symmetric: false}

    Good:
        qat: {int4_fake_qat: true, int4_group_size: 32}
        training: {moe_grouped_gemm: true}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 32,
             symmetric: true}
    """
    if not _on(ctx):
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is not None and config.symmetric is False:
        field = "checkpoint.quantization_config.symmetric"
    elif ctx.plan.qat.int4_symmetric is False:
        field = "qat.int4_symmetric"
    else:
        return None
    return ctx.found(
        f"{field} = false, but INT4 QAT rounds symmetric groups only",
        field,
        ctx.train_env[INT4_FLAG][1],
        fix=(
            set_to((field, True), also=" (convert with --is-symmetric)"),
            set_to(("qat.int4_fake_qat", False), also=" to serve it without QAT"),
        ),
    )


@rule(
    "PP514",
    "int4-qat-flag-missing",
    "error",
    stage="run",
    source=(_KERNEL, "radixark/miles#422"),
)
def flag_missing(ctx: Context) -> Found:
    """An INT4 group size is set, but the variable that turns fake quantization on is not.

    Why:
        OPEN_TRAINING_INT4_GROUP_SIZE does nothing by itself. Without
        OPEN_TRAINING_INT4_FAKE_QAT_FLAG=1 in the train actor's environment training runs in
        plain BF16, without a word. A plan that sets the flag to false is taken at its word.

    Bad:
        qat: {int4_group_size: 128}

    Good:
        qat: {int4_fake_qat: true, int4_group_size: 128}
        training: {moe_grouped_gemm: true}
    """
    found = ctx.train_env.get(INT4_GROUP)
    if found is None or INT4_FLAG in ctx.train_env:
        return None
    return ctx.found(
        f"{found[1]} = {found[0]} without qat.int4_fake_qat: training would run without QAT",
        found[1],
        "qat.int4_fake_qat",
        fix=(set_to(("qat.int4_fake_qat", True)), set_to((found[1], None))),
    )


@rule(
    "PP515",
    "int4-qat-group-by-default",
    "warning",
    stage="run",
    source=(_KERNEL, _GUIDE),
)
def group_by_default(ctx: Context) -> Found:
    """INT4 QAT is on without a group size, so that the trainer's default of 128 decides.

    Why:
        The converter's default is 32 and published checkpoints have 32 or 128. The group size
        is half of the contract between trainer and checkpoint and should be written down.

    Bad:
        qat: {int4_fake_qat: true}
        training: {moe_grouped_gemm: true}

    Good:
        qat: {int4_fake_qat: true, int4_group_size: 128}
        training: {moe_grouped_gemm: true}
    """
    if not _on(ctx) or INT4_GROUP in ctx.train_env:
        return None
    config = ctx.plan.checkpoint.quantization_config
    wanted = config.group_size if config is not None else None
    return ctx.found(
        f"INT4 QAT without a group size: the trainer assumes {DEFAULT_GROUP}",
        ctx.train_env[INT4_FLAG][1],
        fix=(set_to(("qat.int4_group_size", wanted or DEFAULT_GROUP)),),
    )


RULES: tuple[Rule, ...] = (
    group_differs_from_checkpoint,
    group_differs_from_model,
    needs_symmetric,
    flag_missing,
    group_by_default,
)

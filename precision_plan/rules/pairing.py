"""PP501 to PP504, PP509: the trained format against the served one."""

from __future__ import annotations

from precision_plan.facts.formats import formats
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.pairs import format_hardware, train_rollout_pair
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import (
    FP32_SCALES,
    INT4_FLAG,
    NVFP4_FLAG,
    SGLANG_FRAMEWORKS,
    online_format,
    rollout_format,
    served_format,
    train_format,
)

_VIME_GUIDE = "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md"
_MILES_GUIDE = "radixark/miles@31f1ca96:docs/advanced/low-precision.md"
_SLIME_SYNC = (
    "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors/__init__.py:6-22"
)

_TITLES = {
    "fp8_block": "block FP8",
    "fp8_per_tensor": "per-tensor FP8",
    "int4": "INT4",
    "int4_qat": "INT4 fake-quantized",
    "nvfp4_qat": "NVFP4 fake-quantized",
    "custom": "a custom recipe",
}


def _title(name: str) -> str:
    row = formats().get(name)
    return _TITLES.get(name) or (row.title.partition(" (")[0] if row else name)


def _train_field(ctx: Context, name: str) -> str:
    """The plan field that chose the trained format."""
    if name == "int4_qat":
        return ctx.train_env[INT4_FLAG][1]
    if name == "nvfp4_qat":
        return ctx.train_env[NVFP4_FLAG][1]
    if ctx.args.fp4:
        return "training.fp4_format"
    if ctx.args.fp8:
        return "training.fp8_recipe" if ctx.is_set("training.fp8_recipe") else "training.fp8_format"
    return "training.fp16" if ctx.args.fp16 else "training.bf16"


def _rollout_field(ctx: Context) -> str:
    """The plan field that chose the served format."""
    checkpoint = ctx.plan.checkpoint
    if online_format(ctx) is not None:
        return "rollout.quantization"
    if checkpoint.quantization_config is not None:
        return "checkpoint.quantization_config.quant_method"
    if ctx.plan.weight_sync.weight_format is not None:
        return "weight_sync.weight_format"
    return "checkpoint.hf_weight_format"


@rule(
    "PP501",
    "train-rollout-maturity",
    "advice",
    stage="policy",
    source=(_VIME_GUIDE, _MILES_GUIDE),
    frameworks=RL_FRAMEWORKS,
)
def maturity(ctx: Context) -> Found:
    """The path from the trained to the served format is beta or experimental.

    Why:
        BF16 training with a block-FP8 rollout is the production path. INT4 rollout and INT4
        QAT are beta; FP8 training with FP8 rollout, MXFP8 and NVFP4 are experimental: they
        run, but optimizer, checkpoint and mismatch caveats remain. The profile ``production``
        raises this to a warning.

    Bad:
        software: {framework: vime}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: vime}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    served = rollout_format(ctx.plan)
    if served is None:
        return None
    trained = train_format(ctx)
    pair = train_rollout_pair(trained, served, ctx.target.framework)
    if pair is None or pair.maturity in {None, "stable"}:
        return None
    premises = [Because(f"{pair.note}")] if pair.note else []
    return ctx.found(
        f"{_title(trained)} training with {_title(served)} rollout is {pair.maturity}",
        _train_field(ctx, trained),
        _rollout_field(ctx),
        "software.framework",
        *premises,
        fix=(Fix("keep it if you mean it, and validate the model and the reward first"),),
    )


@rule(
    "PP502",
    "train-rollout-pair-unsupported",
    "warning",
    stage="run",
    source=(_MILES_GUIDE, "radixark/miles@31f1ca96:scripts/run_qwen3_30b_a3b.py:40-62"),
    frameworks=RL_FRAMEWORKS,
)
def unsupported_pair(ctx: Context) -> Found:
    """The framework does not support this trained format with this served format.

    Why:
        A rollout format is supported with the training formats whose rounding it shares:
        FP8 blocks with BF16 or block-FP8 training, MXFP8 with BF16 or MXFP8 training, NVFP4
        with NVFP4 training or NVFP4 fake quantization. Other pairs start, and trainer and
        engine then disagree by two different quantization errors instead of one.

    Bad:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
    """
    served = rollout_format(ctx.plan)
    if served is None:
        return None
    trained = train_format(ctx)
    pair = train_rollout_pair(trained, served, ctx.target.framework)
    if pair is None or pair.supported:
        return None
    return ctx.found(
        f"{ctx.target.framework} does not support {_title(trained)} training with "
        f"{_title(served)} rollout",
        _train_field(ctx, trained),
        _rollout_field(ctx),
        *([Because(pair.note)] if pair.note else ()),
        fix=(
            Fix(f"train in {_title(served)}, or in BF16 where the framework supports that"),
            Fix("serve a checkpoint in the trained format"),
        ),
    )


@rule(
    "PP503",
    "trained-and-served-granularity-differ",
    "warning",
    stage="run",
    source=("THUDM/slime#1679", "modelscope/ms-swift#6994", _VIME_GUIDE),
)
def granularity(ctx: Context) -> Found:
    """FP8 training and FP8 rollout scale over different blocks.

    Why:
        tensorwise and delayed scale a whole tensor, blockwise 128x128 blocks, mxfp8 rows of
        32. Training in FP8 narrows the gap to an FP8 rollout only if both round alike: the
        blockwise recipe goes with a 128x128 checkpoint, mxfp8 with an MXFP8 one, and the
        per-tensor recipes with a checkpoint without weight_block_size.

    Bad:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    if not ctx.args.fp8:
        return None
    served = served_format(ctx)
    if served not in {"fp8_block", "fp8_per_tensor", "fp8_per_channel", "mxfp8"}:
        return None
    trained = train_format(ctx)
    if trained in {served, "custom"}:
        return _other_blocks(ctx) if trained == "fp8_block" else None
    pair = train_rollout_pair(trained, served, ctx.target.framework)
    if ctx.target.framework in RL_FRAMEWORKS and pair is not None and not pair.supported:
        return None  # PP502 says more
    recipe = {"fp8_block": "blockwise", "mxfp8": "mxfp8", "fp8_per_tensor": "tensorwise"}
    fix = (
        set_to(("training.fp8_recipe", recipe[served]))
        if served in recipe
        else Fix("convert the checkpoint with the trained scaling")
    )
    return ctx.found(
        f"training in {_title(trained)}, rollout in {_title(served)}: the scales differ",
        _train_field(ctx, trained),
        _rollout_field(ctx),
        fix=(fix,),
    )


def _other_blocks(ctx: Context) -> Finding | None:
    config = ctx.plan.checkpoint.quantization_config
    blocks = None if config is None else config.weight_block_size
    trained = formats()["fp8_block"].weight_block  # TE has no other
    if not blocks or trained is None or tuple(blocks) == trained:
        return None
    field = "checkpoint.quantization_config.weight_block_size"
    return ctx.found(
        f"blocks of {blocks[0]}x{blocks[-1]} in the checkpoint, "
        f"of {trained[0]}x{trained[1]} in training",
        field,
        _train_field(ctx, "fp8_block"),
        fix=(set_to((field, [*trained]), also=" (convert the checkpoint so)"),),
    )


@rule(
    "PP504",
    "fp8-scale-kind-differs-from-rollout",
    "warning",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py:1195-1214",
        "vllm-project/vllm#26197",
        "PrimeIntellect-ai/prime-rl#3112",
    ),
    needs=("gpu",),
    hardware="compute capability 9.x (Hopper)",
)
def scale_kind(ctx: Context) -> Found:
    """Trainer and vLLM use different block scales on Hopper: FP32 here, powers of two there.

    Why:
        With NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1 (the frameworks' value on Hopper) the trainer
        scales blocks with FP32 numbers. vLLM's DeepGEMM rounds the same scales to powers of
        two when it loads them, unless VLLM_USE_DEEP_GEMM_E8M0=0; on Hopper it has done
        so by default since 0.11.1. Nothing fails, but the mismatch between trainer
        and rollout grows by half. Block-FP8 training exists to avoid just that. A recipe may
        leave the variable out: its lowering writes the one that fits the trainer.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vime}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        hardware: {gpu: h100}
        software: {framework: vime}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM_E8M0: "0"}}
    """
    if not ctx.args.fp8 or train_format(ctx) != "fp8_block":
        return None
    target = ctx.target
    capability = target.compute_capability
    if capability is None or capability[0] != 9 or target.framework in SGLANG_FRAMEWORKS:
        return None
    if rollout_format(ctx.plan) != "fp8_block" or "0" in _deep_gemm(ctx):
        return None
    if ctx.at_least("vllm", "0.11.1") is False:
        return None  # a switch of its own, VLLM_USE_DEEP_GEMM_E8M0_HOPPER, off by default
    completed = target.framework == "vime" and _is_composed(ctx)
    if completed and "VLLM_USE_DEEP_GEMM_E8M0" not in ctx.rollout_env:
        return None
    default = "1" if target.framework in RL_FRAMEWORKS else "0"
    value, field = ctx.train_env.get(FP32_SCALES, (default, "training.fp8_recipe"))
    rounded = ctx.rollout_env.get("VLLM_USE_DEEP_GEMM_E8M0", ("1", ""))[0] != "0"
    if (value == "1") != rounded:
        return None
    trained, served = ("FP32", "power-of-two") if rounded else ("power-of-two", "FP32")
    return ctx.found(
        f"block scales are {trained} in training and {served} in vLLM",
        field,
        _rollout_field(ctx),
        Because(f"{FP32_SCALES}={value} in the trainer"),
        Because(f"VLLM_USE_DEEP_GEMM_E8M0={int(rounded)} in the engine"),
        fix=(
            *(() if rounded else (_fp32_scales(field),)),
            set_to(("env.rollout_engine.VLLM_USE_DEEP_GEMM_E8M0", "0" if rounded else "1")),
        ),
    )


@rule(
    "PP509",
    "format-outside-documented-hardware",
    "warning",
    stage="policy",
    source=(f"{_MILES_GUIDE}:305-312",),
    frameworks=RL_FRAMEWORKS,
    needs=("gpu",),
    hardware="as documented by the framework",
)
def outside_documented_hardware(ctx: Context) -> Found:
    """The framework does not support the rollout's low-precision format on this GPU.

    Why:
        miles documents FP8 for Hopper and Blackwell, MXFP8 and NVFP4 for Blackwell, and
        BF16 alone for A100 and AMD GPUs. An engine may load such weights elsewhere and compute
        in another format (weight-only, or emulated in BF16), so that the rollout is no longer
        what the trainer is matched to. What a framework does not document is left alone.

    Bad:
        software: {framework: miles}
        hardware: {gpu: a100}
        training: {bf16: true}
        checkpoint: {quantization_config: {quant_method: mxfp8}}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
    """
    served, target = rollout_format(ctx.plan), ctx.target
    if served is None or target.framework is None or target.platform is None:
        return None
    row = format_hardware(target.framework, served)
    if row is None:
        return None
    capability = target.compute_capability
    if target.platform in row.platforms and (
        capability is None or capability >= parse_capability(row.min_cc)
    ):
        return None
    has = "{}.{}".format(*capability) if capability else target.platform
    return ctx.found(
        f"{target.framework}'s documentation has no {_title(served)} rollout on this GPU ({has}); "
        f"it begins at compute capability {row.min_cc}",
        _rollout_field(ctx),
        "hardware.gpu" if target.gpu else "hardware.compute_capability",
        fix=(Fix("serve the BF16 checkpoint"), Fix("choose a GPU that the framework documents")),
    )


def _fp32_scales(field: str) -> Fix:
    """FP32 scales in the trainer, by the field or the variable that turned them off."""
    return set_to((field, "1" if field.startswith("env.") else True))


def _is_composed(ctx: Context) -> bool:
    """True for a recipe, whose lowering completes it; a script runs as it is written."""
    layers = {origin.layer for origin in ctx.plan.origins.values()}
    return any(layer in ("recipe", "config") or "=" in layer for layer in layers)


def _deep_gemm(ctx: Context) -> str:
    """Value of ``VLLM_USE_DEEP_GEMM`` on the engine; without DeepGEMM scales stay as they are."""
    return ctx.rollout_env.get("VLLM_USE_DEEP_GEMM", ("1", ""))[0]


RULES: tuple[Rule, ...] = (
    maturity,
    unsupported_pair,
    granularity,
    scale_kind,
    outside_documented_hardware,
)

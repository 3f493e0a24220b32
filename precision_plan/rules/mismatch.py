"""PP547, PP549, PP554, PP555: where trainer and rollout still differ, and the correction."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.corrections import corrections
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import online_format, served_format, train_format

_EXTRA = "launch.extra_args"
_ROUNDED = frozenset({"fp8_block", "fp8_per_tensor", "fp8_per_channel", "mxfp8", "nvfp4", "int4"})
_MIXED = frozenset({"mxfp4", "int8"})


def _on(ctx: Context, dest: str) -> bool:
    return ctx.extra(dest) not in (None, False, "", "0", "false")  # a list has no hash


def _mismatch(ctx: Context) -> str | None:
    """What differs for certain, in words; ``None`` if nothing does or it is not known."""
    trained, served = train_format(ctx), served_format(ctx)
    if served not in _ROUNDED | _MIXED or trained == "custom":
        return None
    if trained == served:
        return None
    if trained == f"{served}_qat":
        return None if served == "int4" else "the engine rounds activations, too"
    if trained in {"bf16", "fp16", "fp32"}:
        return f"the rollout rounds weights to {served}, the trainer does not"
    return f"the trainer rounds to {trained}, the rollout to {served}"


def _field(ctx: Context) -> str:
    """The plan field that chose the served format."""
    if online_format(ctx) is not None:
        return "rollout.quantization"
    if ctx.plan.checkpoint.quantization_config is not None:
        return "checkpoint.quantization_config"
    if ctx.plan.weight_sync.weight_format is not None:
        return "weight_sync.weight_format"
    return "checkpoint.hf_weight_format"


@rule(
    "PP547",
    "mismatch-without-correction",
    "advice",
    stage="policy",
    source=(
        "radixark/miles@31f1ca96:docs/advanced/low-precision.md:56-60",
        "verl-project/verl#2809",
        "NVIDIA-NeMo/RL#971",
        "THUDM/slime@624b824a:slime/utils/arguments.py:1058-1112",
    ),
    frameworks=RL_FRAMEWORKS,
)
def without_correction(ctx: Context) -> Found:
    """Trainer and rollout round differently, and no off-policy correction is switched on.

    Why:
        Samples of a rollout in lower precision come from another policy than the one that is
        trained. Truncated importance sampling (--use-tis, or a masked variant through
        --custom-tis-function-path) weighs them back; replaying the rollout's routing
        (--use-rollout-routing-replay) removes what a mixture of experts adds to the gap. Without
        them reports tell of unstable runs. Watch the mismatch KL before you decide.

    Bad:
        software: {framework: slime}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: slime}
        training: {bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        launch: {extra_args: {use-tis: true}}
    """
    what = _mismatch(ctx)
    if what is None or not ctx.trains:
        return None
    known = [row for row in corrections() if ctx.target.framework in row.frameworks]
    if any(_on(ctx, row.dest) for row in known):
        return None
    moe = bool(ctx.plan.model.num_experts)
    offered = [row for row in known if row.offered and (moe or row.against == "rounding")]
    return ctx.found(
        f"{what}, and nothing corrects for it",
        _field(ctx),
        _EXTRA,
        Because("a mixture of experts also routes tokens differently")
        if moe
        else "software.framework",
        fix=tuple(
            Fix(f"{_EXTRA}: {{{row.spelling}: true}}", {f"{_EXTRA}.{row.spelling}": True})
            for row in offered
        ),
    )


@rule(
    "PP549",
    "correction-flags-contradict",
    "error",
    stage="validate",
    source=(
        "THUDM/slime@624b824a:slime/utils/arguments.py:1851-1866",
        "radixark/miles@31f1ca96:miles/utils/arguments.py:3142-3153",
    ),
    frameworks=("slime", "miles"),
)
def contradict(ctx: Context) -> Iterator[Finding]:
    """Flags of the off-policy correction exclude or need each other.

    Why:
        --use-rollout-logprobs takes the rollout's log-probabilities as they are, so there is no
        ratio left for --use-tis to truncate: the framework asserts that one of them is off.
        --get-mismatch-metrics is computed by the function of --custom-tis-function-path and
        asserts that there is one.

    Bad:
        software: {framework: slime}
        launch: {extra_args: {use-tis: true, use-rollout-logprobs: true}}

    Good:
        software: {framework: slime}
        launch: {extra_args: {use-tis: true}}
    """
    if _on(ctx, "use_rollout_logprobs") and _on(ctx, "use_tis"):
        yield ctx.found(
            "--use-rollout-logprobs and --use-tis exclude each other",
            _EXTRA,
            "software.framework",
            fix=(
                _without(ctx, "use_rollout_logprobs", " to correct the mismatch"),
                _without(ctx, "use_tis"),
            ),
        )
    if _on(ctx, "get_mismatch_metrics") and not _on(ctx, "custom_tis_function_path"):
        yield ctx.found(
            "--get-mismatch-metrics needs --custom-tis-function-path",
            _EXTRA,
            "software.framework",
            fix=(Fix("name the function"), _without(ctx, "get_mismatch_metrics")),
        )


def _without(ctx: Context, dest: str, why: str = "") -> Fix:
    return Fix(f"drop {dest.replace('_', '-')}{why}", {ctx.extra_field(dest): None})


_ONLINE = "vllm@0.33.0:vllm/model_executor/layers/quantization/online"


@rule(
    "PP554",
    "online-quantization-rounds-by-itself",
    "warning",
    stage="run",
    source=(f"{_ONLINE}/fp8.py:70-100", "vllm-project/vllm#46400", "vllm-project/vllm#17272"),
    frameworks=("vime",),
)
def online_rounding(ctx: Context) -> Found:
    """The trainer computes in FP8, and vLLM quantizes the BF16 weights by a rule of its own.

    Why:
        With --quantization and a BF16 checkpoint every update travels in BF16 and the engine
        quantizes it. Online FP8 and MXFP8 differ from converters and from Transformer Engine in
        the floor of the block maximum, in multiplying by a reciprocal and in the rounding of
        power-of-two exponents. Training in the same format was meant to remove just this
        difference. A checkpoint that is quantized offline makes the weight update quantize.

    Bad:
        software: {framework: vime}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint: {hf_weight_format: bf16}
        rollout: {quantization: fp8_per_block}

    Good:
        software: {framework: vime}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    served = online_format(ctx)
    if served is None or train_format(ctx) not in {"fp8_block", "fp8_per_tensor", "mxfp8"}:
        return None
    return ctx.found(
        f"vLLM quantizes BF16 weights to {served} itself, by another rule than the trainer",
        "rollout.quantization",
        "training.fp8_recipe" if ctx.is_set("training.fp8_recipe") else "training.fp8_format",
        fix=(
            Fix("serve a checkpoint that is quantized offline, without rollout.quantization"),
            set_to(("rollout.quantization", None), also=" to serve BF16"),
        ),
    )


@rule(
    "PP555",
    "fp8-parameters-are-rounded-twice",
    "warning",
    stage="run",
    source=(
        "THUDM/slime@624b824a:docs/en/advanced/low-precision.md:82-89",
        "THUDM/slime@624b824a:slime/backends/megatron_utils/model_provider.py:185-198",
    ),
    frameworks=RL_FRAMEWORKS,
)
def rounded_twice(ctx: Context) -> Found:
    """With fp8_param_gather the weight update quantizes what was dequantized from FP8.

    Why:
        FP8 parameters are rounded from the FP32 masters when the optimizer writes them. The
        update turns them back into BF16 and quantizes for the rollout. In the same format that
        gives the same bytes; in another one the weights are rounded twice, by two grids, and
        the rollout is further from the masters than a converter would make it. Without
        fp8_param_gather both sides round the same BF16 weights.

    Bad:
        software: {framework: slime}
        optimizer: {use_distributed_optimizer: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise, fp8_param_gather: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: slime}
        optimizer: {use_distributed_optimizer: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, fp8_param_gather: true}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    trained, served = train_format(ctx), served_format(ctx)
    if not ctx.args.fp8 or not ctx.args.fp8_param_gather or trained == "custom":
        return None
    if served not in _ROUNDED | _MIXED or served == trained:
        return None
    return ctx.found(
        f"weights are rounded to {trained}, and again to {served} in the weight update",
        "training.fp8_param_gather",
        _field(ctx),
        fix=(
            set_to(("training.fp8_param_gather", None)),
            Fix(f"train and serve in one format ({trained} or {served})"),
        ),
    )


RULES: tuple[Rule, ...] = (
    without_correction,
    contradict,
    online_rounding,
    rounded_twice,
)

"""PP547 and PP549: what trainer and rollout still disagree about, and the correction for it."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.corrections import corrections
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.formats import rollout_format, train_format

_EXTRA = "launch.extra_args"
_ROUNDED = frozenset({"fp8_block", "fp8_per_tensor", "fp8_per_channel", "mxfp8", "nvfp4", "int4"})
_MIXED = frozenset({"mxfp4", "int8"})


def _on(ctx: Context, dest: str) -> bool:
    return ctx.extra(dest) not in {None, False, "", "0", "false"}


def _mismatch(ctx: Context) -> str | None:
    """What differs for certain, in words; ``None`` if nothing does or it is not known."""
    trained, served = train_format(ctx), rollout_format(ctx.plan)
    if served not in _ROUNDED | _MIXED or trained == "custom":
        return None
    if trained == served:
        return None
    if trained == f"{served}_qat":
        return None if served == "int4" else "the engine rounds activations, too"
    if trained in {"bf16", "fp16", "fp32"}:
        return f"the rollout rounds weights to {served}, the trainer does not"
    return f"the trainer rounds to {trained}, the rollout to {served}"


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
        "checkpoint.quantization_config"
        if ctx.plan.checkpoint.quantization_config is not None
        else "checkpoint.hf_weight_format",
        _EXTRA,
        Because("a mixture of experts also routes tokens differently")
        if moe
        else "software.framework",
        fix=tuple(Fix(f"{_EXTRA}: {{{row.spelling}: true}}") for row in offered),
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
            fix=(Fix("drop use-rollout-logprobs to correct the mismatch"), Fix("drop use-tis")),
        )
    if _on(ctx, "get_mismatch_metrics") and not _on(ctx, "custom_tis_function_path"):
        yield ctx.found(
            "--get-mismatch-metrics needs --custom-tis-function-path",
            _EXTRA,
            "software.framework",
            fix=(Fix("name the function, or drop get-mismatch-metrics"),),
        )


RULES: tuple[Rule, ...] = (without_correction, contradict)

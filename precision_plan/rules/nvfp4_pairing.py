"""PP528 to PP530 and PP551: NVFP4 of the trainer against the packed checkpoint and the engine."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.weight_sync import sync_modules, sync_quantizer
from precision_plan.plan import Fix
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.unknown import look_up
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.fake_qat import names_attention
from precision_plan.rules.formats import rollout_format, train_format
from precision_plan.rules.nvfp4_qat import UNSET

_GUIDE = "radixark/miles@31f1ca96:docs/advanced/low-precision.md"
_LAUNCHER = "radixark/miles@31f1ca96:scripts/run_qwen3_30b_a3b.py:248-256"
_TE = "transformer-engine@2.20.2:transformer_engine/common/recipe/__init__.py:479-626"
_QUANTIZER = (
    "radixark/miles@31f1ca96:miles/backends/megatron_utils/megatron_to_hf/processors/"
    "quantizer_nvfp4.py"
)
_NO_2D = "training.nvfp4_disable_2d_quantization"
_BY_ROW = "training.nvfp4_row_scaled_activation"
_BY_TOKEN = "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION"
_SHARED = tuple(
    variable
    for field, variable in FIELD_VARIABLES.items()
    if field.startswith("training.nvfp4_4over6") or field == "training.use_fast_math"
)
"""Variables that change how a weight is rounded, in the trainer and in the converter."""


def _both(ctx: Context) -> bool:
    return train_format(ctx) == "nvfp4" and rollout_format(ctx.plan) == "nvfp4"


@rule(
    "PP528",
    "nvfp4-2d-blocks-in-trainer-alone",
    "warning",
    stage="run",
    source=(_LAUNCHER, f"{_GUIDE}:206-238", _TE),
    frameworks=RL_FRAMEWORKS,
)
def two_dimensional(ctx: Context) -> Found:
    """NVFP4 training scales weights in 16x16 blocks, the checkpoint in rows of 16.

    Why:
        Transformer Engine quantizes NVFP4 weights in two-dimensional blocks unless
        NVTE_NVFP4_DISABLE_2D_QUANTIZATION=1, so that a transpose has the same scales. The
        checkpoint, the weight update and the engine know 1x16 only: trainer and rollout round
        the same weight with different scales. miles' launcher disables it for that reason.

    Bad:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp4_format: e2m1}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp4_format: e2m1, nvfp4_disable_2d_quantization: true}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
    """
    if not _both(ctx) or ctx.env(FIELD_VARIABLES[_NO_2D]) == "1":
        return None
    return ctx.found(
        "NVFP4 weights have 16x16 blocks in training and rows of 16 in the rollout",
        "training.fp4_format",
        _NO_2D,
        fix=(set_to((_NO_2D, True)),),
    )


@rule(
    "PP529",
    "nvfp4-activation-scales-differ",
    "warning",
    stage="run",
    source=(_LAUNCHER, f"{_GUIDE}:206-238"),
    frameworks=("miles",),
)
def activation_scales(ctx: Context) -> Found:
    """The trainer scales NVFP4 activations by row, the engine by tensor, or the other way round.

    Why:
        NVTE_NVFP4_ROW_SCALED_ACTIVATION=1 gives every token its own global scale in the trainer,
        SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION=1 does the same in SGLang. One without the
        other rounds the same activations differently. Both are 1 in miles' recipe; neither is
        by default.

    Bad:
        software: {framework: miles}
        hardware: {gpu: b200}
        training:
          {bf16: true, fp4_format: e2m1, nvfp4_disable_rht: true,
           nvfp4_disable_2d_quantization: true, nvfp4_row_scaled_activation: true}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training:
          {bf16: true, fp4_format: e2m1, nvfp4_disable_rht: true,
           nvfp4_disable_2d_quantization: true, nvfp4_row_scaled_activation: true}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        env: {rollout_engine: {SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION: "1"}}
    """
    if not _both(ctx):
        return None
    ours, theirs = ctx.train_env.get(FIELD_VARIABLES[_BY_ROW]), ctx.rollout_env.get(_BY_TOKEN)
    by_row = ours is not None and ours[0] == "1"
    by_token = theirs is not None and theirs[0].lower() in {"1", "true"}
    if by_row == by_token:
        return None
    field = ours[1] if by_row and ours is not None else theirs[1] if theirs is not None else ""
    return ctx.found(
        f"NVFP4 activations are scaled by {'row' if by_row else 'tensor'} in training and by "
        f"{'token' if by_token else 'tensor'} in SGLang",
        field,
        f"env.rollout_engine.{_BY_TOKEN}" if by_row else _BY_ROW,
        fix=(
            set_to((f"env.rollout_engine.{_BY_TOKEN}", "1")) if by_row else set_to((_BY_ROW, True)),
        ),
    )


@rule(
    "PP530",
    "nvfp4-converter-rounds-otherwise",
    "warning",
    stage="run",
    source=(f"{_GUIDE}:240-247", _QUANTIZER),
    frameworks=("vime", "miles"),
)
def converter_differs(ctx: Context) -> Iterator[Finding]:
    """The offline converter gets other NVFP4 rounding variables than the trainer.

    Why:
        The converter and the weight update take 4over6 and fast math from the same NVTE_*
        variables as the trainer. A converter with others writes a checkpoint that the first
        update changes everywhere, and a reference rollout that the trainer never saw. Only a
        plan that gives env.converter is judged.

    Bad:
        software: {framework: miles}
        hardware: {gpu: b200}
        training:
          {bf16: true, fp4_format: e2m1, nvfp4_disable_2d_quantization: true, nvfp4_4over6: weights}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        env: {converter: {NVTE_USE_FAST_MATH: "0"}}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training:
          {bf16: true, fp4_format: e2m1, nvfp4_disable_2d_quantization: true, nvfp4_4over6: weights}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        env: {converter: {NVTE_NVFP4_4OVER6: weights}}
    """
    written = ctx.plan.env.converter
    if written is None or rollout_format(ctx.plan) != "nvfp4":
        return
    if train_format(ctx) not in {"nvfp4", "nvfp4_qat"}:
        return
    given = look_up(written, "env.converter")
    everywhere = look_up(ctx.plan.env.all, "env.all")
    for name in _SHARED:
        found = ctx.train_env.get(name)
        theirs = given.get(name, everywhere.get(name))
        if found is None or theirs == found[0]:
            continue
        if theirs is None and found[0].upper() == UNSET.get(name, "0").upper():
            continue  # what an absent variable means
        yield ctx.found(
            f"{name}={found[0]} in the trainer, {theirs or 'not set'} in the converter",
            f"env.converter.{name}" if name in given else "env.converter",
            found[1],
            fix=(set_to((f"env.converter.{name}", found[0]), also=" (and convert again)"),),
        )


@rule(
    "PP551",
    "nvfp4-attention-is-not-updated",
    "error",
    stage="run",
    source=(_QUANTIZER,),
    frameworks=("vime", "miles"),
)
def attention_not_updated(ctx: Context) -> Found:
    """The NVFP4 checkpoint quantizes attention, and the weight update sends it in BF16.

    Why:
        The NVFP4 weight update packs experts only (vime routed ones, miles shared ones, too).
        The ignore list of the checkpoint must therefore name the attention layers. One that
        does not makes the engine hold packed attention weights that receive BF16 tensors: the
        first update fails. A checkpoint whose list is not known is left alone.

    Bad:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp4_format: e2m1, nvfp4_disable_2d_quantization: true}
        checkpoint:
          quantization_config: {quant_method: modelopt, quant_algo: NVFP4, ignore: [lm_head]}

    Good:
        software: {framework: miles}
        hardware: {gpu: b200}
        training: {bf16: true, fp4_format: e2m1, nvfp4_disable_2d_quantization: true}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: NVFP4, ignore: [lm_head, "*.self_attn.*"]}
    """
    config, framework = ctx.plan.checkpoint.quantization_config, ctx.target.framework
    if config is None or config.quant_method is None or framework is None:
        return None
    branch = sync_quantizer(framework, config.quant_method, config.quant_algo)
    update = sync_modules(framework, "nvfp4") if branch and branch.emits == "nvfp4" else None
    if update is None or "attention" in update.kinds:
        return None
    key = "ignore" if config.ignore is not None else "exclude_modules"
    ignored = getattr(config, key)
    if ignored is None or names_attention(ignored):
        return None
    return ctx.found(
        f"attention is NVFP4 in the checkpoint, and {framework}'s weight update sends it in BF16",
        f"checkpoint.quantization_config.{key}",
        "software.framework",
        fix=(Fix("convert the routed experts only, and list the attention layers as ignored"),),
    )


RULES: tuple[Rule, ...] = (
    two_dimensional,
    activation_scales,
    converter_differs,
    attention_not_updated,
)

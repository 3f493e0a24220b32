"""PP52x: NVFP4 fake quantization, its 4over6 knobs and the in-loop NVFP4 weight update."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import NVFP4_FLAG, rollout_format, train_format

_FAST_MATH = FIELD_VARIABLES["training.use_fast_math"]
_SCOPE = FIELD_VARIABLES["training.nvfp4_4over6"]
_USE_256 = FIELD_VARIABLES["training.nvfp4_4over6_e4m3_use_256"]
_ERR_MODE = FIELD_VARIABLES["training.nvfp4_4over6_err_mode"]
_ERR_FAST = FIELD_VARIABLES["training.nvfp4_4over6_err_use_fast_math"]
_RHT = FIELD_VARIABLES["training.nvfp4_disable_rht"]

_ADAPTER = "radixark/miles@0208b9a7:miles/utils/fused_nvfp4_qdq.py"
_FAKE_QAT = "radixark/miles@0208b9a7:miles/utils/nvfp4_fake_qat.py"
_MILES_GUIDE = "radixark/miles@31f1ca96:docs/advanced/low-precision.md"
_TE_QUANTIZERS = "transformer-engine@2.20.2:transformer_engine/pytorch/quantization.py:1700-1746"


def _on(ctx: Context) -> bool:
    return ctx.env(NVFP4_FLAG) == "1"


@rule(
    "PP520",
    "nvfp4-qat-needs-sm100",
    "error",
    stage="policy",
    source=(_MILES_GUIDE, "radixark/miles@31f1ca96:scripts/run_qwen3_30b_a3b.py:40-62"),
    needs=("gpu",),
    hardware="compute capability 10.0 and later, CUDA",
)
def needs_sm100(ctx: Context) -> Found:
    """NVFP4 fake quantization is for Blackwell (compute capability 10.0 and later), not for ROCm.

    Why:
        The frameworks document NVFP4 training, fake quantization included, for Blackwell only.
        A portable implementation in plain torch computes the same values elsewhere, but no
        one has validated a run there; this is policy, not physics. Serving NVFP4 weights is
        another matter: vLLM runs them through Marlin from 7.5 on.

    Bad:
        hardware: {gpu: h100}
        qat: {nvfp4_fake_qat: true}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}

    Good:
        hardware: {gpu: b200}
        qat: {nvfp4_fake_qat: true}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}
    """
    if not _on(ctx):
        return None
    target = ctx.target
    capability = target.compute_capability
    if target.platform != "rocm" and (capability is None or capability >= (10, 0)):
        return None
    has = f"has {'{}.{}'.format(*capability)}" if capability else "is a ROCm GPU"
    return ctx.found(
        f"NVFP4 fake quantization needs compute capability 10.0 and later; the target {has}",
        ctx.train_env[NVFP4_FLAG][1],
        "hardware.gpu" if target.gpu else "hardware.compute_capability",
        fix=(
            Fix("hardware: b200", {"hardware.gpu": "b200"}),
            set_to((ctx.train_env[NVFP4_FLAG][1], None), also=" to train in BF16"),
        ),
    )


@rule(
    "PP521",
    "nvfp4-qat-needs-exact-math",
    "error",
    stage="run",
    source=(_ADAPTER, _MILES_GUIDE),
)
def needs_exact_math(ctx: Context) -> Found:
    """NVFP4 fake quantization needs NVTE_USE_FAST_MATH=0.

    Why:
        Fast math takes an approximate reciprocal and skips a rounding, so the simulated
        weights would differ from the packed ones in some blocks. The fake quantizer refuses
        the value 1 with a ValueError in the first forward pass. Unset means 0.

    Bad:
        qat: {nvfp4_fake_qat: true}
        training:
          {moe_grouped_gemm: true, gradient_accumulation_fusion: false, use_fast_math: true}

    Good:
        qat: {nvfp4_fake_qat: true}
        training:
          {moe_grouped_gemm: true, gradient_accumulation_fusion: false, use_fast_math: false}
    """
    found = ctx.train_env.get(_FAST_MATH)
    if found is None or found[0] in {"0", ""} or not _on(ctx):
        return None
    return ctx.found(
        f"{_FAST_MATH}={found[0]} with NVFP4 fake quantization, which needs 0",
        found[1],
        ctx.train_env[NVFP4_FLAG][1],
        fix=(set_to(("training.use_fast_math", False)),),
    )


@rule(
    "PP522",
    "nvfp4-qat-without-wgrad-tricks",
    "error",
    stage="run",
    source=(
        _FAKE_QAT,
        "radixark/miles@31f1ca96:tests/e2e/megatron/test_glm5_2_744b_a40b_5layer_nvfp4.py",
    ),
)
def without_wgrad_tricks(ctx: Context) -> Iterator[Finding]:
    """NVFP4 fake quantization needs gradient accumulation fusion and delayed wgrad switched off.

    Why:
        The straight-through estimator hands the gradient of the fake-quantized weight to the
        real one. Fused accumulation (on by default in Megatron) and delayed weight gradients
        write into main_grad behind autograd's back and never pass the estimator; packed
        grouped weights raise NotImplementedError.

    Bad:
        qat: {nvfp4_fake_qat: true}
        training: {moe_grouped_gemm: true}

    Good:
        qat: {nvfp4_fake_qat: true}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}
    """
    if not _on(ctx):
        return
    for name in ("gradient_accumulation_fusion", "delay_wgrad_compute"):
        if getattr(ctx.args, name):
            field = f"training.{name}"
            yield ctx.found(
                f"{ctx.shown(field)} with NVFP4 fake quantization",
                field,
                ctx.train_env[NVFP4_FLAG][1],
                fix=(set_to((field, False)),),
            )


@rule(
    "PP523",
    "nvfp4-qat-with-fp4-format",
    "warning",
    stage="run",
    source=(
        _FAKE_QAT,
        "radixark/miles@31f1ca96:tests/e2e/megatron/test_glm5_2_744b_a40b_5layer_nvfp4.py",
    ),
)
def with_fp4_format(ctx: Context) -> Found:
    """NVFP4 fake quantization and NVFP4 training are both on.

    Why:
        Fake quantization replaces the NVFP4 GEMM recipe: GEMMs stay in BF16 and read rounded
        weights. With fp4_format the rounded weights are quantized once more, by another rule
        (2D blocks, random Hadamard transform), and activations and gradients, too.

    Bad:
        qat: {nvfp4_fake_qat: true}
        training:
          {bf16: true, moe_grouped_gemm: true, gradient_accumulation_fusion: false,
           fp4_format: e2m1}

    Good:
        qat: {nvfp4_fake_qat: true}
        training: {moe_grouped_gemm: true, gradient_accumulation_fusion: false}
    """
    if not ctx.args.fp4 or not _on(ctx):
        return None
    return ctx.found(
        "NVFP4 fake quantization and NVFP4 training are both on: weights are quantized twice",
        "training.fp4_format",
        ctx.train_env[NVFP4_FLAG][1],
        fix=(
            set_to(("training.fp4_format", None)),
            set_to((ctx.train_env[NVFP4_FLAG][1], None)),
        ),
    )


@rule(
    "PP524",
    "nvfp4-4over6-with-rht",
    "error",
    stage="run",
    source=(_TE_QUANTIZERS,),
)
def four_over_six_with_rht(ctx: Context) -> Found:
    """4over6 on activations needs the random Hadamard transform switched off.

    Why:
        Transformer Engine builds the recipe and then raises ``NVFP4 4over6 quantization does
        not support RHT`` when it builds the quantizers, because forward activations get the
        transform by default. The scope ``weights`` works with it.

    Bad:
        training: {bf16: true, fp4_format: e2m1, nvfp4_4over6: all}

    Good:
        training: {bf16: true, fp4_format: e2m1, nvfp4_4over6: weights}
    """
    if not ctx.args.fp4 or ctx.args.fp4_recipe == "custom":
        return None
    found = ctx.train_env.get(_SCOPE)
    if found is None or found[0] not in {"activations", "all"} or ctx.env(_RHT) == "1":
        return None
    return ctx.found(
        f"4over6 with scope {found[0]} needs the random Hadamard transform off",
        found[1],
        "training.nvfp4_disable_rht",
        fix=(set_to(("training.nvfp4_disable_rht", True)), set_to((found[1], "weights"))),
    )


def _engine_wants(ctx: Context) -> Iterator[tuple[str, str, str, str]]:
    """``(trainer's variable, engine's variable, wanted value, engine's value when unset)``."""
    scoped = {"activations", "all"}
    on = (ctx.env(_SCOPE) or "none") in scoped
    yield _SCOPE, "FLASHINFER_NVFP4_4OVER6", "1" if on else "0", "0"
    if not on:
        return
    wide = (ctx.env(_USE_256) or "all") in scoped
    yield _USE_256, "FLASHINFER_NVFP4_4OVER6_E4M3_USE_256", "1" if wide else "0", "0"
    mode = (ctx.env(_ERR_MODE) or "MAE").upper()
    yield _ERR_MODE, "FLASHINFER_NVFP4_4OVER6_ERR_MODE", mode, "MAE"
    fast = ctx.env(_ERR_FAST) or "0"
    yield _ERR_FAST, "FLASHINFER_NVFP4_4OVER6_ERR_USE_FAST_MATH", fast, "0"


UNSET = {_SCOPE: "none", _USE_256: "all", _ERR_MODE: "MAE", _ERR_FAST: "0"}
"""What the trainer does without the variable."""


def _said(variable: str, found: tuple[str, str] | None, default: str, where: str) -> Because:
    if found is None:
        return Because(f"{variable} is not set in {where}, which means {default}")
    return Because(f"{variable}={found[0]} in {where}", field=found[1])


@rule(
    "PP525",
    "nvfp4-4over6-differs-on-the-engine",
    "error",
    stage="run",
    source=(f"{_MILES_GUIDE}:277-284",),
    frameworks=RL_FRAMEWORKS,
)
def four_over_six_differs(ctx: Context) -> Iterator[Finding]:
    """The engine quantizes NVFP4 activations by another 4over6 rule than the trainer.

    Why:
        4over6 chooses per block which E2M1 value the maximum maps to. The trainer reads
        NVTE_NVFP4_4OVER6*, FlashInfer in the rollout engine reads FLASHINFER_NVFP4_4OVER6*
        (1 where the trainer's scope is activations or all, the same error mode). With
        different values trainer and engine round the same activations differently. A
        weight-only checkpoint (W4A16_NVFP4) quantizes no activations and is left alone.

    Bad:
        software: {framework: miles}
        training: {bf16: true, fp4_format: e2m1, nvfp4_disable_rht: true, nvfp4_4over6: all}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}

    Good:
        software: {framework: miles}
        training: {bf16: true, fp4_format: e2m1, nvfp4_disable_rht: true, nvfp4_4over6: all}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        env:
          rollout_engine:
            {FLASHINFER_NVFP4_4OVER6: "1", FLASHINFER_NVFP4_4OVER6_E4M3_USE_256: "1"}
    """
    if train_format(ctx) not in {"nvfp4", "nvfp4_qat"} or rollout_format(ctx.plan) != "nvfp4":
        return
    config = ctx.plan.checkpoint.quantization_config
    if config is not None and (config.quant_algo or "").startswith("W4A16"):
        return
    for ours, theirs, wanted, unset in _engine_wants(ctx):
        engine, trainer = ctx.rollout_env.get(theirs), ctx.train_env.get(ours)
        if (engine[0].upper() if engine else unset) == wanted:
            continue
        place = engine or trainer
        yield ctx.found(
            f"{theirs} must be {wanted} on the rollout engine to mirror {ours}",
            place[1] if place else "env.rollout_engine",
            _said(ours, trainer, UNSET[ours], "the trainer"),
            _said(theirs, engine, unset, "the engine"),
            fix=(set_to((f"env.rollout_engine.{theirs}", wanted)),),
        )


@rule(
    "PP526",
    "nvfp4-inloop-update-unpatched",
    "error",
    stage="run",
    source=(
        "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md",
        "vllm@0.33.0:vllm/model_executor/model_loader/reload/meta.py:23-38",
    ),
    frameworks=("vime",),
)
def inloop_unpatched(ctx: Context) -> Found:
    """In-loop NVFP4 weight updates need vime's patch of vLLM, and the plan says it is not there.

    Why:
        After loading, vLLM keeps NVFP4 experts in the kernel's layout and under other names.
        vime's patch makes the fused MoE method recreate the checkpoint's parameters before an
        update over NCCL or IPC; without it the first update fails or corrupts the experts.
        Updates through disk reload the checkpoint and do not need it.

    Bad:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {nvfp4_inloop_patch: false}

    Good:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {nvfp4_inloop_patch: true}
    """
    if ctx.plan.rollout.nvfp4_inloop_patch is not False or not _inloop(ctx):
        return None
    return ctx.found(
        "NVFP4 weights are updated in the loop, but the engine lacks the in-loop patch",
        "rollout.nvfp4_inloop_patch",
        "weight_sync.update_weight_transport",
        fix=_PATCHED,
    )


@rule(
    "PP527",
    "nvfp4-inloop-patch-undeclared",
    "warning",
    stage="run",
    source=("vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md",),
    frameworks=("vime",),
)
def inloop_undeclared(ctx: Context) -> Found:
    """In-loop NVFP4 weight updates need vime's patch of vLLM, and the plan does not mention it.

    Why:
        No argument and no version number tells whether an image carries the patch, so whoever
        builds the image has to say so: rollout.nvfp4_inloop_patch.

    Bad:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}

    Good:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {nvfp4_inloop_patch: true}
    """
    if ctx.plan.rollout.nvfp4_inloop_patch is not None or not _inloop(ctx):
        return None
    return ctx.found(
        "NVFP4 weights are updated in the loop: say whether the engine carries the patch",
        "checkpoint.quantization_config.quant_algo",
        "rollout.nvfp4_inloop_patch",
        fix=_PATCHED,
    )


_PATCHED = (
    set_to(("rollout.nvfp4_inloop_patch", True), also=" (with the patch in the image)"),
    set_to(("weight_sync.update_weight_transport", "disk")),
)


def _inloop(ctx: Context) -> bool:
    plan = ctx.plan
    return plan.weight_sync.update_weight_transport != "disk" and rollout_format(plan) == "nvfp4"


RULES: tuple[Rule, ...] = (
    needs_sm100,
    needs_exact_math,
    without_wgrad_tricks,
    with_fp4_format,
    four_over_six_with_rht,
    four_over_six_differs,
    inloop_unpatched,
    inloop_undeclared,
)

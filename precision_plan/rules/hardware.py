"""PP201 to PP205: what the declared GPU and CUDA toolkit can train, as TE checks it."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.capability import (
    B200,
    PER_TENSOR,
    gpu_field,
    has_capability,
    refusal,
    verdict,
)

_CHECKS = "transformer-engine@2.20.2:transformer_engine/pytorch/quantization.py"


@rule(
    "PP201",
    "fp8-needs-sm89",
    "error",
    stage="te_hardware",
    source=(f"{_CHECKS}:149-159",),
    needs=("gpu",),
    hardware="compute capability 8.9 and later",
)
def fp8_needs_sm89(ctx: Context) -> Found:
    """FP8 GEMMs need Ada, Hopper or later (compute capability 8.9).

    Why:
        Earlier GPUs have no FP8 matrix units, and TE refuses the first FP8 forward pass. That
        is minutes into the job, after the model was built.

    Bad:
        hardware: {gpu: a100}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise}

    Good:
        hardware: {gpu: h100}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: tensorwise}
    """
    args = ctx.args
    if not (args.fp8 and not args.fp4 and args.fp8_recipe in PER_TENSOR):
        return None
    refused = verdict(ctx)
    if refused is None or refused.cuda:
        return None
    return ctx.found(
        f"{ctx.shown('training.fp8_format')} needs {refused.bounds}; {has_capability(ctx)}",
        "training.fp8_format",
        gpu_field(ctx),
        "training.fp8_recipe",
        fix=(
            set_to(("training.fp8_format", None), also=" to train in the base format"),
            Fix("hardware: h100", {"hardware.gpu": "h100"}),
        ),
    )


@rule(
    "PP202",
    "block-fp8-needs-sm90",
    "error",
    stage="te_hardware",
    source=(
        f"{_CHECKS}:178-186",
        "transformer-engine@2.3.0:transformer_engine/pytorch/fp8.py:54",
    ),
    needs=("gpu",),
    hardware="compute capability 9.0; 10.0 and later from TE 2.9 on",
)
def block_fp8_needs_sm90(ctx: Context) -> Found:
    """Block-scaled FP8 needs Hopper, or Blackwell with TE 2.9 or later.

    Why:
        cuBLAS has block-scaled FP8 GEMMs for Hopper. TE 2.3 to 2.8 refuse every other GPU; from
        2.9 on Blackwell emulates them with MXFP8 GEMMs, which needs power-of-two scales.

    Bad:
        hardware: {gpu: l40s}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        hardware: {gpu: h100}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    args = ctx.args
    if args.fp8_recipe != "blockwise" or not args.fp8 or args.fp4:
        return None
    refused = verdict(ctx)
    if refused is None or refused.cuda:
        return None
    newer = ctx.target.compute_capability is not None and ctx.target.compute_capability >= (10, 0)
    fix: tuple[Fix, ...] = (Fix("hardware: h100", {"hardware.gpu": "h100"}),)
    premises = [gpu_field(ctx)]
    if newer:
        premises.append("software.transformer_engine")
        fix = (
            set_to(("software.transformer_engine", "2.9.0"), also=" or later"),
            set_to(("training.fp8_recipe", "mxfp8")),
        )
    elif ctx.target.compute_capability and ctx.target.compute_capability >= (8, 9):
        fix = (set_to(("training.fp8_recipe", "tensorwise")), *fix)
    return ctx.found(
        f"training.fp8_recipe = blockwise needs {refused.bounds}; {has_capability(ctx)}",
        "training.fp8_recipe",
        *premises,
        fix=fix,
    )


@rule(
    "PP203",
    "fp8-needs-newer-cuda",
    "error",
    stage="te_hardware",
    source=(f"{_CHECKS}:149-186",),
    needs=("gpu", "cuda"),
    hardware="compute capability 8.9 and later",
)
def fp8_needs_newer_cuda(ctx: Context) -> Found:
    """The CUDA toolkit that torch was built with is too old for the recipe.

    Why:
        TE compares ``torch.version.cuda``: block-scaled FP8 needs 12.9, and on Ada (8.9) every
        FP8 GEMM needs 12.1. The driver's version does not count.

    Bad:
        hardware: {gpu: h100}
        software: {cuda: "12.8"}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        hardware: {gpu: h100}
        software: {cuda: "12.9"}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    args = ctx.args
    if not (args.fp8 or args.fp4):
        return None
    refused = verdict(ctx)
    if refused is None or not refused.cuda:
        return None
    field = "training.fp4_recipe" if args.fp4 else "training.fp8_recipe"
    fixes = [set_to(("software.cuda", refused.cuda))]
    if args.fp8_recipe == "blockwise" and not args.fp4:
        fixes.append(set_to((field, "tensorwise")))
    return ctx.found(
        f"{ctx.shown(field)} needs CUDA {refused.cuda} or later; the target has "
        f"{ctx.target.package('cuda')}",
        field,
        "software.cuda",
        gpu_field(ctx),
        fix=tuple(fixes),
    )


@rule(
    "PP204",
    "mxfp8-needs-sm100",
    "error",
    stage="te_hardware",
    source=(f"{_CHECKS}:162-168", "NVIDIA/TransformerEngine#1939"),
    needs=("gpu",),
    hardware="10.0 <= compute capability < 12.0, CUDA",
)
def mxfp8_needs_sm100(ctx: Context) -> Found:
    """MXFP8 training needs a data-center Blackwell GPU (10.0 up to 12.0).

    Why:
        MXFP8 GEMMs need the block-scaled matrix units of compute capability 10.x. On 12.x (RTX
        PRO and RTX 50) not every GEMM layout exists: TE 2.6 and later refuse it, TE 2.1 to 2.5
        enter the recipe, and this project does not let them. On Hopper use ``blockwise``.
        Serving MXFP8 weights is another matter: vLLM runs them elsewhere through Marlin.

    Bad:
        hardware: {gpu: h200}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}

    Good:
        hardware: {gpu: b200}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
    """
    args = ctx.args
    if args.fp8_recipe != "mxfp8" or not args.fp8 or args.fp4:
        return None
    capability = ctx.target.compute_capability
    if capability is None or (10, 0) <= capability < (12, 0):
        return None
    return ctx.found(
        "training.fp8_recipe = mxfp8 needs compute capability 10.0 up to 12.0; "
        f"{has_capability(ctx)}",
        "training.fp8_recipe",
        gpu_field(ctx),
        fix=(
            set_to(("training.fp8_recipe", "blockwise" if capability >= (9, 0) else "tensorwise")),
            B200,
        ),
        stage=None if _te_refuses_mxfp8(ctx, capability) else "policy",
    )


def _te_refuses_mxfp8(ctx: Context, capability: tuple[int, int]) -> bool:
    te = ctx.target.package("transformer_engine")
    return refusal("MXFP8BlockScaling", capability, None, te) is not None


@rule(
    "PP205",
    "nvfp4-needs-sm100",
    "error",
    stage="te_hardware",
    source=(f"{_CHECKS}:171-175",),
    needs=("gpu",),
    hardware="compute capability 10.0 and later, CUDA",
)
def nvfp4_needs_sm100(ctx: Context) -> Found:
    """NVFP4 training needs Blackwell (compute capability 10.0 or later).

    Why:
        FP4 matrix units exist from compute capability 10.0 on. TE asserts this when the FP4
        context is entered; some versions skip the check and fail in the kernel. Serving NVFP4
        weights on older GPUs works in vLLM through weight-only kernels and is not meant here.

    Bad:
        hardware: {gpu: h100}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4}

    Good:
        hardware: {gpu: b200}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4}
    """
    args = ctx.args
    capability = ctx.target.compute_capability
    if not args.fp4 or args.fp4_recipe != "nvfp4" or capability is None or capability >= (10, 0):
        return None
    return ctx.found(
        f"{ctx.shown('training.fp4_format')} needs compute capability 10.0 or later; "
        f"{has_capability(ctx)}",
        "training.fp4_format",
        gpu_field(ctx),
        "training.fp4_recipe",
        fix=(B200, set_to(("training.fp4_format", None))),
    )


RULES: tuple[Rule, ...] = (
    fp8_needs_sm89,
    block_fp8_needs_sm90,
    fp8_needs_newer_cuda,
    mxfp8_needs_sm100,
    nvfp4_needs_sm100,
)

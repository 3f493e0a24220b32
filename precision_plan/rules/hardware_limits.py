"""PP206 to PP212: RTX Blackwell, ROCm, and targets that are declared wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.gpus import gpus
from precision_plan.facts.transformer_engine import nvfp4_sm12x
from precision_plan.facts.versions import is_version
from precision_plan.plan import Because, Fix
from precision_plan.plan.target import PACKAGES
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.capability import B200, gpu_field, has_capability

_ROCM = "ROCm/TransformerEngine@030b79214fa6655f7840669aabef3ae22ad4a587:transformer_engine/pytorch"


_DISABLED_BY = {
    "disable_rht": "training.nvfp4_disable_rht",
    "disable_stochastic_rounding": "training.nvfp4_disable_stochastic_rounding",
}


def nvfp4_on_sm12x(ctx: Context) -> tuple[str, tuple[str, ...]] | None:
    """What NVFP4 GEMMs do wrong on 12.x, and the plan fields that would help; else ``None``."""
    capability, te = ctx.target.compute_capability, ctx.target.package("transformer_engine")
    if capability is None or capability < (12, 0):
        return None
    row = next((row for row in nvfp4_sm12x() if te in row.versions), None)
    if row is None:
        return None
    needs = row.grouped_needs if ctx.args.moe_grouped_gemm else row.needs
    missing = [name for name in needs if ctx.env(f"NVTE_NVFP4_{name.upper()}") != "1"]
    if not missing:
        return None
    how = "trains on wrong gradients" if row.default_recipe == "silent" else "fails"
    return (
        f"NVFP4 training on compute capability 12.x {how} with Transformer Engine {te}: "
        f"{row.effect}",
        tuple(_DISABLED_BY[name] for name in missing),
    )


@rule(
    "PP206",
    "nvfp4-on-sm120",
    "error",
    stage="build",
    source=(
        "NVIDIA/TransformerEngine#3062",
        "NVIDIA/TransformerEngine#3281",
        "NVIDIA/TransformerEngine#3265",
    ),
    needs=("gpu", "transformer_engine"),
    hardware="compute capability 12.x",
)
def nvfp4_on_sm120(ctx: Context) -> Found:
    """On 12.x Blackwell, NVFP4 training works with some TE versions and options only.

    Why:
        TE's check lets 12.x pass. With TE 2.8 to 2.15 the default recipe then crashes in the
        Hadamard kernel; with 2.16 to 2.18 stochastic rounding returns all-zero gradients without
        a word. Turning the Hadamard transform and stochastic rounding off works everywhere; from
        2.19 on nothing needs to be turned off.

    Bad:
        hardware: {gpu: rtx5090}
        software: {transformer_engine: 2.14.0}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4}

    Good:
        hardware: {gpu: rtx5090}
        software: {transformer_engine: 2.14.0}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4,
                   nvfp4_disable_rht: true, nvfp4_disable_stochastic_rounding: true}
    """
    if not ctx.args.fp4 or ctx.args.fp4_recipe != "nvfp4":
        return None
    wrong = nvfp4_on_sm12x(ctx)
    if wrong is None:
        return None
    what, missing = wrong
    return ctx.found(
        what,
        "training.fp4_format",
        gpu_field(ctx),
        "software.transformer_engine",
        *missing,
        fix=(
            set_to(*((field, True) for field in missing)),
            set_to(("software.transformer_engine", "2.19.0")),
        ),
    )


@rule(
    "PP207",
    "mxfp8-training-on-rocm",
    "error",
    stage="policy",
    source=(f"{_ROCM}/quantization.py",),
    needs=("gpu",),
    hardware="ROCm",
)
def mxfp8_on_rocm(ctx: Context) -> Found:
    """MXFP8 training is not for ROCm.

    Why:
        The frameworks validate MXFP8 on NVIDIA Blackwell only. The ROCm fork of TE can enter the
        recipe on gfx950 behind ``NVTE_ROCM_ENABLE_MXFP8``, with open issues in its distributed
        helpers; this project does not plan production runs on it. Serving MXFP8 weights on ROCm
        is possible with recent vLLM and is not meant here.

    Bad:
        hardware: {gpu: mi355x}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}

    Good:
        hardware: {gpu: mi355x}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise}
    """
    if ctx.target.platform != "rocm":
        return None
    args = ctx.args
    if args.fp8_recipe != "mxfp8" or not args.fp8 or args.fp4:
        return None
    return ctx.found(
        f"training.fp8_recipe = mxfp8 has no support on ROCm; {has_capability(ctx)}",
        "training.fp8_recipe",
        gpu_field(ctx),
        fix=(set_to(("training.fp8_recipe", "tensorwise")), B200),
    )


@rule(
    "PP208",
    "nvfp4-training-on-rocm",
    "error",
    stage="policy",
    source=(f"{_ROCM}/quantization.py",),
    needs=("gpu",),
    hardware="ROCm",
)
def nvfp4_on_rocm(ctx: Context) -> Found:
    """NVFP4 training is not for ROCm.

    Why:
        AMD GPUs have no NVFP4 matrix units. The check of the ROCm fork of TE lets the recipe pass
        on gfx942 and gfx950, but nobody has shown its quality or speed.

    Bad:
        hardware: {gpu: mi355x}
        training: {bf16: true, fp4_format: e2m1}

    Good:
        hardware: {gpu: mi355x}
        training: {bf16: true}
    """
    if ctx.target.platform != "rocm" or not ctx.args.fp4:
        return None
    return ctx.found(
        f"{ctx.shown('training.fp4_format')} has no support on ROCm; {has_capability(ctx)}",
        "training.fp4_format",
        gpu_field(ctx),
        fix=(set_to(("training.fp4_format", None)), B200),
    )


@rule(
    "PP209",
    "fp8-training-on-rocm",
    "error",
    stage="te_hardware",
    source=(f"{_ROCM}/quantization.py",),
    needs=("gpu",),
    hardware="ROCm",
)
def fp8_on_rocm(ctx: Context) -> Found:
    """On ROCm, FP8 training is per tensor, on MI300 and later.

    Why:
        The ROCm fork of TE refuses block-scaled FP8 on every GPU, and any FP8 on MI200 (gfx90a),
        which has no FP8 units. MI300 computes in FNUZ encodings (largest e4m3 value 240), MI350
        in OCP ones.

    Bad:
        hardware: {gpu: mi300x}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        hardware: {gpu: mi300x}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise}
    """
    if ctx.target.platform != "rocm":
        return None
    args = ctx.args
    if not args.fp8 or args.fp4 or args.fp8_recipe == "mxfp8":
        return None
    if args.fp8_recipe == "blockwise":
        return ctx.found(
            f"training.fp8_recipe = blockwise has no support on ROCm; {has_capability(ctx)}",
            "training.fp8_recipe",
            gpu_field(ctx),
            fix=(set_to(("training.fp8_recipe", "tensorwise")),),
        )
    if ctx.target.gfx is not None and ctx.target.fp8_encoding == "none":
        return ctx.found(
            f"{ctx.shown('training.fp8_format')} needs FP8 matrix units; {has_capability(ctx)}",
            "training.fp8_format",
            gpu_field(ctx),
            fix=(set_to(("training.fp8_format", None)),),
        )
    return None


@rule(
    "PP210",
    "unknown-gpu",
    "warning",
    stage="policy",
    source=("https://developer.nvidia.com/cuda-gpus",),
)
def unknown_gpu(ctx: Context) -> Found:
    """The GPU is not in the catalogue, so rules that need it stay silent.

    Why:
        A misspelt product name would switch off every hardware check. Name a product of the
        catalogue, or declare ``hardware.compute_capability`` beside the name.

    Bad:
        hardware: {gpu: h1000}

    Good:
        hardware: {gpu: h100}
    """
    name = ctx.plan.hardware.gpu
    if name is None or name in gpus() or ctx.plan.hardware.compute_capability is not None:
        return None
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), gpus(), n=2, cutoff=0.5)
    return ctx.found(
        f"hardware.gpu = {name} is not in the catalogue; its compute capability is unknown",
        "hardware.gpu",
        Because(f"known: {', '.join(gpus())}"),
        fix=(
            *(set_to(("hardware.gpu", one)) for one in close),
            Fix('hardware.compute_capability: "X.Y"'),
        ),
    )


@rule(
    "PP211",
    "gpu-contradicts-capability",
    "error",
    stage="policy",
    source=("https://developer.nvidia.com/cuda-gpus",),
)
def gpu_contradicts_capability(ctx: Context) -> Found:
    """The declared compute capability or platform is not that of the declared GPU.

    Why:
        Rules would follow the explicit number, and the plan would be checked for another machine
        than the one named. This usually comes from a group choice with a leftover override.

    Bad:
        hardware: {gpu: h100, compute_capability: "10.0"}

    Good:
        hardware: {gpu: h100, compute_capability: "9.0"}
    """
    hardware = ctx.plan.hardware
    if hardware.compute_capability is None and hardware.platform is None:
        return None
    known = gpus().get(hardware.gpu or "")
    if known is None:
        return None
    if hardware.platform is not None and hardware.platform != known.platform:
        field = "hardware.platform"
        real: str = known.platform
    elif known.compute_capability and hardware.compute_capability not in (
        None,
        known.capability_text,
    ):
        field = "hardware.compute_capability"
        real = known.capability_text
    else:
        return None
    return ctx.found(
        f"{ctx.shown(field)} contradicts hardware.gpu = {hardware.gpu}, which has {real}",
        field,
        "hardware.gpu",
        fix=(set_to((field, None)),),
    )


@rule(
    "PP212",
    "unknown-version",
    "warning",
    stage="policy",
    source=("https://peps.python.org/pep-0440/",),
)
def unknown_version(ctx: Context) -> Iterator[Finding]:
    """A declared version is no version, so rules that need it stay silent.

    Why:
        Versions are compared as PEP 440 has them; the head of a repository is ``HEAD`` or
        ``main``. Any other text, such as the name of an image, counts as not declared.

    Bad:
        software: {transformer_engine: nightly}

    Good:
        software: {transformer_engine: 2.9.0}
    """
    software = ctx.plan.software
    for name in PACKAGES:
        text = getattr(software, name)
        if text is None or is_version(text):
            continue
        field = f"software.{name}"
        yield ctx.found(
            f"{field} = {text} is not a version (expected e.g. 2.9.0 or HEAD)",
            field,
            fix=(set_to((field, None)),),
        )


RULES: tuple[Rule, ...] = (
    nvfp4_on_sm120,
    mxfp8_on_rocm,
    nvfp4_on_rocm,
    fp8_on_rocm,
    unknown_gpu,
    gpu_contradicts_capability,
    unknown_version,
)

"""PP140 to PP145: FP4 training and its parameters."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import arguments, core, megatron, transformer_config

_QUANTIZER = "NVIDIA/TransformerEngine@d0067d0:transformer_engine/pytorch/csrc/quantizer.cpp"


@rule(
    "PP140",
    "fp4-with-fp8",
    "error",
    stage="validate",
    source=(arguments(661), transformer_config(1035)),
    versions=core("0.15.0"),
)
def fp4_with_fp8(ctx: Context) -> Found:
    """FP4 and FP8 training exclude each other.

    Why:
        A layer runs in one quantization context. Megatron raises if both formats are set. To
        keep single layers in FP8 or BF16 within an FP4 run, use a per-module precision file.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp8_format: e4m3, fp4_format: e2m1}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp4_format: e2m1}
    """
    args = ctx.args
    if not (args.fp4 and args.fp8):
        return None
    return ctx.found(
        f"{ctx.shown('training.fp4_format')} and {ctx.shown('training.fp8_format')} exclude "
        "each other",
        "training.fp4_format",
        "training.fp8_format",
        fix=(_without(ctx, "fp8"), _without(ctx, "fp4")),
    )


def _without(ctx: Context, kind: str) -> Fix:
    """Drop a format and, if it is written, the recipe that goes with it."""
    names = (f"training.{kind}_format", f"training.{kind}_recipe")
    return set_to(*((name, None) for name in names if ctx.is_set(name)))


@rule(
    "PP141",
    "fp4-param-gather-needs-fp4",
    "error",
    stage="validate",
    source=(arguments(665), transformer_config(1032)),
    versions=core("0.15.0"),
)
def fp4_param_gather(ctx: Context) -> Found:
    """FP4 parameters need FP4 training.

    Why:
        ``--fp4-param-gather`` stores the weights of TE's layers in FP4, which only FP4 GEMMs
        can read. validate_args raises without ``--fp4-format``.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp4_param_gather: true}

    Good:
        software: {megatron_core: 0.18.2, transformer_engine: 2.14.0}
        training: {bf16: true, fp4_format: e2m1, fp4_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    if not ctx.fp4_param_gather or ctx.args.fp4:
        return None
    return ctx.found(
        "training.fp4_param_gather = true needs training.fp4_format",
        "training.fp4_param_gather",
        "training.fp4_format",
        fix=(
            set_to(("training.fp4_param_gather", None)),
            set_to(("training.fp4_format", "e2m1")),
        ),
    )


@rule(
    "PP142",
    "fp4-needs-transformer-engine-2-7",
    "error",
    stage="validate",
    source=(arguments(669),),
    versions=core("0.15.0"),
    needs=("transformer_engine",),
)
def fp4_needs_te(ctx: Context) -> Found:
    """FP4 training needs Transformer Engine 2.7.0.dev0, that is release 2.8.

    Why:
        validate_args compares TE's version with 2.7.0.dev0. Release 2.7 passes that check
        without having the recipe class (another rule says so); 2.8 is the first release that
        trains.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.5.0}
        training: {bf16: true, fp4_format: e2m1}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.8.0}
        training: {bf16: true, fp4_format: e2m1}
    """
    if not ctx.args.fp4 or ctx.at_least("transformer_engine", "2.7.0.dev0"):
        return None
    return ctx.found(
        f"{ctx.shown('training.fp4_format')} needs Transformer Engine 2.8 or later; the target "
        f"has {ctx.target.package('transformer_engine')}",
        "training.fp4_format",
        "software.transformer_engine",
        fix=(set_to(("software.transformer_engine", "2.8.0"), also=" or later"),),
    )


@rule(
    "PP143",
    "custom-fp4-recipe-needs-factory",
    "error",
    stage="transformer_config",
    source=(transformer_config(1039),),
    versions=core("0.16.0"),
)
def custom_fp4_factory(ctx: Context) -> Found:
    """The custom FP4 recipe is nothing without its quantizer factory.

    Why:
        ``--fp4-recipe custom`` builds TE's CustomRecipe from the function that
        ``--fp4-quantizer-factory`` names by its import path. TransformerConfig raises without it.

    Bad:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: custom}

    Good:
        software: {megatron_core: 0.16.1}
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: custom,
                   fp4_quantizer_factory: my_package.quantizers.factory}
    """
    args = ctx.args
    if not args.fp4 or args.fp4_recipe != "custom" or args.fp4_quantizer_factory:
        return None
    return ctx.found(
        "training.fp4_recipe = custom needs training.fp4_quantizer_factory",
        "training.fp4_recipe",
        "training.fp4_quantizer_factory",
        fix=(Fix("training.fp4_quantizer_factory: package.module.function"),),
    )


@rule(
    "PP144",
    "fp4-parameters-without-buffer-support",
    "error",
    stage="build",
    source=(
        megatron("core/distributed/param_and_grad_buffer.py:1055", "core_v0.18.2"),
        "NVIDIA/TransformerEngine@v2.14:transformer_engine/pytorch/tensor/utils.py",
    ),
    versions=core("0.15.0"),
)
def fp4_parameters_in_buffer(ctx: Context) -> Found:
    """FP4 parameters need a parameter buffer that knows packed FP4.

    Why:
        The distributed optimizer's DDP buffer maps packed NVFP4 weights (two values a byte) from
        Megatron 0.18 on, through a TE function that handles NVFP4 from 2.14 on. Before, DDP
        fails while it is built; validate_args lets it pass.

    Bad:
        software: {megatron_core: 0.16.1, transformer_engine: 2.9.0}
        training: {bf16: true, fp4_format: e2m1, fp4_param_gather: true}
        optimizer: {use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.18.2, transformer_engine: 2.14.0}
        training: {bf16: true, fp4_format: e2m1, fp4_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not ctx.fp4_param_gather or not args.fp4 or not args.use_distributed_optimizer:
        return None
    if args.use_megatron_fsdp:
        return None
    if not ctx.core_since("0.18.0"):
        field, wanted = "software.megatron_core", "0.18.2"
    elif ctx.at_least("transformer_engine", "2.14") is False:
        field, wanted = "software.transformer_engine", "2.14.0"
    else:
        return None
    return ctx.found(
        f"training.fp4_param_gather = true needs {field.partition('.')[2]} {wanted} or later",
        "training.fp4_param_gather",
        field,
        "optimizer.use_distributed_optimizer",
        fix=(set_to(("training.fp4_param_gather", None)), set_to((field, wanted))),
    )


@rule(
    "PP145",
    "nvfp4-needs-bf16",
    "error",
    stage="build",
    source=(
        f"{_QUANTIZER}:2631-2634",
        "NVIDIA/TransformerEngine@d0067d0:transformer_engine/common/gemm/cublaslt_gemm.cu:430-432",
    ),
)
def nvfp4_needs_bf16(ctx: Context) -> Found:
    """NVFP4 training needs a BF16 model.

    Why:
        The Hadamard transform of the default recipe takes BF16 input only, and the FP4 GEMM
        writes no FP16. An fp16 model fails in the first forward pass; an fp32 one does unless the
        transform is turned off. Megatron checks neither.

    Bad:
        training: {fp16: true, fp4_format: e2m1}

    Good:
        training: {bf16: true, fp4_format: e2m1}
    """
    args = ctx.args
    if not args.fp4 or args.fp4_recipe != "nvfp4" or (args.bf16 and not args.fp16):
        return None
    if not args.fp16 and ctx.env("NVTE_NVFP4_DISABLE_RHT") == "1":
        return None
    base = "training.fp16" if args.fp16 else "training.bf16"
    return ctx.found(
        f"{ctx.shown('training.fp4_format')} needs a BF16 model",
        "training.fp4_format",
        base,
        "training.nvfp4_disable_rht",
        fix=(set_to(("training.bf16", True), ("training.fp16", None)),),
    )


RULES: tuple[Rule, ...] = (
    fp4_with_fp8,
    fp4_param_gather,
    fp4_needs_te,
    custom_fp4_factory,
    fp4_parameters_in_buffer,
    nvfp4_needs_bf16,
)

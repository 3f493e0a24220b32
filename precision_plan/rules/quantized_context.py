"""PP146, PP177, PP190 and PP191: where a layer leaves, or should leave, the quantized context."""

from __future__ import annotations

from typing import Any

from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import megatron

_LAYERS = "training.first_last_layers_bf16"


@rule(
    "PP146",
    "nvfp4-without-bf16-layers",
    "warning",
    stage="run",
    source=(
        "NVIDIA-NeMo/Megatron-Bridge#1347",
        "https://arxiv.org/abs/2509.25149",
    ),
)
def nvfp4_everywhere(ctx: Context) -> Found:
    """NVFP4 training converges with some layers in BF16, and every layer is in NVFP4.

    Why:
        The last layers need more precision than FP4 has: NVIDIA's NVFP4 pre-training keeps about
        a seventh of the linear layers in BF16, most of them at the end, and the public Llama 3
        recipe was corrected to keep the last four. Nothing fails without them; the loss drifts
        away. A file with per-module precision is taken at its word.

    Bad:
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4}

    Good:
        training: {bf16: true, fp4_format: e2m1, fp4_recipe: nvfp4, first_last_layers_bf16: true,
                   num_layers_at_end_in_bf16: 4}
    """
    args = ctx.args
    if not args.fp4 or args.first_last_layers_bf16 or not ctx.trains or _by_module(ctx):
        return None
    return ctx.found(
        "NVFP4 training without a layer in BF16",
        _LAYERS,
        "training.fp4_format",
        fix=(set_to((_LAYERS, True), ("training.num_layers_at_end_in_bf16", 4)),),
    )


def _by_module(ctx: Context) -> bool:
    training = ctx.plan.training
    return bool(
        training.te_precision_config
        or training.te_precision_config_file
        or training.kitchen_config_file
        or training.kitchen_recipe_number
    )


@rule(
    "PP190",
    "tensor-overlap-with-two-precisions",
    "error",
    stage="build",
    source=(
        "NVIDIA/TransformerEngine#2043",
        megatron("training/initialize.py:255-295", "core_v0.14.0"),
        megatron("training/initialize.py:278-300"),
    ),
    needs=("megatron_core", "transformer_engine"),
)
def overlap_with_two_precisions(ctx: Context) -> Found:
    """Overlapped tensor-parallel communication has buffers for one precision only.

    Why:
        TE's user buffers are set up once, for FP8 or for BF16. Layers that stay in BF16 beside FP8
        layers need both kinds, which TE allocates from 2.7 on and Megatron asks for from 0.15 on.

    Bad:
        software: {megatron_core: 0.14.0, transformer_engine: 2.6.0}
        parallel: {tensor_model_parallel_size: 2, sequence_parallel: true, tp_comm_overlap: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise,
                   first_last_layers_bf16: true}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}

    Good:
        software: {megatron_core: 0.16.1, transformer_engine: 2.10.0}
        parallel: {tensor_model_parallel_size: 2, sequence_parallel: true, tp_comm_overlap: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: tensorwise,
                   first_last_layers_bf16: true}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}
    """
    args = ctx.args
    if not (args.fp8 and args.tp_comm_overlap and args.first_last_layers_bf16):
        return None
    if not (args.num_layers_at_start_in_bf16 or args.num_layers_at_end_in_bf16):
        return None
    old_core = not ctx.core_since("0.15.0")
    if not old_core and ctx.at_least("transformer_engine", "2.7.0") is not False:
        return None
    field = "parallel.tp_comm_overlap"
    return ctx.found(
        "layers in FP8 and in BF16 share communication buffers of one precision",
        field,
        _LAYERS,
        "software.megatron_core" if old_core else "software.transformer_engine",
        fix=(set_to((field, None)), set_to((_LAYERS, None))),
    )


@rule(
    "PP191",
    "mxfp8-graphs-without-gather-overlap",
    "warning",
    stage="run",
    source=("NVIDIA-NeMo/Megatron-Bridge#4140",),
)
def graphs_without_overlap(ctx: Context) -> Found:
    """CUDA graphs of MXFP8 layers with gathered parameters go with an overlapped gather.

    Why:
        Public recipes for MXFP8 with CUDA graphs failed at the start of training until the
        parameter all-gather was overlapped, in the settings of the model's buffers and of the
        optimizer alike, and the loss was no longer normalized per token.

    Bad:
        software: {megatron_core: 0.16.1}
        parallel: {overlap_grad_reduce: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true, cuda_graph_impl: transformer_engine}
        optimizer: {use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.16.1}
        parallel: {overlap_grad_reduce: true, overlap_param_gather: true}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true, cuda_graph_impl: transformer_engine}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if args.fp8_recipe != "mxfp8" or not (args.fp8 and args.fp8_param_gather):
        return None
    if args.cuda_graph_impl in {None, "none"}:
        return None
    gather, per_token = "parallel.overlap_param_gather", ctx.extra("calculate_per_token_loss")
    if args.overlap_param_gather and not per_token:
        return None
    edits: list[tuple[str, Any]] = [] if args.overlap_param_gather else [(gather, True)]
    if per_token:
        edits.append(("launch.extra_args.calculate-per-token-loss", None))
    return ctx.found(
        "CUDA graphs of MXFP8 layers "
        + ("with a loss per token" if args.overlap_param_gather else "without overlapped gather"),
        gather,
        "training.cuda_graph_impl",
        "training.fp8_param_gather",
        fix=(set_to(*edits),),
    )


@rule(
    "PP177",
    "use-flash-attn-unused",
    "warning",
    stage="validate",
    source=(
        "alibaba/Pai-Megatron-Patch#427",
        megatron("core/extensions/transformer_engine.py", "core_v0.14.0"),
    ),
    fixable=True,
)
def use_flash_attn(ctx: Context) -> Found:
    """`--use-flash-attn` does nothing for Transformer Engine's layers.

    Why:
        The flag belongs to Megatron's legacy layers. TE chooses between flash, fused and unfused
        attention by `--attention-backend`, which sets the NVTE_* variables.

    Bad:
        software: {megatron_core: 0.14.0}
        training: {bf16: true, use_flash_attn: true}

    Good:
        software: {megatron_core: 0.14.0}
        training: {bf16: true, attention_backend: flash}
    """
    field, training = "training.use_flash_attn", ctx.plan.training
    if not training.use_flash_attn or training.use_legacy_models:
        return None
    if ctx.args.transformer_impl != "transformer_engine":
        return None
    edits: list[tuple[str, Any]] = [(field, None)]
    if training.attention_backend is None:
        edits.append(("training.attention_backend", "flash"))
    return ctx.found(
        f"{field} = true has no effect on Transformer Engine's layers",
        field,
        "training.transformer_impl",
        fix=(set_to(*edits, safe=len(edits) == 1),),
    )


RULES: tuple[Rule, ...] = (
    nvfp4_everywhere,
    use_flash_attn,
    overlap_with_two_precisions,
    graphs_without_overlap,
)

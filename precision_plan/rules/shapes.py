"""PP81x: matrix shapes of training against the alignment of quantized GEMMs and QAT groups."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.transformer_engine import gemm_multiples
from precision_plan.plan import Because, Fix
from precision_plan.plan.model_modules import has_dense_layers
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import INT4_FLAG, INT4_GROUP, train_format

_GEMM = "NVIDIA/TransformerEngine@d0067d0:transformer_engine/common/gemm/cublaslt_gemm.cu"
_QUANTIZER = "NVIDIA/TransformerEngine@d0067d0:transformer_engine/pytorch/csrc/quantizer.cpp"
_UTILS = "transformer-engine@2.20.2:transformer_engine/pytorch/utils.py:704-716"


def _share(name: str, size: int, split: int) -> str:
    """``model.hidden_size = 2064``, with what one rank gets of it where it is split."""
    if split == 1:
        return f"{name} = {size}"
    return f"{name} = {size} over {split} ranks is {size / split:g}, which"


def _weight_dims(ctx: Context) -> Iterator[tuple[str, int, str | None, int]]:
    """``(field, size, field of the split, split)`` of the weights' dimensions on one rank."""
    model, parallel = ctx.plan.model, ctx.plan.parallel
    tp = parallel.tensor_model_parallel_size or 1
    split = "parallel.tensor_model_parallel_size"
    if model.hidden_size is not None:
        yield "model.hidden_size", model.hidden_size, None, 1
    if model.ffn_hidden_size is not None and has_dense_layers(model):
        yield "model.ffn_hidden_size", model.ffn_hidden_size, split, tp
    if model.moe_ffn_hidden_size is not None:
        etp = parallel.expert_tensor_parallel_size
        if etp is None:
            yield "model.moe_ffn_hidden_size", model.moe_ffn_hidden_size, split, tp
        else:
            field = "parallel.expert_tensor_parallel_size"
            yield "model.moe_ffn_hidden_size", model.moe_ffn_hidden_size, field, etp
    heads, width = model.num_attention_heads, model.v_head_dim or model.kv_channels
    if heads is not None and width is not None:
        yield "model.num_attention_heads", heads * width, split, tp


@rule(
    "PP811",
    "weights-not-aligned-for-quantized-gemm",
    "error",
    stage="run",
    source=(_UTILS, f"{_GEMM}:207-215", f"{_QUANTIZER}:1514-1516", f"{_QUANTIZER}:1982-1986"),
)
def weights_aligned(ctx: Context) -> Iterator[Finding]:
    """A weight's dimension on one rank does not fit the quantized GEMM.

    Why:
        FP8 GEMMs need both dimensions of a weight to be multiples of 16, MXFP8 of 32, NVFP4 of
        16, after tensor parallelism has cut them. Transformer Engine does not pad weights; the
        first forward pass fails.

    Bad:
        model: {hidden_size: 2048, ffn_hidden_size: 5520}
        parallel: {tensor_model_parallel_size: 8}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}

    Good:
        model: {hidden_size: 2048, ffn_hidden_size: 5632}
        parallel: {tensor_model_parallel_size: 8}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    if not (ctx.args.fp8 or ctx.args.fp4):
        return
    trained = train_format(ctx)
    unit = gemm_multiples().get(trained)
    if unit is None:
        return
    for name, size, split_field, split in _weight_dims(ctx):
        if size % (split * unit):
            yield ctx.found(
                f"{_share(name, size, split)} is not a multiple of {unit}, as {trained} GEMMs need",
                name,
                *([split_field] if split_field else ()),
                Because(f"training is in {trained}"),
                fix=(
                    Fix("split it over fewer ranks")
                    if size % unit == 0
                    else Fix("train in bf16, or in a recipe with smaller units"),
                ),
            )


@rule(
    "PP812",
    "tokens-not-aligned-for-quantized-gemm",
    "error",
    stage="run",
    source=(
        _UTILS,
        f"{_QUANTIZER}:1514-1516",
        "modelscope/ms-swift#9723",
        "NVIDIA-NeMo/RL#2783",
    ),
)
def tokens_aligned(ctx: Context) -> Found:
    """The tokens of one rank do not fit the quantized GEMM.

    Why:
        The rows of an activation are quantized, too: their number on one rank, after context
        and sequence parallelism, must be a multiple of 32 for MXFP8, 16 for NVFP4 and 8 for
        the other recipes. Runs with dynamic batches are padded by the framework and left
        alone.

    Bad:
        parallel: {tensor_model_parallel_size: 4, sequence_parallel: true}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, seq_length: 31936,
           micro_batch_size: 1}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}

    Good:
        parallel: {tensor_model_parallel_size: 4, sequence_parallel: true}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, seq_length: 32768,
           micro_batch_size: 1}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}
    """
    training = ctx.plan.training
    if training.seq_length is None or training.use_dynamic_batch_size:
        return None
    if not (ctx.args.fp8 or ctx.args.fp4):
        return None
    unit = {"mxfp8": 32, "nvfp4": 16}.get(train_format(ctx), 8)
    parallel = ctx.plan.parallel
    split = parallel.context_parallel_size or 1
    if ctx.args.sequence_parallel:
        split *= parallel.tensor_model_parallel_size or 1
    tokens = training.seq_length * (training.micro_batch_size or 1)
    if tokens % (split * unit) == 0:
        return None
    return ctx.found(
        f"{tokens} / {split} = {tokens / split:g} tokens a rank are not a multiple of {unit}",
        "training.seq_length",
        "training.micro_batch_size",
        "parallel.tensor_model_parallel_size",
        "parallel.context_parallel_size",
        fix=(
            set_to(
                ("training.seq_length", -(-training.seq_length // (split * unit)) * split * unit)
            ),
        ),
    )


@rule(
    "PP813",
    "int4-qat-group-cut-by-expert-parallelism",
    "error",
    stage="run",
    source=(
        "THUDM/slime@624b824a:docker/patch/latest/megatron.patch:225-276",
        "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors/"
        "quantizer_compressed_tensors.py:60",
    ),
)
def qat_group_cut(ctx: Context) -> Iterator[Finding]:
    """The experts' input on one rank is not a whole number of INT4 groups.

    Why:
        QAT rounds what one rank holds and pads the last group with zeros. The packer works on
        the whole matrix and needs whole groups, so a rank's cut through a group is rounded with
        another scale than the one that is served, and an input that is no multiple of the
        group cannot be packed at all.

    Bad:
        model: {num_experts: 64, moe_ffn_hidden_size: 1408}
        parallel: {expert_tensor_parallel_size: 2}
        training: {moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}

    Good:
        model: {num_experts: 64, moe_ffn_hidden_size: 1408}
        parallel: {expert_tensor_parallel_size: 1}
        training: {moe_grouped_gemm: true}
        qat: {int4_fake_qat: true, int4_group_size: 128}
    """
    found = ctx.train_env.get(INT4_GROUP)
    if found is None or ctx.env(INT4_FLAG) != "1" or not found[0].isdigit():
        return
    group, model = int(found[0]), ctx.plan.model
    parallel = ctx.plan.parallel
    split = parallel.expert_tensor_parallel_size or parallel.tensor_model_parallel_size or 1
    for name, size, cuts in (
        ("moe_ffn_hidden_size", model.moe_ffn_hidden_size, split),
        ("hidden_size", model.hidden_size, 1),
    ):
        if size is not None and group > 0 and size % (cuts * group):
            yield ctx.found(
                f"{_share(f'model.{name}', size, cuts)} is not a multiple of the INT4 group "
                f"{group}",
                found[1],
                f"model.{name}",
                "parallel.expert_tensor_parallel_size",
                fix=(
                    Fix(f"a group size that divides {size}, in training and in the checkpoint")
                    if size % group
                    else set_to(("parallel.expert_tensor_parallel_size", 1)),
                ),
            )


RULES: tuple[Rule, ...] = (weights_aligned, tokens_aligned, qat_group_cut)

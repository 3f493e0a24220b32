"""PP80x: matrix shapes of the rollout engine against blocks and groups, cut by parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.plan.model_modules import has_dense_layers
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS, rollout_format

_FP8_UTILS = "vllm@0.33.0:vllm/model_executor/layers/quantization/utils/fp8_utils.py"
_MOE_FP8 = "vllm@0.33.0:vllm/model_executor/layers/fused_moe/oracle/fp8.py:292-395"
_PARTITION = "vllm@0.33.0:vllm/distributed/utils.py:137"
_MODELOPT = "vllm@0.33.0:vllm/model_executor/layers/quantization/modelopt.py"

_TP = "rollout.tensor_parallel_size"
_ENGINE_GPUS = "launch.rollout_num_gpus_per_engine"


def engine_tp(ctx: Context) -> tuple[int | None, str]:
    """Tensor parallel size of the rollout engine, and the plan field that gives it.

    The RL frameworks derive it from the GPUs of one engine; elsewhere it is vLLM's argument.
    """
    if ctx.target.framework in RL_FRAMEWORKS:
        gpus = ctx.plan.launch.rollout_num_gpus_per_engine
        if gpus is None:
            return None, _ENGINE_GPUS
        return gpus // (ctx.plan.rollout.pipeline_parallel_size or 1) or 1, _ENGINE_GPUS
    return ctx.plan.rollout.tensor_parallel_size, _TP


def served_block(ctx: Context) -> tuple[int, int] | None:
    """``(rows, columns)`` of the served FP8 blocks; ``None`` without block FP8 or without vLLM."""
    if ctx.target.framework in SGLANG_FRAMEWORKS:
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is not None and config.weight_block_size and len(config.weight_block_size) == 2:
        return config.weight_block_size[0], config.weight_block_size[1]
    if ctx.plan.rollout.quantization == "fp8_per_block":
        return 128, 128
    return None


def by_headers(ctx: Context, experts: bool) -> bool:
    """True if the checkpoint's headers are known: PP830 then speaks of what is really there."""
    layers = ctx.checkpoint_layers
    if layers is None or not ctx.checkpoint_cuts:
        return False
    from precision_plan.rules.sharding_arithmetic import settled  # most plans come without headers

    return settled(layers, ctx.checkpoint_cuts, experts)


def _legal(size: int, unit: int) -> str:
    """The tensor parallel sizes that keep ``size`` in whole units, as text."""
    fits = [tp for tp in (1, 2, 3, 4, 6, 8, 12, 16) if size % (tp * unit) == 0]
    return ", ".join(map(str, fits)) if fits else "none"


def smaller_split(field: str, size: int, unit: int) -> Fix:
    """The largest tensor parallel size of :func:`_legal` as a way out, if there is one."""
    fits = [tp for tp in (1, 2, 4, 8, 16) if size % (tp * unit) == 0]
    if not fits:
        return Fix(f"quantize with units that divide {size}")
    if field != _TP:  # the GPUs of an engine are pipeline stages times tensor parallelism
        return Fix(f"a tensor parallel size of {fits[-1]} in the engine")
    return set_to((field, fits[-1]))


@rule(
    "PP801",
    "experts-cut-through-fp8-blocks",
    "error",
    stage="build",
    source=(
        f"{_FP8_UTILS}:1347-1373",
        _MOE_FP8,
        "vllm-project/vllm#17569",
        "vllm-project/vllm#54178",
    ),
)
def experts_cut_blocks(ctx: Context) -> Found:
    """Tensor parallelism cuts the experts' intermediate size through an FP8 scale block.

    Why:
        Each rank holds moe_ffn_hidden_size / TP rows of gate and up and as many columns of
        down; a scale belongs to a whole block. vLLM up to 0.28 refuses any remainder. 0.33
        refines the scales to a common divisor of 32 and more and refuses the rest. Expert
        parallelism keeps experts whole.

    Bad:
        software: {framework: vllm, vllm: 0.28.0}
        model: {num_experts: 128, hidden_size: 4096, moe_ffn_hidden_size: 1536}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 8}

    Good:
        software: {framework: vllm, vllm: 0.28.0}
        model: {num_experts: 128, hidden_size: 4096, moe_ffn_hidden_size: 1536}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 8, enable_expert_parallel: true}
    """
    size = ctx.plan.model.moe_ffn_hidden_size
    if size is None or ctx.plan.rollout.enable_expert_parallel:
        return None
    block = served_block(ctx)
    if block is None or by_headers(ctx, experts=True):
        return None
    tp, field = engine_tp(ctx)
    if tp is None or (size % tp == 0 and (size // tp) % block[0] == 0 == (size // tp) % block[1]):
        return None
    rows = size / tp
    if tp > 1 and ctx.at_least("vllm", "0.33") is not False and size % tp == 0:
        hidden = ctx.plan.model.hidden_size or block[1]
        if gcd(*block, size // tp, hidden) >= 32:
            return None
    return ctx.found(
        f"{size} / {tp} = {rows:g} expert rows a rank are not a multiple of the block {block[0]}",
        field,
        "model.moe_ffn_hidden_size",
        "checkpoint.quantization_config.weight_block_size",
        Because(f"whole blocks need a tensor parallel size of {_legal(size, block[0])}"),
        fix=(set_to(("rollout.enable_expert_parallel", True)),),
    )


@rule(
    "PP802",
    "layers-cut-through-fp8-blocks",
    "error",
    stage="build",
    source=(f"{_FP8_UTILS}:1318-1344", "vllm-project/vllm#52997"),
)
def layers_cut_blocks(ctx: Context) -> Iterator[Finding]:
    """Tensor parallelism cuts the input of a row-parallel layer through an FP8 scale block.

    Why:
        down_proj and o_proj split their input: ffn_hidden_size / TP and heads x head_dim / TP
        must be multiples of the block's columns. Merged column layers (qkv, gate_up) skip the
        check, and with a remainder their scale rows no longer fit either.

    Bad:
        software: {framework: vllm}
        model: {hidden_size: 2560, ffn_hidden_size: 9728}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 8}

    Good:
        software: {framework: vllm}
        model: {hidden_size: 2560, ffn_hidden_size: 9728}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        rollout: {tensor_parallel_size: 4}
    """
    block = served_block(ctx)
    if block is None or by_headers(ctx, experts=False):
        return
    tp, field = engine_tp(ctx)
    if tp is None or tp == 1:
        return
    for name, size in _row_inputs(ctx):
        if size % (tp * block[1]):
            yield ctx.found(
                f"{size} / {tp} = {size / tp:g} input columns a rank are not a multiple of the "
                f"block {block[1]}",
                field,
                name,
                "checkpoint.quantization_config.weight_block_size",
                Because(f"whole blocks need a tensor parallel size of {_legal(size, block[1])}"),
                fix=(smaller_split(field, size, block[1]),),
            )


def _row_inputs(ctx: Context) -> Iterator[tuple[str, int]]:
    """``(field, size)`` of what dense row-parallel layers split: MLP and attention output."""
    model = ctx.plan.model
    if model.ffn_hidden_size is not None and has_dense_layers(model):
        yield "model.ffn_hidden_size", model.ffn_hidden_size
    heads, width = model.num_attention_heads, model.v_head_dim or model.kv_channels
    if heads is not None and width is not None:
        yield "model.num_attention_heads", heads * width


@rule(
    "PP803",
    "int4-groups-cut-by-tensor-parallelism",
    "error",
    stage="build",
    source=(
        _PARTITION,
        "vllm@0.33.0:vllm/model_executor/layers/quantization/compressed_tensors/schemes/"
        "compressed_tensors_wNa16.py:170-174",
        "vllm-project/vllm#1258",
        "vllm-project/vllm#17604",
    ),
)
def groups_cut(ctx: Context) -> Iterator[Finding]:
    """Tensor parallelism cuts the input of a packed INT4 layer through a group.

    Why:
        A group of weights along the input shares one scale. Row-parallel layers split their
        input, so input / TP must be a multiple of group_size; experts are kept whole by expert
        parallelism. vLLM refuses such a layer when it is built, some kernels later.

    Bad:
        software: {framework: vllm}
        model: {num_experts: 128, moe_ffn_hidden_size: 768}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128}
        rollout: {tensor_parallel_size: 4}

    Good:
        software: {framework: vllm}
        model: {num_experts: 128, moe_ffn_hidden_size: 768}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128}
        rollout: {tensor_parallel_size: 2}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or not config.group_size or config.quant_method not in _GROUPED:
        return
    if config.format not in {None, "pack-quantized"}:
        return
    if by_headers(ctx, experts=bool(ctx.plan.model.num_experts)):
        return
    group, (tp, field) = config.group_size, engine_tp(ctx)
    for name, size, split in _packed_inputs(ctx, tp or 1):
        if size % (split * group):
            yield ctx.found(
                f"{size} / {split} = {size / split:g} inputs a rank are not a multiple of the "
                f"group {group}",
                field if split > 1 else "checkpoint.quantization_config.group_size",
                name,
                "checkpoint.quantization_config.group_size",
                Because(f"whole groups need a tensor parallel size of {_legal(size, group)}"),
                fix=(smaller_split(field, size, group),),
            )


_GROUPED = ("compressed-tensors", "gptq", "auto_gptq", "awq", "auto_awq")


def _packed_inputs(ctx: Context, tp: int) -> Iterator[tuple[str, int, int]]:
    """``(field, size, cuts)`` of the inputs of packed layers: the experts, or every linear layer.

    Expert parallelism keeps experts whole, and column-parallel layers do not split their input.
    """
    model = ctx.plan.model
    if model.num_experts is None:
        for name, size in _row_inputs(ctx):
            yield name, size, tp
        return
    if model.moe_ffn_hidden_size is not None:
        cuts = 1 if ctx.plan.rollout.enable_expert_parallel else tp
        yield "model.moe_ffn_hidden_size", model.moe_ffn_hidden_size, cuts
    if model.hidden_size is not None:
        yield "model.hidden_size", model.hidden_size, 1


@rule(
    "PP804",
    "inputs-cut-through-micro-blocks",
    "error",
    stage="build",
    source=(f"{_MODELOPT}:1320-1329", f"{_MODELOPT}:2026-2029", f"{_MODELOPT}:2335-2339"),
)
def micro_blocks(ctx: Context) -> Iterator[Finding]:
    """Tensor parallelism cuts the input of an MXFP8 or NVFP4 layer through a scale block.

    Why:
        MXFP8 scales 32 and NVFP4 16 consecutive inputs. vLLM raises ValueError when the input
        size of a rank is no multiple of that.

    Bad:
        software: {framework: vllm}
        model: {num_experts: 64, moe_ffn_hidden_size: 1408}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {tensor_parallel_size: 8}

    Good:
        software: {framework: vllm}
        model: {num_experts: 64, moe_ffn_hidden_size: 1408}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {tensor_parallel_size: 4}
    """
    served = rollout_format(ctx.plan)
    if served not in {"mxfp8", "nvfp4"} or ctx.target.framework in SGLANG_FRAMEWORKS:
        return
    if by_headers(ctx, experts=bool(ctx.plan.model.num_experts)):
        return
    unit = 32 if served == "mxfp8" else 16
    tp, field = engine_tp(ctx)
    for name, size, split in _packed_inputs(ctx, tp or 1):
        if size % (split * unit):
            yield ctx.found(
                f"{size} / {split} = {size / split:g} inputs a rank are not a multiple of {unit}",
                field if split > 1 else name,
                name,
                Because(f"{served} scales {unit} inputs together"),
                Because(f"whole blocks need a tensor parallel size of {_legal(size, unit)}"),
                fix=(smaller_split(field, size, unit),),
            )


RULES: tuple[Rule, ...] = (experts_cut_blocks, layers_cut_blocks, groups_cut, micro_blocks)

"""Rows of the trainer: weights, optimizer state, GEMM inputs, single operations, checkpoints.

Sizes follow Megatron's own accounting (weights, one gradient buffer, main parameters and two
moments; ``NVIDIA/Megatron-LM@core_v0.16.1:docs/user-guide/features/dist_optimizer.md:7``).
"""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.formats import formats
from precision_plan.facts.versions import version
from precision_plan.lower.context import Context
from precision_plan.lower.environment import SHARDED
from precision_plan.lower.roles_common import absent, decided_by, row, unknown
from precision_plan.lower.transformer_engine import recipe_of
from precision_plan.plan import Role

_NAMES = (
    "train weights",
    "main params",
    "main grads",
    "grad reduce",
    "Adam first moment",
    "Adam second moment",
    "GEMM inputs forward",
    "GEMM inputs backward",
    "softmax",
    "residual",
    "router",
    "embedding and LM head",
    "first/last layers",
    "param all-gather",
    "saved checkpoint",
)


def training_roles(context: Context) -> Iterator[Role]:
    """The trainer's rows; all of them ``none`` where nothing is trained."""
    if not context.trains:
        yield from (absent(name, "nothing is trained") for name in _NAMES)
    elif context.infers:
        yield from (absent(name, "inference only") for name in _NAMES)
    else:
        yield from _optimizer_roles(context)
        yield from _compute_roles(context)
        yield from _storage_roles(context)


def base(context: Context) -> str:
    """Format of the parameters: ``bf16``, ``fp16`` or ``fp32``."""
    return context.argument("params_dtype") or "fp32"


def base_origin(context: Context) -> str:
    """Who decides the base format."""
    name = base(context)
    return decided_by(context, name) if name != "fp32" else "neither bf16 nor fp16 is set"


# Weights and optimizer ------------------------------------------------------------------------
def _optimizer_roles(context: Context) -> Iterator[Role]:
    yield _weights(context)
    yield _main_params(context)
    yield _main_grads(context)
    yield _grad_reduce(context)
    yield _moment(context, "Adam first moment", "exp_avg_dtype")
    yield _moment(context, "Adam second moment", "exp_avg_sq_dtype")


def _quantized_weights(context: Context) -> tuple[str, str] | None:
    """Format and deciding field of weights that are stored quantized."""
    recipe = recipe_of(context)
    if recipe is None or recipe.format is None:
        return None
    for dest in ("fp8_param_gather", "fp4_param", "fp4_param_gather"):
        if context.argument(dest):
            return recipe.format, decided_by(context, dest)
    return None


def _weights(context: Context) -> Role:
    stored = _quantized_weights(context)
    if stored is None:
        return row("train weights", base(context), base_origin(context))
    format, origin = stored
    if format == "mxfp8":
        size = 2 * formats()[format].bytes_per_element
        return Role("train weights", format, size, f"{origin} (rowwise and columnwise copies)")
    return row("train weights", format, origin)


def _main_params(context: Context) -> Role:
    name = "main params"
    if base(context) == "fp32" and not _quantized_weights(context):
        return Role(name, "fp32", 0.0, "the weights themselves")
    if _is_sharded(context) and context.argument("megatron_fsdp_main_params_dtype"):
        dtype = context.argument("megatron_fsdp_main_params_dtype")
        origin = decided_by(context, "megatron_fsdp_main_params_dtype")
        return row(name, base(context) if dtype == "auto" else dtype, origin)
    if context.argument("optimizer_cpu_offload"):
        return _on_host(context, name)
    if not context.argument("use_precision_aware_optimizer"):
        return row(name, "fp32", "mixed-precision optimizer")
    return _precision_aware_main_params(context)


def _on_host(context: Context, name: str) -> Role:
    """CPU Adam updates in FP32, whatever the precision-aware dtypes say."""
    fraction = context.argument("optimizer_offload_fraction")
    note = "(host)" if fraction in (None, 1.0) else f"({fraction:.0%} on the host)"
    return row(name, "fp32", decided_by(context, "optimizer_cpu_offload"), note=note)


def _precision_aware_main_params(context: Context) -> Role:
    """FP32 main parameters next to BF16 weights need only the 16 bits that BF16 lacks."""
    name, dtype = "main params", context.argument("main_params_dtype")
    origin = decided_by(context, "main_params_dtype")
    te = context.target.package("transformer_engine")
    keeps_remainder = te is None or version(te) >= version("2.1")
    by_megatron = context.argument("fp8_recipe") not in (None, "delayed")
    if dtype == "fp32" and base(context) == "bf16" and keeps_remainder and not by_megatron:
        return Role(name, "fp32 (bf16 + 16-bit remainder)", 2.0, origin)
    return row(name, dtype, origin)


def _is_sharded(context: Context) -> bool:
    return any(context.argument(dest) for dest in SHARDED)


def _gradients(context: Context) -> tuple[str, str]:
    """Format of the gradient buffer and who decides it."""
    dest = "accumulate_allreduce_grads_in_fp32"
    if context.argument(dest):
        return "fp32", decided_by(context, dest)
    if context.argument("grad_reduce_in_bf16"):
        return base(context), decided_by(context, "grad_reduce_in_bf16")
    if context.argument("main_grads_dtype") != "fp32":
        return base(context), decided_by(context, "main_grads_dtype")
    return base(context), base_origin(context)


def _main_grads(context: Context) -> Role:
    dtype = context.argument("megatron_fsdp_main_grads_dtype")
    if _is_sharded(context) and dtype not in (None, "auto"):
        return row("main grads", dtype, decided_by(context, "megatron_fsdp_main_grads_dtype"))
    format, origin = _gradients(context)
    return row("main grads", format, origin)


def _grad_reduce(context: Context) -> Role:
    dtype = context.argument("megatron_fsdp_grad_comm_dtype")
    if _is_sharded(context) and dtype not in (None, "auto"):
        return row("grad reduce", dtype, decided_by(context, "megatron_fsdp_grad_comm_dtype"))
    format, origin = _gradients(context)
    dest = "ddp_reduce_scatter_with_fp32_accumulation"
    if context.argument(dest) and format != "fp32":
        return row("grad reduce", format, decided_by(context, dest), note="(summed in fp32)")
    return row("grad reduce", format, origin)


def _moment(context: Context, name: str, dest: str) -> Role:
    optimizer = context.argument("optimizer")
    if optimizer == "sgd":
        if dest == "exp_avg_sq_dtype":
            return absent(name, "optimizer.optimizer = sgd")
        return row(name, "fp32", "momentum of SGD")
    if optimizer != "adam":
        return unknown(name, f"{optimizer} keeps its own state")
    if context.argument("optimizer_cpu_offload"):
        return _on_host(context, name)
    if not context.argument("use_precision_aware_optimizer"):
        return row(name, "fp32", "Adam without the precision-aware optimizer")
    dtype = context.argument(dest)
    return row(name, "fp8_e4m3" if dtype == "fp8" else dtype, decided_by(context, dest))


# Computation ----------------------------------------------------------------------------------
def _compute_roles(context: Context) -> Iterator[Role]:
    forward = _gemm(context, "GEMM inputs forward", "e4m3")
    yield forward
    yield _gemm(context, "GEMM inputs backward", _backward_element(context))
    yield _softmax(context)
    yield _single(context, "residual", "fp32_residual_connection")
    yield _router(context)
    yield _embedding(context)
    yield _edge_layers(context, forward)


def _backward_element(context: Context) -> str:
    return "e5m2" if context.argument("fp8") == "hybrid" else "e4m3"


def _gemm(context: Context, name: str, element: str) -> Role:
    assert context.layers is not None
    if context.layers.by_module:
        return _modules(context, name, edges=False)
    recipe = recipe_of(context)
    if recipe is None or context.layers.default.format == base(context):
        note = _fake_quantization(context) if name == "GEMM inputs forward" else ""
        return row(name, base(context), base_origin(context), note=note)
    if recipe.format is None:
        return unknown(name, "the quantizer factory decides")
    if recipe.selector == "fp4_recipe":
        return row(name, recipe.format, "training.fp4_recipe", activation=True)
    only_one = context.framework == "megadlm"
    origin = "MegaDLM has one FP8 recipe" if only_one else decided_by(context, "fp8_recipe")
    return row(name, recipe.format, origin, activation=True, note=element)


def _fake_quantization(context: Context) -> str:
    if context.get("qat.int4_fake_qat"):
        return "(experts as int4)"
    return "(experts as nvfp4)" if context.get("qat.nvfp4_fake_qat") else ""


def _softmax(context: Context) -> Role:
    name, dest = "softmax", "attention_softmax_in_fp32"
    if context.argument(dest):
        return row(name, "fp32", decided_by(context, dest))
    backend = context.argument("attention_backend")
    if base(context) == "fp32":
        return row(name, "fp32", base_origin(context))
    if context.argument("transformer_impl") == "local":
        backend = "local"
    if backend in ("flash", "fused"):
        return row(name, "fp32", f"inside the {backend} attention kernel")
    if backend in ("unfused", "local"):
        return row(name, base(context), decided_by(context, dest))
    return unknown(name, "attention_backend auto decides at run time")


def _single(context: Context, name: str, dest: str) -> Role:
    if context.argument(dest):
        return row(name, "fp32", decided_by(context, dest))
    return row(name, base(context), base_origin(context))


def _router(context: Context) -> Role:
    if context.get("model.num_experts") is None:
        return absent("router", "no experts")
    dtype = context.argument("moe_router_dtype")
    if dtype is None:
        return row("router", base(context), base_origin(context))
    return row("router", dtype, decided_by(context, "moe_router_dtype"))


def _embedding(context: Context) -> Role:
    name = "embedding and LM head"
    if context.argument("fp8_output_proj"):
        origin = decided_by(context, "fp8_output_proj")
        return row(name, base(context), origin, note="(LM head GEMM in mxfp8)")
    if recipe_of(context) is not None:
        return row(name, base(context), "only TE linear layers are quantized")
    return row(name, base(context), base_origin(context))


def _edge_layers(context: Context, forward: Role) -> Role:
    name, dest = "first/last layers", "first_last_layers_bf16"
    assert context.layers is not None
    exempts = context.argument(dest) and recipe_of(context) is not None
    if not exempts or context.layers.default.format == base(context):
        return Role(name, forward.dtype, forward.bytes_per_element, "like every other layer")
    if context.layers.by_module:
        return _modules(context, name, edges=True)
    note = "(first {}, last {})".format(*_edge_counts(context))
    return row(name, base(context), decided_by(context, dest), note=note)


def _edge_counts(context: Context) -> tuple[int, int]:
    start = context.argument("num_layers_at_start_in_bf16") or 0
    return start, context.argument("num_layers_at_end_in_bf16") or 0


def _modules(context: Context, name: str, *, edges: bool) -> Role:
    """A row of layers whose modules a file tells apart: the first and last ones, or the others."""
    layers = context.layers
    assert layers is not None
    start, end = _edge_counts(context) if context.argument("first_last_layers_bf16") else (0, 0)
    count = len(layers.decoder)
    at_edge = {layer for layer in range(count) if layer < start or layer >= count - end}
    chosen = at_edge if edges else set(range(count)) - at_edge
    found = layers.formats(sorted(chosen))
    if not found or None in found:
        return unknown(name, f"{layers.by_module}: module by module")
    if len(found) == 1:
        return row(name, str(found[0]), str(layers.by_module), activation=True)
    return Role(name, ", ".join(map(str, found)), None, f"{layers.by_module}: module by module")


# Gather and checkpoint ------------------------------------------------------------------------
def _storage_roles(context: Context) -> Iterator[Role]:
    yield _all_gather(context)
    yield _saved(context)


def _all_gather(context: Context) -> Role:
    name = "param all-gather"
    if not (context.argument("use_distributed_optimizer") or _is_sharded(context)):
        return absent(name, "no distributed optimizer")
    stored = _quantized_weights(context)
    if stored is None:
        return row(name, base(context), base_origin(context))
    format, origin = stored
    if context.argument("reuse_grad_buf_for_mxfp8_param_ag"):
        origin = decided_by(context, "reuse_grad_buf_for_mxfp8_param_ag")
        return row(name, base(context), origin)
    return row(name, format, origin)


def _saved(context: Context) -> Role:
    name = "saved checkpoint"
    if context.get("checkpoint.save") is None:
        return absent(name, "checkpoint.save is not set")
    format = context.argument("ckpt_format") or "torch_dist"
    if _quantized_weights(context):
        return row(name, base(context), "dequantized on saving", note=f"({format})")
    return row(name, base(context), base_origin(context), note=f"({format})")

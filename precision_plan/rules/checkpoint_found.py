"""How rules about a checkpoint's layers report: how many, the first names, and in which file."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.checkpoint_contracts import Contract
from precision_plan.plan import Because, Fix, Origin
from precision_plan.rules.base import Context, Finding
from precision_plan.rules.checkpoint_files import of_file, some
from precision_plan.rules.checkpoint_table import CheckpointLayers, Tensors

_SAME = (
    frozenset({"weight_scale", "weight_scale_inv", "scale", "scales", "weight_scales"}),
    frozenset({"weight_scale_2", "weight_global_scale", "weight_scale2"}),
    frozenset({"input_scale", "input_global_scale", "activation_scale", "act_scale"}),
)

NO_SCALE = frozenset({"weight_zero_point", "qzeros", "weight_shape", "g_idx"})
"""Tensors beside a weight that are no scales: other rules miss them."""


def layers_of(ctx: Context, complete: bool = False) -> CheckpointLayers | None:
    """The layers of the checkpoint that the engine loads.

    ``complete`` is for rules that speak of tensors which are *not* there: ``None`` unless every
    shard was read.
    """
    layers = ctx.checkpoint_layers
    if layers is None or (complete and not layers.files.complete):
        return None
    return layers


def conforming(layers: CheckpointLayers) -> Iterator[tuple[Contract, Tensors, list[str]]]:
    """Quantized layers whose weight is one of the method: only of those can scales be judged."""
    contract = layers.contract
    if contract is None:
        return
    for tensors, names in layers.quantized:
        head = tensors.get(contract.weight.name)
        if head is not None and head.dtype in contract.weight.dtypes:
            yield contract, tensors, names


def instead(name: str, contract: Contract, tensors: Tensors) -> str | None:
    """The tensor that stands where ``name`` should, under another tool's name."""
    for same in _SAME:
        if name in same:
            return next((each for each in sorted(same & tensors.keys() - contract.names)), None)
    return None


def kv_scales(layers: CheckpointLayers) -> list[str]:
    """Scales of keys and values, under all names that the engine maps."""
    return [name for name in layers.files.tensors or () if name.endswith(_KV)]


_KV = (
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".k_proj.output_scale",
    ".v_proj.output_scale",
    "_cache.scale",
)


def judging(ctx: Context) -> CheckpointLayers | None:
    """The layers, if what the ignore list does not name is certainly quantized."""
    layers = layers_of(ctx)
    if layers is None or layers.contract is None:
        return None
    return layers if layers.ignored.certain else None


def about_layers(ctx: Context, what: str, names: list[str], fix: Fix, *because: Because) -> Finding:
    """One finding about many layers: their number, the first names, and the first one's shard."""
    layers = ctx.checkpoint_layers
    assert layers is not None
    tensor = names[0] not in layers.modules
    count = f"{len(names):,} {'tensor' if tensor else 'layer'}{'s' if len(names) > 1 else ''}"
    premises = because or (Because(config_says(layers)),)
    return Finding(
        f"{what} ({count}): {some(names)}",
        because=premises,
        fix=(fix,),
        origin=_origin(layers, names[0]),
    )


def about_config(
    layers: CheckpointLayers, message: str, key: str, *fix: Fix, because: str | None = None
) -> Finding:
    """A finding at a key of the quantization config."""
    return Finding(
        message,
        because=(Because(because),) if because else (),
        fix=fix,
        origin=layers.files.quantization_position(key),
    )


def config_says(layers: CheckpointLayers) -> str:
    """The configuration in a few words: ``quantization_config: fp8, blocks 128x128``."""
    contract = layers.contract
    if contract is None:
        method = layers.quantization.get("quant_method")
        return f"quantization_config: {method or 'none'}"
    more = ""
    if "{rows}" in "".join(each.shape for each in contract.others):
        more = f", blocks {contract.block[0]}x{contract.block[1]}"
    elif contract.group is not None:
        more = f", groups of {contract.group}"
    return f"quantization_config: {contract.method}, {contract.format}{more}"


def _origin(layers: CheckpointLayers, name: str) -> Origin:
    tensors = layers.modules.get(name) or layers.modules.get(name.rpartition(".")[0])
    if not tensors:
        return layers.files.quantization_position()
    return of_file(layers.files, next(iter(tensors.values())).shard)

"""PP716, PP738 to PP742: a checkpoint's index against the shards that are there."""

from __future__ import annotations

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_files import loaded, of_file, some

_LOADER = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py"
_WEIGHTS = "vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py"
_BRIDGE = "ISEEKYAN/mbridge@0f05229d:mbridge/core/safetensor_io.py"
_INDEX = "model.safetensors.index.json"


@rule(
    "PP716",
    "index-names-absent-shard",
    "error",
    stage="worker",
    source=(f"{_WEIGHTS}:606-615", "vllm@0.25.0:vllm/model_executor/model_loader/weight_utils.py"),
)
def absent_shard(ctx: Context) -> Found:
    """The index names shards that are not in the folder.

    Why:
        vLLM refuses to load since 0.26.0. Before, it loads the shards that are there, and of a
        quantized model it does not notice that weights are missing: the layers hold whatever the
        memory held.

    Bad:
        files:
          tensors: {a.weight: "BF16 [8, 8] in model-00001-of-00002.safetensors"}
          weight_map:
            a.weight: model-00001-of-00002.safetensors
            b.weight: model-00002-of-00002.safetensors

    Good:
        files:
          tensors:
            a.weight: "BF16 [8, 8] in model-00001-of-00002.safetensors"
            b.weight: "BF16 [8, 8] in model-00002-of-00002.safetensors"
          weight_map:
            a.weight: model-00001-of-00002.safetensors
            b.weight: model-00002-of-00002.safetensors
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.weight_map is None:
        return None
    absent = sorted(set(checkpoint.weight_map.values()).difference(checkpoint.shards))
    if not absent:
        return None
    return Finding(
        f"{len(absent)} of {len(set(checkpoint.weight_map.values()))} shards are not there: "
        f"{some(absent)}",
        fix=(Fix("copy the missing shards"), Fix("write the index of the shards that exist")),
        origin=of_file(checkpoint, _INDEX),
    )


@rule(
    "PP738",
    "index-names-absent-tensor",
    "warning",
    stage="worker",
    source=(f"{_WEIGHTS}:1241-1249", f"{_LOADER}:510-523"),
)
def absent_tensor(ctx: Context) -> Found:
    """The index names tensors that no shard holds.

    Why:
        The engine takes file names from the index and tensors from the files, so that the entry
        has no effect: either the index is of another save, or a tensor was lost. A quantized
        model is loaded without it in silence; a bridge (mbridge) asks for it and stops.

    Bad:
        files:
          tensors: {a.weight: "BF16 [8, 8]"}
          weight_map: {a.weight: model.safetensors, b.weight: model.safetensors}

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}, weight_map: {a.weight: model.safetensors}}
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.weight_map is None or checkpoint.tensors is None:
        return None
    read = set(checkpoint.shards) - checkpoint.unread
    absent = [
        name
        for name, shard in checkpoint.weight_map.items()
        if name not in checkpoint.tensors and shard in read
    ]
    if not absent:
        return None
    return Finding(
        f"{len(absent):,} tensors of the index are in no shard: {some(absent)}",
        fix=(Fix("write the index again"), Fix("copy the shards of the save that it belongs to")),
        origin=of_file(checkpoint, _INDEX),
    )


@rule(
    "PP739",
    "index-places-tensor-elsewhere",
    "warning",
    stage="worker",
    source=(_BRIDGE,),
)
def elsewhere(ctx: Context) -> Found:
    """The index places tensors in another shard than the one that holds them.

    Why:
        vLLM reads every shard whole and does not notice; a bridge that opens the shard which the
        index names (mbridge) does not find the tensor there.

    Bad:
        files:
          tensors:
            a.weight: "BF16 [8, 8] in one.safetensors"
            b.weight: "BF16 [8, 8] in two.safetensors"
          weight_map: {a.weight: two.safetensors, b.weight: one.safetensors}

    Good:
        files:
          tensors:
            a.weight: "BF16 [8, 8] in one.safetensors"
            b.weight: "BF16 [8, 8] in two.safetensors"
          weight_map: {a.weight: one.safetensors, b.weight: two.safetensors}
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.weight_map is None or checkpoint.tensors is None:
        return None
    place, tensors = checkpoint.weight_map, checkpoint.tensors
    wrong = [
        name for name, shard in place.items() if name in tensors and tensors[name].shard != shard
    ]
    if not wrong or any(each.fault == "tensor-in-two-shards" for each in checkpoint.unreadable):
        return None
    first = wrong[0]
    return Finding(
        f"{len(wrong):,} tensors lie elsewhere; {first} is in {tensors[first].shard}, not in "
        f"{place[first]}",
        fix=(Fix("write the index again"),),
        origin=of_file(checkpoint, _INDEX),
    )


@rule(
    "PP740",
    "shard-outside-index",
    "warning",
    stage="worker",
    source=(f"{_WEIGHTS}:590-616",),
)
def outside(ctx: Context) -> Found:
    """Shards that the index does not name hold tensors that no other shard holds.

    Why:
        The engine leaves such a file aside in silence: weights that a converter or a merge put
        into a file of their own (MTP layers, a new head) are never loaded. A second copy of
        weights that the index places elsewhere is harmless and not reported.

    Bad:
        files:
          tensors: {a.weight: "BF16 [8, 8]"}
          weight_map: {a.weight: model.safetensors}
          left_out: {mtp.weight: "BF16 [8, 8] in mtp.safetensors"}

    Good:
        files:
          tensors: {a.weight: "BF16 [8, 8]"}
          weight_map: {a.weight: model.safetensors}
          left_out: {a.weight: "BF16 [8, 8] in copy.safetensors"}
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or not checkpoint.left_out:
        return None
    tensors = checkpoint.tensors or {}
    lost = [
        name
        for name, header in checkpoint.left_out.items()
        if name not in tensors and not header.shard.startswith("adapter_")
    ]
    if not lost:
        return None
    shards = sorted({checkpoint.left_out[name].shard for name in lost})
    return Finding(
        f"{len(lost):,} tensors of {some(shards)} are not loaded: {some(lost)}",
        because=(Because(f"{_INDEX} does not name the file"),),
        fix=(Fix("add the tensors to the index"), Fix("remove the file if it is of another save")),
        origin=of_file(checkpoint, shards[0]),
    )


@rule(
    "PP741",
    "tensor-outside-index",
    "warning",
    stage="worker",
    source=(
        f"{_WEIGHTS}:1241-1249",
        _BRIDGE,
    ),
)
def stale_index(ctx: Context) -> Found:
    """Shards hold tensors that the index does not name.

    Why:
        The index is of another save. vLLM loads the tensors all the same; a bridge that takes
        the names from the index (mbridge) leaves them out.

    Bad:
        files:
          tensors: {a.weight: "F8_E4M3 [8, 8]", a.weight_scale: "F32 [1]"}
          weight_map: {a.weight: model.safetensors}

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}, weight_map: {a.weight: model.safetensors}}
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.weight_map is None or checkpoint.tensors is None:
        return None
    unknown = [name for name in checkpoint.tensors if name not in checkpoint.weight_map]
    if not unknown:
        return None
    return Finding(
        f"{len(unknown):,} tensors are not in the index: {some(unknown)}",
        fix=(Fix("write the index again"),),
        origin=of_file(checkpoint, _INDEX),
    )


@rule(
    "PP742",
    "index-size-differs",
    "advice",
    stage="worker",
    source=("huggingface/huggingface_hub@1.0.0:src/huggingface_hub/serialization/_base.py",),
)
def index_size(ctx: Context) -> Found:
    """The index gives another total size than the tensors have.

    Why:
        total_size is the sum of the tensors' bytes when the index was written. Another sum says
        that shards were replaced since; loaders ignore the number.

    Bad:
        files:
          tensors: {a.weight: "BF16 [8, 8]"}
          weight_map: {a.weight: model.safetensors}
          index_size: 256
          data_bytes: 128

    Good:
        files:
          tensors: {a.weight: "BF16 [8, 8]"}
          weight_map: {a.weight: model.safetensors}
          index_size: 128
          data_bytes: 128
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.index_size is None or not checkpoint.complete:
        return None
    if checkpoint.data_bytes in (None, checkpoint.index_size):
        return None
    return Finding(
        f"total_size is {checkpoint.index_size:,}, the tensors {checkpoint.data_bytes:,} bytes",
        fix=(Fix("write the index again"),),
        origin=of_file(checkpoint, _INDEX),
    )


RULES: tuple[Rule, ...] = (
    absent_shard,
    absent_tensor,
    elsewhere,
    outside,
    stale_index,
    index_size,
)

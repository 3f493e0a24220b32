"""PP720, PP726 to PP737: shards that the safetensors library refuses, or that repeat each other."""

from __future__ import annotations

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule
from precision_plan.rules.checkpoint_files import AGAIN, faults, loaded

_SAFETENSORS = "huggingface/safetensors@000a16f45c:safetensors/src/tensor.rs"
_WEIGHTS = "vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py"

REWRITE = Fix("write the shard again with the safetensors library")


@rule(
    "PP720",
    "shard-cut-in-header",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def cut_in_header(ctx: Context) -> Found:
    """A shard ends before its header does.

    Why:
        It is empty, or a copy stopped in its first bytes. Every reader refuses it.

    Bad:
        files:
          unreadable:
            - fault: shard-cut-in-header
              message: "the file is empty; a header's length alone takes 8"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "shard-cut-in-header", AGAIN) if loaded(ctx) else None


@rule(
    "PP726",
    "shard-header-too-large",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def header_too_large(ctx: Context) -> Found:
    """A shard's header is said to be larger than any reader takes.

    Why:
        The first 8 bytes are the header's length; the safetensors library refuses more than 100 MB.
        Most often the file is something else under that name.

    Bad:
        files:
          unreadable:
            - fault: shard-header-too-large
              message: "the header is said to have 4,294,967,296 bytes"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "shard-header-too-large", AGAIN) if loaded(ctx) else None


@rule(
    "PP727",
    "shard-header-broken",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def header_broken(ctx: Context) -> Found:
    """A shard's header cannot be read.

    Why:
        It must be a JSON object that gives every tensor a dtype, a shape and two offsets.

    Bad:
        files:
          unreadable:
            - fault: shard-header-broken
              message: "not JSON: expecting value at character 12"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "shard-header-broken", AGAIN) if loaded(ctx) else None


@rule(
    "PP728",
    "shard-truncated",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def truncated(ctx: Context) -> Found:
    """A shard is shorter than its tensors.

    Why:
        A save, copy or download stopped half way, or still goes on. The library refuses the file
        whole, even if the tensor that is wanted lies before the cut.

    Bad:
        files:
          unreadable:
            - fault: shard-truncated
              message: "the tensors take 1,024 bytes, the file holds 512 of them"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return (
        faults(ctx, "shard-truncated", AGAIN, Fix("wait until the file is written"))
        if loaded(ctx)
        else None
    )


@rule(
    "PP729",
    "shard-has-trailing-data",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def trailing(ctx: Context) -> Found:
    """Bytes follow the last tensor of a shard.

    Why:
        The library refuses a file that is longer than its header says; two files were joined, or a
        shorter one was written over a longer one.

    Bad:
        files:
          unreadable:
            - fault: shard-has-trailing-data
              message: "512 bytes follow the last tensor"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "shard-has-trailing-data", AGAIN) if loaded(ctx) else None


@rule(
    "PP730",
    "tensor-offsets-overlap-or-gap",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def offsets(ctx: Context) -> Found:
    """Tensors of a shard overlap, or leave a gap.

    Why:
        The library wants them side by side from the first byte to the last and refuses the file
        otherwise.

    Bad:
        files:
          unreadable:
            - fault: tensor-offsets-overlap-or-gap
              message: "b.weight lies at 96 to 224, the tensors before it end at 128"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "tensor-offsets-overlap-or-gap", REWRITE) if loaded(ctx) else None


@rule(
    "PP735",
    "tensor-dtype-unknown",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def dtype_unknown(ctx: Context) -> Found:
    """A shard holds tensors of a dtype that safetensors does not know.

    Why:
        The library refuses the whole file. Packed formats are stored as U8 or I32, FP8 as F8_E4M3.

    Bad:
        files:
          unreadable:
            - fault: tensor-dtype-unknown
              message: "a.weight is F8_E4M3FN"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "tensor-dtype-unknown", REWRITE) if loaded(ctx) else None


@rule(
    "PP736",
    "tensor-size-disagrees",
    "error",
    stage="worker",
    source=(_SAFETENSORS,),
)
def size(ctx: Context) -> Found:
    """A tensor takes another number of bytes than its dtype and shape.

    Why:
        The library refuses the whole file; a writer changed the shape or dtype and not the data.

    Bad:
        files:
          unreadable:
            - fault: tensor-size-disagrees
              message: "a.weight is BF16 [8, 8] and takes 64 bytes"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "tensor-size-disagrees", REWRITE) if loaded(ctx) else None


@rule(
    "PP737",
    "tensor-in-two-shards",
    "warning",
    stage="worker",
    source=(f"{_WEIGHTS}:1115-1250",),
)
def twice(ctx: Context) -> Found:
    """Two shards hold a tensor of the same name.

    Why:
        The engine loads both, and the shard that is read last wins: files of two saves lie in one
        folder. Without an index every *.safetensors file of the folder is loaded.

    Bad:
        files:
          unreadable:
            - fault: tensor-in-two-shards
              message: "a.weight also in model.safetensors"
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return (
        faults(
            ctx,
            "tensor-in-two-shards",
            Fix("keep the files of one save"),
            Fix("write an index that names them"),
        )
        if loaded(ctx)
        else None
    )


RULES: tuple[Rule, ...] = (
    cut_in_header,
    header_too_large,
    header_broken,
    truncated,
    trailing,
    offsets,
    dtype_unknown,
    size,
    twice,
)

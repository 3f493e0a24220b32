"""PP71x, PP743: what lies in a checkpoint folder, and whether its configuration can be read."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import CheckpointFiles, Fix, Origin
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.vllm_engine import serves

_CONFIG = "vllm@0.33.0:vllm/transformers_utils/config.py"
_LOADER = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py"
_WEIGHTS = "vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py"
_HUB = "huggingface/huggingface_hub@1.0.0:src/huggingface_hub"

AGAIN = Fix("copy or download the file again")


def faults(ctx: Context, slug: str, *fix: Fix) -> Iterator[Finding]:
    """One finding for every fault of this name that the reader of the folder noted."""
    for each in ctx.checkpoint.unreadable if ctx.checkpoint else ():
        if each.fault == slug:
            name = each.origin.file.rpartition("/")[2]
            yield Finding(f"{name}: {each.message}", fix=fix, origin=each.origin)


def loaded(ctx: Context) -> CheckpointFiles | None:
    """The folder, if the engine loads its weights; with ``load_format: dummy`` it loads none."""
    return None if ctx.plan.rollout.load_format == "dummy" else ctx.checkpoint


def some(names: list[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def of_file(checkpoint: CheckpointFiles, name: str) -> Origin:
    """A file of the folder."""
    return Origin(f"{checkpoint.folder}/{name}" if checkpoint.folder else name)


@rule(
    "PP710",
    "checkpoint-without-config",
    "error",
    stage="engine_config",
    source=(f"{_CONFIG}:900-945",),
)
def config_missing(ctx: Context) -> Found:
    """The checkpoint folder has no config.json.

    Why:
        Tokenizer, bridge and engine find the model by config.json; without it nothing can be
        loaded and nothing be checked. A folder of a Megatron checkpoint has none: name the
        converted folder. Mistral's params.json alone is not read here.

    Bad:
        files:
          unreadable:
            - {fault: checkpoint-without-config, message: the folder is empty, file: config.json}

    Good:
        files: {config: {model_type: qwen3}}
    """
    return faults(ctx, "checkpoint-without-config", Fix("name a folder in Hugging Face's layout"))


@rule(
    "PP711",
    "checkpoint-config-unreadable",
    "error",
    stage="engine_config",
    source=(f"{_CONFIG}:920-945",),
)
def config_unreadable(ctx: Context) -> Found:
    """config.json of the checkpoint cannot be read.

    Why:
        It must be one JSON object in UTF-8; the position is the parser's. A byte order mark, a
        trailing comma and a comment are refused.

    Bad:
        files:
          unreadable:
            - fault: checkpoint-config-unreadable
              message: expecting property name enclosed in double quotes
              file: config.json

    Good:
        files: {config: {model_type: qwen3}}
    """
    return faults(ctx, "checkpoint-config-unreadable", Fix("repair the file, or copy it again"))


@rule(
    "PP712",
    "checkpoint-json-unreadable",
    "error",
    stage="worker",
    source=(f"{_WEIGHTS}:601-604", f"{_CONFIG}:955-962"),
)
def json_unreadable(ctx: Context) -> Found:
    """The index or hf_quant_config.json cannot be read.

    Why:
        The engine reads model.safetensors.index.json wherever it exists and takes its
        weight_map without asking; hf_quant_config.json is read if config.json has no
        quantization_config. A broken one ends the start.

    Bad:
        files:
          unreadable:
            - fault: checkpoint-json-unreadable
              message: it has no weight_map of file names
              file: model.safetensors.index.json

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}, weight_map: {a.weight: model.safetensors}}
    """
    return faults(ctx, "checkpoint-json-unreadable", Fix("write or copy the file again"))


@rule(
    "PP713",
    "config-key-repeated",
    "warning",
    stage="engine_config",
    source=("python/cpython@v3.12.0:Lib/json/decoder.py:129-203", f"{_CONFIG}:920-945"),
)
def key_repeated(ctx: Context) -> Found:
    """A key stands twice in one object of the checkpoint's JSON files.

    Why:
        The parser keeps the last one in silence; whoever edits the first one changes nothing.

    Bad:
        files:
          unreadable:
            - fault: config-key-repeated
              message: quantization_config stands twice; the parser keeps the last
              file: config.json

    Good:
        files: {config: {model_type: qwen3}}
    """
    return faults(ctx, "config-key-repeated", Fix("remove one of the two"))


@rule(
    "PP714",
    "checkpoint-without-weights",
    "error",
    stage="worker",
    source=(f"{_LOADER}:258-261",),
)
def no_weights(ctx: Context) -> Found:
    """The checkpoint folder has a config.json and no weights.

    Why:
        The engine ends with "Cannot find any model weights". Shards in a folder below are not
        found. With load_format dummy no weights are needed.

    Bad:
        files: {config: {model_type: qwen3}, tensors: {}}

    Good:
        rollout: {load_format: dummy}
        files: {config: {model_type: qwen3}, tensors: {}}
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or checkpoint.tensors is None or checkpoint.weight_map is not None:
        return None
    if checkpoint.shards or checkpoint.tensors or not checkpoint.config:
        return None
    return Finding(
        "the folder has no *.safetensors, *.bin or *.pt file",
        fix=(Fix("name the folder that holds the weights"), AGAIN),
        origin=Origin(checkpoint.folder),
    )


@rule(
    "PP715",
    "weights-not-in-safetensors",
    "advice",
    stage="worker",
    source=(f"{_LOADER}:168-206", f"{_LOADER}:222-234"),
)
def other_containers(ctx: Context) -> Found:
    """The engine reads weights that were not looked at.

    Why:
        Only safetensors files can be judged by their header. Without one the engine reads *.bin
        or *.pt; and as soon as the folder holds consolidated*.safetensors (Mistral's layout),
        vLLM's load_format auto reads those and leaves model-*.safetensors aside.

    Bad:
        files: {config: {model_type: llama}, others: [pytorch_model.bin]}

    Good:
        rollout: {load_format: safetensors}
        files:
          config: {model_type: llama}
          tensors: {a.weight: "BF16 [8, 8]"}
          others: [consolidated.safetensors]
    """
    checkpoint = loaded(ctx)
    if checkpoint is None or not checkpoint.others:
        return None
    chosen = ctx.plan.rollout.load_format
    mistral = [name for name in checkpoint.others if name.startswith("consolidated")]
    if not serves(ctx):
        mistral = []
    if checkpoint.tensors is not None and (not mistral or chosen not in (None, "auto", "mistral")):
        return None
    names = mistral or list(checkpoint.others)
    return Finding(
        f"weights in {some(names)} are read by the engine and not checked here",
        fix=(Fix("keep one copy of the weights, as *.safetensors in Hugging Face's names"),),
        origin=of_file(checkpoint, names[0]),
    )


@rule(
    "PP717",
    "numbered-shard-missing",
    "error",
    stage="worker",
    source=(f"{_LOADER}:222-234", f"{_WEIGHTS}:590-600"),
)
def numbered(ctx: Context) -> Found:
    """Shards are numbered, and some numbers are missing.

    Why:
        Without an index the engine loads the shards that it finds, in silence; the number of
        files in their own names is the only sign that some are missing.

    Bad:
        files:
          tensors: {a.weight: "BF16 [8, 8] in model-00001-of-00002.safetensors"}
          unreadable:
            - fault: numbered-shard-missing
              message: "not in the folder: model-00002-of-00002.safetensors"
              file: model-00002-of-00002.safetensors

    Good:
        files:
          tensors:
            a.weight: "BF16 [8, 8] in model-00001-of-00002.safetensors"
            b.weight: "BF16 [8, 8] in model-00002-of-00002.safetensors"
    """
    return (
        faults(ctx, "numbered-shard-missing", Fix("copy the missing shards"))
        if loaded(ctx)
        else None
    )


@rule(
    "PP718",
    "git-lfs-pointer",
    "error",
    stage="worker",
    source=("git-lfs/git-lfs@v3.5.0:docs/spec.md",),
)
def lfs_pointer(ctx: Context) -> Found:
    """The text of a Git LFS pointer stands in place of a file.

    Why:
        A clone without Git LFS leaves a few lines of text under the name of the file; every
        reader takes them for a broken file.

    Bad:
        files:
          unreadable:
            - fault: git-lfs-pointer
              message: 134 bytes of text stand for the weights
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "git-lfs-pointer", Fix("run git lfs pull in the folder"))


@rule(
    "PP719",
    "download-not-finished",
    "warning",
    stage="worker",
    source=(f"{_HUB}/file_download.py:1183", f"{_HUB}/_local_folder.py:87-89"),
)
def unfinished(ctx: Context) -> Found:
    """Files are missing, and pieces of an unfinished download lie in the folder.

    Why:
        The Hugging Face client writes to a file that ends in .incomplete and renames it when it
        is whole. A piece beside a complete folder is only rubbish and is not reported.

    Bad:
        files:
          unreadable:
            - fault: download-not-finished
              message: an unfinished file is left
              file: .cache/huggingface/download/x.incomplete

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "download-not-finished", Fix("run the download again: it goes on"))


@rule(
    "PP743",
    "checkpoint-file-unreadable",
    "error",
    stage="worker",
    source=(f"{_WEIGHTS}:1241-1249",),
)
def file_unreadable(ctx: Context) -> Found:
    """A shard cannot be opened.

    Why:
        It is a folder, a link that leads nowhere (a snapshot whose blob was removed), or not
        permitted to this user. The engine's workers read it as the user of the job.

    Bad:
        files:
          unreadable:
            - fault: checkpoint-file-unreadable
              message: its symbolic link leads nowhere
              file: model.safetensors

    Good:
        files: {tensors: {a.weight: "BF16 [8, 8]"}}
    """
    return faults(ctx, "checkpoint-file-unreadable", AGAIN) if loaded(ctx) else None


RULES: tuple[Rule, ...] = (
    config_missing,
    config_unreadable,
    json_unreadable,
    key_repeated,
    no_weights,
    other_containers,
    numbered,
    lfs_pointer,
    unfinished,
    file_unreadable,
)

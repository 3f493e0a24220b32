"""PP744, PP745: what a recipe says of its checkpoint against what lies in the folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.hf_config import config_keys
from precision_plan.plan import Because, CheckpointFiles, Fix
from precision_plan.plan.serving import IGNORE_KEYS, QuantizationConfig
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to, shown
from precision_plan.rules.formats import config_format

_ARGUMENTS = "THUDM/slime@624b824a:slime/utils/arguments.py"
_WEIGHTS = "vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py"

_SAME_MODEL = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "num_experts",
    "moe_ffn_hidden_size",
    "norm_epsilon",
    "rotary_base",
    "untie_embeddings_and_output_weights",
)
"""Fields of ``model`` that shape the weights or that the frameworks compare at their start."""

_WRITTEN = ("kv_channels", "moe_ffn_hidden_size")
"""Those that count only where the file has a key of their own: the model's code may know better
than what follows from other keys."""
_TIED = "untie_embeddings_and_output_weights"


@lru_cache(maxsize=1)
def _keys() -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({row.field: row.keys for row in config_keys()})


def _config_file(checkpoint: CheckpointFiles) -> str:
    key = checkpoint.quantization_key or ""
    return key if key.endswith(".json") else "config.json"


@rule(
    "PP744",
    "recipe-contradicts-checkpoint-format",
    "error",
    stage="run",
    source=(f"{_WEIGHTS}:238-280", f"{_ARGUMENTS}:306"),
)
def quantization(ctx: Context) -> Iterator[Finding]:
    """The recipe describes another quantization than the checkpoint's config.json.

    Why:
        Engine and weight synchronization read the folder's quantization_config and nothing
        else: what the recipe says has no effect, and everything that was checked against it was
        checked against something that does not run. Lists of ignored layers may be spelt in
        several ways and are not compared here.

    Bad:
        checkpoint:
          hf_checkpoint: models/m
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        files: {config: {quantization_config: {quant_method: fp8, weight_block_size: [64, 64]}}}

    Good:
        checkpoint:
          hf_checkpoint: models/m
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        files: {config: {quantization_config: {quant_method: fp8, weight_block_size: [128, 128]}}}
    """
    checkpoint, plan = ctx.checkpoint, ctx.plan.checkpoint
    if checkpoint is None or not checkpoint.config or "config.json" in checkpoint.unread:
        return
    declared = plan.quantization_config
    if declared is not None:
        yield from _fields(ctx, checkpoint, declared)
    elif plan.hf_weight_format is not None:
        yield from _format(ctx, checkpoint, plan.hf_weight_format)


def _fields(
    ctx: Context, checkpoint: CheckpointFiles, declared: QuantizationConfig
) -> Iterator[Finding]:
    section = "checkpoint.quantization_config"
    if checkpoint.quantization_config is None:
        yield ctx.found(
            f"{checkpoint.folder} is not quantized: its config.json has no quantization_config",
            section,
            "checkpoint.hf_checkpoint",
            Because("config.json as it lies in the folder", origin=checkpoint.config_position()),
            fix=(Fix("name the quantized folder"), set_to((section, None))),
        )
        return
    found = checkpoint.read_quantization
    for name, value in declared.set_items():
        if name in IGNORE_KEYS or name not in found or _same(name, value, found[name]):
            continue
        where = checkpoint.quantization_position(name)
        yield ctx.found(
            f"{section}.{name} = {shown(value)}; {_config_file(checkpoint)} in the folder says"
            f" {shown(found[name])}",
            f"{section}.{name}",
            "checkpoint.hf_checkpoint",
            Because(f"{name} = {shown(found[name])}", origin=where),
            fix=(set_to((f"{section}.{name}", found[name])), Fix("name the folder that is meant")),
        )


def _same(name: str, declared: Any, found: Any) -> bool:
    if name == "quant_method":  # ModelOpt's variants share one spelling in the file
        short, long = sorted((str(declared), str(found)), key=len)
        return long == short or (short == "modelopt" and long.startswith("modelopt"))
    return bool(declared == found)


def _format(ctx: Context, checkpoint: CheckpointFiles, declared: str) -> Iterator[Finding]:
    config = checkpoint.quantization_config
    values = checkpoint.read_quantization
    found = None if config is None else config_format(QuantizationConfig.model_construct(**values))
    quantized = declared not in ("bf16", "fp16", "fp32")
    unsaid = not quantized if config is None else found is None
    if unsaid or found == declared:
        return
    text = f"its format is {found}" if found else "it has no quantization_config"
    yield ctx.found(
        f"checkpoint.hf_weight_format = {declared}; {checkpoint.folder} holds something else",
        "checkpoint.hf_weight_format",
        "checkpoint.hf_checkpoint",
        Because(text, origin=checkpoint.quantization_position()),
        fix=(
            Fix("name the folder that is meant, or set checkpoint.hf_weight_format to its format"),
        ),
    )


def _is_said(checkpoint: CheckpointFiles, name: str, keys: tuple[str, ...]) -> bool:
    inner = checkpoint.text_config
    if name == _TIED:  # of a wrapper, the frameworks ask the language model alone
        return "tie_word_embeddings" in inner
    return name not in _WRITTEN or any(key in inner for key in keys)


@rule(
    "PP745",
    "recipe-contradicts-checkpoint-model",
    "error",
    stage="run",
    source=(
        "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py",
        "vllm-project/vime@035f9834:vime/utils/arguments.py",
    ),
    frameworks=RL_FRAMEWORKS,
)
def model(ctx: Context) -> Iterator[Finding]:
    """The recipe's model is another one than the checkpoint's config.json describes.

    Why:
        Weights of another shape cannot be loaded or synchronized; the frameworks compare hidden
        size, heads, layers, feed-forward size, tied embeddings, norm epsilon and rotary base at
        their start and refuse what differs.

    Bad:
        software: {framework: vime}
        model: {num_layers: 48}
        checkpoint: {hf_checkpoint: models/m}
        files: {config: {num_hidden_layers: 36}}

    Good:
        software: {framework: vime}
        model: {num_layers: 36}
        checkpoint: {hf_checkpoint: models/m}
        files: {config: {num_hidden_layers: 36}}
    """
    checkpoint = ctx.checkpoint
    if checkpoint is None:
        return
    found: Mapping[str, Any] = checkpoint.read_model
    for name in _SAME_MODEL:
        declared = ctx.plan.get(f"model.{name}")
        if declared is None or name not in found or declared == found[name]:
            continue
        keys = _keys().get(f"model.{name}", ())
        if not _is_said(checkpoint, name, keys):
            continue
        yield ctx.found(
            f"model.{name} = {shown(declared)}; config.json in {checkpoint.folder} says"
            f" {shown(found[name])}",
            f"model.{name}",
            "checkpoint.hf_checkpoint",
            Because(
                f"{name} = {shown(found[name])}",
                origin=checkpoint.config_position(*keys or ("tie_word_embeddings",)),
            ),
            fix=(set_to((f"model.{name}", found[name])), Fix("name the model's own folder")),
        )


RULES: tuple[Rule, ...] = (quantization, model)

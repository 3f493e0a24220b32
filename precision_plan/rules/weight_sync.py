"""PP531 to PP535, PP540 and PP541: the formats that the weight update can send."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.weight_sync import sync_quantizer
from precision_plan.plan import Because, Fix
from precision_plan.plan.serving import QuantizationConfig
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import config_format, rollout_format

_SLIME = "THUDM/slime@624b824a:slime/backends/megatron_utils/megatron_to_hf/processors"
_MILES = "radixark/miles@31f1ca96:miles/backends/megatron_utils/megatron_to_hf/processors"
_CONFIG = "checkpoint.quantization_config"


def _config(ctx: Context, method: str) -> QuantizationConfig | None:
    config = ctx.plan.checkpoint.quantization_config
    return config if config is not None and config.quant_method == method else None


@rule(
    "PP531",
    "weight-sync-cannot-quantize",
    "error",
    stage="run",
    source=(f"{_SLIME}/__init__.py:6-22", f"{_MILES}/__init__.py:17-30"),
    frameworks=RL_FRAMEWORKS,
)
def cannot_quantize(ctx: Context) -> Found:
    """The framework's weight update has no quantizer for the rollout checkpoint's method.

    Why:
        The update picks its quantizer by quant_method. vime and slime let every method that
        they do not know fall through, so plain BF16 tensors are pushed into an engine that
        holds quantized weights, without a message; miles returns nothing and fails.

    Bad:
        software: {framework: slime}
        checkpoint: {quantization_config: {quant_method: mxfp8}}

    Good:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method is None:
        return None
    framework = ctx.target.framework
    assert framework is not None
    branch = sync_quantizer(framework, config.quant_method, config.quant_algo)
    if branch is None or branch.emits not in {"bf16", "nothing"}:
        return None
    what = "sends BF16 tensors instead" if branch.emits == "bf16" else "fails"
    algo = f" ({config.quant_algo})" if config.quant_algo else ""
    return ctx.found(
        f"{framework}'s weight update has no quantizer for {config.quant_method}{algo} and {what}",
        f"{_CONFIG}.quant_method",
        "software.framework",
        fix=(Fix("serve a checkpoint in a format that the framework's update can produce"),),
    )


@rule(
    "PP532",
    "fp8-sync-needs-dynamic-e4m3",
    "error",
    stage="run",
    source=(f"{_SLIME}/quantizer_fp8.py:10-15", f"{_MILES}/quantizer_fp8.py:19-23"),
    frameworks=RL_FRAMEWORKS,
)
def fp8_dynamic_e4m3(ctx: Context) -> Iterator[Finding]:
    """The FP8 weight update takes checkpoints with dynamic activations in E4M3 only.

    Why:
        The quantizer asserts ``activation_scheme == "dynamic"`` and ``fmt == "e4m3"`` (e4m3 if
        the key is absent). A static checkpoint has activation scales that would be stale after
        the first step. The assertion fires at the first weight update, after the whole start.

    Bad:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: static}}

    Good:
        software: {framework: vime}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
    """
    config = _config(ctx, "fp8")
    if config is None:
        return
    for name, wanted in (("activation_scheme", "dynamic"), ("fmt", "e4m3")):
        value = getattr(config, name)
        if value not in {None, wanted}:
            yield ctx.found(
                f"the FP8 weight update needs {name} = {wanted}, the checkpoint has {value}",
                f"{_CONFIG}.{name}",
                "software.framework",
                fix=(set_to((f"{_CONFIG}.{name}", wanted), also=" (convert the checkpoint so)"),),
            )


@rule(
    "PP533",
    "compressed-tensors-sync-packs-int4",
    "error",
    stage="run",
    source=(f"{_SLIME}/__init__.py:18", f"{_SLIME}/quantizer_compressed_tensors.py:51-52"),
    frameworks=RL_FRAMEWORKS,
)
def compressed_is_int4(ctx: Context) -> Found:
    """The weight update packs every compressed-tensors checkpoint as INT4.

    Why:
        quant_method compressed-tensors leads to the 4-bit packer whatever the groups say. The
        FP8 converter's channel strategy writes such a checkpoint (float-quantized, 8 bits): it
        loads in the engine, but the first update packs it to 4 bits or fails.

    Bad:
        software: {framework: slime}
        checkpoint:
          quantization_config: {quant_method: compressed-tensors, format: float-quantized}

    Good:
        software: {framework: slime}
        checkpoint:
          quantization_config:
            {quant_method: compressed-tensors, format: pack-quantized, bits: 4, group_size: 128}
    """
    config = _config(ctx, "compressed-tensors")
    if config is None:
        return None
    if config.bits in {None, 4} and config_format(config) in {None, "int4"}:
        return None
    field = "format" if config_format(config) != "int4" and config.format else "bits"
    return ctx.found(
        f"a compressed-tensors checkpoint with {field} = {getattr(config, field)} would be "
        "updated as INT4",
        f"{_CONFIG}.{field}",
        "software.framework",
        fix=(Fix("for FP8 convert with the block strategy (quant_method fp8)"),),
    )


_SYNCED = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    *("qkv_proj", "gate_up_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
)
"""Hugging Face names of the linear layers that the FP8 update quantizes in every decoder layer."""


@rule(
    "PP534",
    "fp8-sync-ignores-skip-list",
    "error",
    stage="run",
    source=(f"{_SLIME}/quantizer_fp8.py:17-95", "THUDM/slime#1679"),
    frameworks=RL_FRAMEWORKS,
)
def skip_list_ignored(ctx: Context) -> Found:
    """The checkpoint keeps linear layers in BF16 that the FP8 weight update quantizes anyway.

    Why:
        The update quantizes attention and MLP projections of all decoder layers by a fixed
        list of names and does not read modules_to_not_convert. A layer that the engine holds
        in BF16 receives FP8 bytes: the load fails or casts the bytes without their scale.

    Bad:
        software: {framework: vime}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert: [lm_head, model.layers.0.mlp.down_proj]

    Good:
        software: {framework: vime}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert: [lm_head, model.layers.0.mlp.gate]
    """
    config = _config(ctx, "fp8")
    if config is None or not config.modules_to_not_convert:
        return None
    skipped = [
        name
        for name in config.modules_to_not_convert
        if name.endswith(_SYNCED) and ".layers." in name and "visual" not in name
    ]
    if not skipped:
        return None
    more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return ctx.found(
        f"in BF16 in the checkpoint, but updated in FP8: {skipped[0]}{more}",
        f"{_CONFIG}.modules_to_not_convert",
        "software.framework",
        fix=(Fix("quantize these layers in the checkpoint, too"),),
    )


@rule(
    "PP535",
    "extra-high-precision-not-honoured",
    "error",
    stage="run",
    source=(
        "radixark/miles@31f1ca96:miles/utils/arguments.py:376-390",
        f"{_MILES}/quantizer_mxfp8.py:28-37",
        f"{_MILES}/quantizer_fp8.py:15-60",
    ),
    frameworks=RL_FRAMEWORKS,
)
def extra_not_honoured(ctx: Context) -> Found:
    """Layers named as high precision would be quantized by the weight update anyway.

    Why:
        --extra-high-precision-layers-megatron is read by the MXFP8 and NVFP4 quantizers of
        the weight update; the FP8 and the INT4 one do not look at it. slime has no such flag
        and drops unknown flags without a message.

    Bad:
        software: {framework: miles}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        weight_sync: {extra_high_precision_layers_megatron: [.linear_kv_up_proj]}

    Good:
        software: {framework: miles}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
        weight_sync: {extra_high_precision_layers_megatron: [.linear_kv_up_proj]}
    """
    sync = ctx.plan.weight_sync
    field = "weight_sync.extra_high_precision_layers_megatron"
    if ctx.target.framework == "slime":
        if not sync.extra_high_precision_layers_megatron:
            if not sync.extra_high_precision_layers_hf:
                return None
            field = "weight_sync.extra_high_precision_layers_hf"
        return ctx.found(
            f"slime has no flag for {field} and drops it without a message",
            field,
            "software.framework",
            fix=(set_to((field, None)),),
        )
    served = rollout_format(ctx.plan)
    if not sync.extra_high_precision_layers_megatron or served in {None, "mxfp8", "nvfp4", "bf16"}:
        return None
    return ctx.found(
        f"the {served} weight update does not look at {field}",
        field,
        f"{_CONFIG}.quant_method",
        fix=(set_to((field, None)),),
    )


@rule(
    "PP540",
    "nvfp4-sync-without-fp4-params",
    "error",
    stage="run",
    source=(f"{_MILES}/quantizer_nvfp4.py:44-46",),
    frameworks=("miles",),
)
def nvfp4_fp4_params(ctx: Context) -> Found:
    """The NVFP4 weight update needs parameters in BF16, not fp4_param_gather.

    Why:
        The exporter quantizes from high-precision parameters and raises NotImplementedError
        when the parameters themselves are stored in FP4.

    Bad:
        software: {framework: miles, megatron_core: 0.17.1}
        optimizer: {use_distributed_optimizer: true}
        training: {bf16: true, fp4_format: e2m1, fp4_param_gather: true}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}

    Good:
        software: {framework: miles, megatron_core: 0.17.1}
        training: {bf16: true, fp4_format: e2m1}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
    """
    if not ctx.fp4_param_gather or rollout_format(ctx.plan) != "nvfp4":
        return None
    return ctx.found(
        "the NVFP4 weight update does not work with fp4_param_gather",
        "training.fp4_param_gather",
        "checkpoint.hf_weight_format"
        if ctx.plan.checkpoint.hf_weight_format
        else f"{_CONFIG}.quant_algo",
        fix=(set_to(("training.fp4_param_gather", None)),),
    )


@rule(
    "PP541",
    "bf16-layers-differ-between-sides",
    "error",
    stage="run",
    source=("radixark/miles#614", f"{_MILES}/quantizer_mxfp8.py:28-37", "NVIDIA-NeMo/RL#4126"),
    frameworks=RL_FRAMEWORKS,
)
def layers_differ(ctx: Context) -> Found:
    """Layers that train in BF16 are quantized in the rollout checkpoint.

    Why:
        first_last_layers_bf16 exempts layers in the trainer and in the weight update; the
        offline converter has flags of its own (--num-layers-at-start-in-bf16 and -end-). If
        the checkpoint's ignore list lacks these layers, the engine holds quantized parameters
        that receive BF16 tensors.

    Bad:
        software: {framework: miles}
        model: {num_layers: 48}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, first_last_layers_bf16: true}
        checkpoint: {quantization_config: {quant_method: mxfp8, ignored_layers: [lm_head]}}

    Good:
        software: {framework: miles}
        model: {num_layers: 48}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, first_last_layers_bf16: true}
        checkpoint:
          quantization_config:
            {quant_method: mxfp8, ignored_layers: [lm_head, model.layers.0., model.layers.47.]}
    """
    args, layers = ctx.args, ctx.plan.model.num_layers
    if not args.first_last_layers_bf16 or layers is None:
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config_format(config) not in {"mxfp8", "nvfp4"}:
        return None
    ignored = config.ignore or config.ignored_layers or config.modules_to_not_convert
    if ignored is None:
        return None
    end = layers - (args.num_layers_at_end_in_bf16 or 0)
    kept = [*range(args.num_layers_at_start_in_bf16 or 0), *range(end, layers)]
    missing = [
        layer for layer in kept if not any(f"layers.{layer}." in f"{name}." for name in ignored)
    ]
    if not missing:
        return None
    return ctx.found(
        f"layer {missing[0]} trains in BF16 and is not in the checkpoint's ignore list",
        _CONFIG,
        "training.first_last_layers_bf16",
        Because(f"layers kept in BF16: {', '.join(map(str, kept))}"),
        fix=(Fix("convert with the same --num-layers-at-start-in-bf16 and -end- counts"),),
    )


RULES: tuple[Rule, ...] = (
    cannot_quantize,
    fp8_dynamic_e4m3,
    compressed_is_int4,
    skip_list_ignored,
    extra_not_honoured,
    nvfp4_fp4_params,
    layers_differ,
)

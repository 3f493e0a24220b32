"""PP701 to PP705: the rollout checkpoint's ``quantization_config`` as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.vllm import quant_names
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan import Fix
from precision_plan.plan.diagnostic import Stage
from precision_plan.plan.serving import QuantizationConfig
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import config_format
from precision_plan.rules.vllm_engine import CONFIG, checkpoint_method, refused_config, serves

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_GUIDE = "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md"

_KEY_OF = {"sym": "symmetric", "quant_method": "quant_method", "bits": "bits"}
_EXPRESSIBLE = frozenset(QuantizationConfig.model_fields)


@rule(
    "PP701",
    "quantization-config-key-missing",
    "error",
    stage="engine_config",
    source=(
        f"{_QUANT}/fp8.py:122-208",
        f"{_QUANT}/modelopt.py:323-478",
        f"{_QUANT}/base_config.py:184-200",
        "THUDM/slime#1679",
    ),
)
def key_missing(ctx: Context) -> Iterator[Finding]:
    """The checkpoint's quantization_config lacks a key that its method requires.

    Why:
        vLLM reads activation_scheme for fp8, quant_algo for modelopt, format for
        compressed-tensors, bits, group_size and sym for gptq, and raises ValueError without
        them; the frameworks' weight update reads the same keys. Without quant_method the whole
        config is passed over and quantized weights are loaded as if they were not.

    Bad:
        checkpoint: {quantization_config: {quant_method: fp8, weight_block_size: [128, 128]}}

    Good:
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None:
        return
    if config.quant_method is None:
        if config.weight_block_size or config.quant_algo or config.activation_scheme:
            yield ctx.found(
                "quantization_config has no quant_method and is passed over",
                CONFIG,
                fix=(
                    set_to((f"{CONFIG}.quant_method", "modelopt" if config.quant_algo else "fp8")),
                ),
                stage="run" if ctx.plan.rollout.quantization is None else "engine_config",
            )
        return
    name = checkpoint_method(ctx)
    if name is None and config.quant_method.startswith("modelopt") and config.quant_algo is None:
        name = "modelopt"
    method = quant_methods().get(name or "")
    if method is None:
        return
    for key in method.required_keys:
        field = _KEY_OF.get(key, key)
        if field in _EXPRESSIBLE and getattr(config, field) is None:
            value = {"activation_scheme": "dynamic", "format": "pack-quantized"}.get(field)
            fix = set_to((f"{CONFIG}.{field}", value)) if value else Fix(f"add {CONFIG}.{field}")
            yield ctx.found(
                f"quantization_config of method {config.quant_method} lacks {key}",
                CONFIG,
                f"{CONFIG}.quant_method",
                fix=(fix,),
                stage=_stage_of(ctx, field),
            )


def _stage_of(ctx: Context, field: str) -> Stage | None:
    """compressed-tensors asks for its format only when the layers are built.

    Source: vllm@0.33.0:vllm/model_executor/layers/quantization/compressed_tensors/
    compressed_tensors.py:255-264.
    """
    late = field == "format" or (ctx.engine is not None and not refused_config(ctx))
    return "build" if late else None


@rule(
    "PP702",
    "quantization-method-unknown",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/model.py:1463-1470", f"{_QUANT}/__init__.py:14-53"),
)
def method_unknown(ctx: Context) -> Found:
    """vLLM knows no method (or ModelOpt algorithm) of this name.

    Why:
        quant_method selects the loader. vLLM raises ValueError for a name that it does not
        have, and for a ModelOpt quant_algo that it does not read.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp9}}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method is None or not serves(ctx):
        return None
    if ctx.engine is not None:  # it has looked at the whole config, PP401 reports
        return None
    if config.quant_method == "ascend" or checkpoint_method(ctx) is not None:
        return None
    if config.quant_method.startswith("modelopt"):
        if config.quant_algo is None:
            return None
        field, what = f"{CONFIG}.quant_algo", f"ModelOpt algorithm {config.quant_algo}"
    else:
        row, vllm = quant_names().get(config.quant_method), ctx.target.package("vllm")
        if row is not None and vllm is not None and vllm in row.versions:
            return None
        field, what = f"{CONFIG}.quant_method", f"quantization method {config.quant_method}"
    return ctx.found(
        f"vLLM has no {what}",
        field,
        fix=(Fix("use fp8, modelopt, compressed-tensors, mxfp8, mxfp4, gptq or awq"),),
    )


@rule(
    "PP703",
    "block-size-and-activations",
    "error",
    stage="engine_config",
    source=(f"{_QUANT}/fp8.py:122-133",),
)
def block_and_scheme(ctx: Context) -> Found:
    """weight_block_size needs two sizes and dynamic activations.

    Why:
        Block FP8 scales activations in rows of 128 as they come; a static scheme has one scale
        from calibration. vLLM refuses the pair, and a block that is not [rows, columns].

    Bad:
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: static, weight_block_size: [128, 128]}

    Good:
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.weight_block_size is None or config.quant_method != "fp8":
        return None
    field = f"{CONFIG}.weight_block_size"
    if len(config.weight_block_size) != 2 or min(config.weight_block_size) < 1:
        return ctx.found(
            f"weight_block_size = {list(config.weight_block_size)} is not [rows, columns]",
            field,
            fix=(set_to((field, [128, 128])),),
        )
    if config.activation_scheme != "static":
        return None
    return ctx.found(
        "weight_block_size with activation_scheme = static",
        f"{CONFIG}.activation_scheme",
        field,
        fix=(set_to((f"{CONFIG}.activation_scheme", "dynamic")), set_to((field, None))),
    )


@rule(
    "PP704",
    "weight-format-contradicts-config",
    "error",
    stage="run",
    source=(
        "THUDM/slime@624b824a:tools/fp8_cast_bf16.py:1",
        _GUIDE,
        "vllm-project/vllm#19050",
    ),
)
def format_contradicts(ctx: Context) -> Iterator[Finding]:
    """The plan calls the rollout weights one format, and quantization_config describes another.

    Why:
        Frameworks and engines believe quantization_config alone. A BF16 checkpoint that was
        made from an FP8 one often keeps the old config (fp8_cast_bf16 copies config.json
        unchanged) and is then loaded as FP8; a weight update in another format than the
        checkpoint's cannot be loaded at all.

    Bad:
        checkpoint:
          hf_weight_format: bf16
          quantization_config: {quant_method: fp8, activation_scheme: dynamic}

    Good:
        checkpoint:
          hf_weight_format: fp8_per_tensor
          quantization_config: {quant_method: fp8, activation_scheme: dynamic}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None:
        return
    described = config_format(config)
    if described is None or described not in _WEIGHT_FORMATS:
        return
    for field in ("checkpoint.hf_weight_format", "weight_sync.weight_format"):
        said = ctx.plan.get(field)
        if said is not None and said != described:
            yield ctx.found(
                f"{field} = {said}, but quantization_config describes {described}",
                field,
                f"{CONFIG}.quant_method",
                fix=(set_to((field, described)),),
            )


_WEIGHT_FORMATS = ("fp8_block", "fp8_per_tensor", "mxfp8", "nvfp4", "int4", "int8")


@rule(
    "PP705",
    "quantized-rollout-without-config",
    "error",
    stage="run",
    source=(_GUIDE, "THUDM/slime@624b824a:slime/utils/arguments.py:306"),
    frameworks=RL_FRAMEWORKS,
)
def without_config(ctx: Context) -> Found:
    """Quantized weights shall be sent to a checkpoint that is not quantized.

    Why:
        The weight update reads the format from the config.json of --hf-checkpoint and from
        nowhere else. BF16 training with an FP8 rollout therefore needs a block-quantized
        Hugging Face checkpoint with its quantization_config; pointing at the BF16 one gives a
        BF16 rollout.

    Bad:
        software: {framework: vime}
        checkpoint: {hf_weight_format: bf16}
        weight_sync: {weight_format: fp8_block}

    Good:
        software: {framework: vime}
        checkpoint: {hf_weight_format: fp8_block}
        weight_sync: {weight_format: fp8_block}
    """
    plan = ctx.plan
    wanted = plan.weight_sync.weight_format
    if wanted in {None, "bf16", "fp16", "fp32"} or plan.checkpoint.quantization_config is not None:
        return None
    if plan.checkpoint.hf_weight_format == wanted:
        return None
    return ctx.found(
        f"weight_sync.weight_format = {wanted}, but the rollout checkpoint is "
        f"{plan.checkpoint.hf_weight_format or 'not said to be quantized'}",
        "weight_sync.weight_format",
        "checkpoint.hf_weight_format",
        fix=(
            set_to(("checkpoint.hf_weight_format", wanted), also=" and a converted checkpoint"),
            set_to(("weight_sync.weight_format", "bf16")),
        ),
    )


RULES: tuple[Rule, ...] = (
    key_missing,
    method_unknown,
    block_and_scheme,
    format_contradicts,
    without_config,
)

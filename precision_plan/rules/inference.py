"""PP47x: quantization and dtype of Megatron's (and MegaDLM's) own inference."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.megatron_shape import megadlm_command_line
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to

_MEGADLM = "JinjieNi/MegaDLMs@bdf75459:megatron/inference/arguments.py:18"
_MODELOPT = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/post_training/arguments.py:33-50"
_MEGATRON = ("megatron-lm", "megadlm")


@rule(
    "PP471",
    "inference-section-has-no-program",
    "error",
    stage="run",
    source=(_MODELOPT, "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py:195"),
    frameworks=("vime", "slime", "miles", "vllm"),
)
def no_program(ctx: Context) -> Found:
    """The inference section is about Megatron's own inference, which this framework does not run.

    Why:
        inference.quantization and inference.dtype become ModelOpt and Megatron flags. In an RL
        framework and in vLLM the engine serves: its format comes from the checkpoint's
        quantization_config, and its dtype is rollout.dtype. vime and slime would drop the
        Megatron flags without a message.

    Bad:
        software: {framework: vllm}
        inference: {quantization: fp8}

    Good:
        software: {framework: vllm}
        rollout: {quantization: fp8_per_tensor}
    """
    inference = ctx.plan.inference
    for name in ("quantization", "export_quant_cfg", "export_real_quant_cfg", "dtype"):
        if getattr(inference, name) is not None:
            there = "rollout.dtype" if name == "dtype" else "rollout.quantization"
            return ctx.found(
                f"inference.{name} has no program that reads it under {ctx.target.framework}",
                f"inference.{name}",
                "software.framework",
                fix=(Fix(f"use {there}", {f"inference.{name}": None}),),
            )
    return None


@rule(
    "PP472",
    "quantization-given-twice",
    "error",
    stage="run",
    source=(_MEGADLM, _MODELOPT),
)
def given_twice(ctx: Context) -> Found:
    """inference.quantization and inference.export_quant_cfg name different formats.

    Why:
        Both become --export-quant-cfg, which takes one value. There is no --quantization flag
        in Megatron-LM or MegaDLM, whatever older documents say.

    Bad:
        software: {framework: megadlm}
        inference: {quantization: int8, export_quant_cfg: fp8}

    Good:
        software: {framework: megadlm}
        inference: {quantization: int8}
    """
    inference = ctx.plan.inference
    if inference.quantization is None or inference.export_quant_cfg is None:
        return None
    if inference.quantization == inference.export_quant_cfg:
        return None
    return ctx.found(
        f"--export-quant-cfg would be {inference.quantization} and {inference.export_quant_cfg}",
        "inference.export_quant_cfg",
        "inference.quantization",
        fix=(
            set_to(("inference.export_quant_cfg", None)),
            set_to(("inference.quantization", None)),
        ),
    )


@rule(
    "PP473",
    "export-format-unknown-to-megadlm",
    "error",
    stage="parse",
    source=(_MEGADLM,),
    frameworks=("megadlm",),
)
def unknown_to_megadlm(ctx: Context) -> Iterator[Finding]:
    """MegaDLM's parser does not take this export option or value.

    Why:
        --export-quant-cfg takes int8, int8_sq, fp8, int4_awq, w4a8_awq, int4 or None. Real
        quantization and KV-cache quantization came to Megatron later; MegaDLM's fork of 0.10
        has no flag for them.

    Bad:
        software: {framework: megadlm}
        inference: {export_quant_cfg: NVFP4_DEFAULT_CFG}

    Good:
        software: {framework: megadlm}
        inference: {export_quant_cfg: int4_awq}
    """
    inference = ctx.plan.inference
    choices = megadlm_command_line()["inference.export_quant_cfg"].choices or ()
    value = inference.export_quant_cfg
    if value is not None and value not in choices:
        yield ctx.found(
            f"--export-quant-cfg {value}: MegaDLM takes {', '.join(choices)}",
            "inference.export_quant_cfg",
            "software.framework",
            fix=tuple(set_to(("inference.export_quant_cfg", one)) for one in choices[:3]),
        )
    for name in ("export_real_quant_cfg", "export_kv_cache_quant"):
        given = getattr(inference, name)
        if given not in {None, "none", False}:
            yield ctx.found(
                f"MegaDLM has no flag for inference.{name}",
                f"inference.{name}",
                "software.framework",
                fix=(set_to((f"inference.{name}", None)),),
            )


@rule(
    "PP474",
    "inference-dtype-contradicts-base",
    "error",
    stage="validate",
    source=(
        "JinjieNi/MegaDLMs@bdf75459:megatron/training/arguments.py:418-428",
        "NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py:703",
    ),
    frameworks=_MEGATRON,
)
def dtype_contradicts_base(ctx: Context) -> Found:
    """inference.dtype and the base format of the same command line differ.

    Why:
        There is no --dtype: the dtype of inference is --fp16 or --bf16, the flags that training
        has. Both on one command line are refused; fp32 means neither.

    Bad:
        software: {framework: megadlm}
        training: {bf16: true}
        inference: {dtype: fp16}

    Good:
        software: {framework: megadlm}
        inference: {dtype: fp16}
    """
    dtype, training = ctx.plan.inference.dtype, ctx.plan.training
    if dtype is None:
        return None
    for name in ("bf16", "fp16"):
        if getattr(training, name) and dtype != name:
            return ctx.found(
                f"inference.dtype = {dtype}, but training.{name} = true on the same command line",
                "inference.dtype",
                f"training.{name}",
                fix=(set_to((f"training.{name}", None)), set_to(("inference.dtype", name))),
            )
    return None


@rule(
    "PP475",
    "server-does-not-quantize",
    "error",
    stage="parse",
    source=(
        "JinjieNi/MegaDLMs@bdf75459:megatron/inference/text_generation_server.py:1",
        _MEGADLM,
    ),
    frameworks=_MEGATRON,
)
def server_does_not_quantize(ctx: Context) -> Found:
    """The text generation server is asked to quantize.

    Why:
        Quantization is an export step: a calibration program reads --export-quant-cfg and
        writes a fake-quantized checkpoint, and TensorRT-LLM brings the memory and the speed.
        The text generation server registers no such option and has no integer kernels.

    Bad:
        software: {framework: megadlm}
        launch: {entrypoint: tools/run_text_generation_server.py}
        inference: {quantization: int8}

    Good:
        software: {framework: megadlm}
        launch: {entrypoint: examples/export/ptq_and_trtllm_export/text_generation_ptq.py}
        inference: {quantization: int8}
    """
    entrypoint = ctx.plan.launch.entrypoint or ""
    if "text_generation_server" not in entrypoint:
        return None
    inference = ctx.plan.inference
    for name in ("quantization", "export_quant_cfg", "export_real_quant_cfg"):
        if getattr(inference, name) not in {None, "None"}:
            return ctx.found(
                f"{entrypoint} takes no quantization option",
                f"inference.{name}",
                "launch.entrypoint",
                fix=(
                    Fix("run the export program (text_generation_ptq.py) instead"),
                    set_to((f"inference.{name}", None)),
                ),
            )
    return None


_SPELLINGS = {
    "quantization": ("inference.quantization", "--export-quant-cfg"),
    "dtype": ("inference.dtype", "--fp16 or --bf16"),
}


@rule(
    "PP476",
    "inference-flag-does-not-exist",
    "error",
    stage="parse",
    source=(_MEGADLM, _MODELOPT),
    frameworks=_MEGATRON,
)
def flag_does_not_exist(ctx: Context) -> Iterator[Finding]:
    """--quantization and --dtype are no flags of Megatron-LM or MegaDLM.

    Why:
        Documents of MegaDLM show them for the text generation server. No parser has them:
        quantization is --export-quant-cfg of the export programs, the dtype is --fp16 or
        --bf16. The plan's own fields are lowered to those.

    Bad:
        software: {framework: megadlm}
        launch: {extra_args: {quantization: int8}}

    Good:
        software: {framework: megadlm}
        inference: {quantization: int8}
    """
    extra = ctx.plan.launch.extra_args
    if not extra:
        return
    for name, value in extra.items():
        known = _SPELLINGS.get(name.lstrip("-"))
        if known is not None:
            field, flag = known
            yield ctx.found(
                f"--{name.lstrip('-')} does not exist",
                f"launch.extra_args.{name}",
                Because(f"the flag is {flag}"),
                fix=(set_to((field, value), (f"launch.extra_args.{name}", None)),),
            )


RULES: tuple[Rule, ...] = (
    no_program,
    given_twice,
    unknown_to_megadlm,
    dtype_contradicts_base,
    server_does_not_quantize,
    flag_does_not_exist,
)

"""PP401 to PP404, PP410, PP450: vLLM's quantization method and arguments by name and version."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from precision_plan.facts.versions import VersionRange
from precision_plan.facts.vllm import DEFAULT_VERSION, QuantName, engine_args, quant_names
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import (
    CONFIG,
    FLAG,
    by_engine,
    checkpoint_method,
    serves,
)

_MODEL = "vllm@0.33.0:vllm/config/model.py"
_NAMES = "vllm@0.33.0:vllm/model_executor/layers/quantization/__init__.py:14-53"

_OVERRIDING = ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed")
"""Methods that vLLM sets from the checkpoint whatever --quantization says."""


def _replaced(ctx: Context) -> str | None:
    """The method that silently takes the place of ``rollout.quantization``, if one does."""
    name = checkpoint_method(ctx)
    if name == "gpt_oss_mxfp4" or name in _OVERRIDING:
        algo = ctx.plan.checkpoint.quantization_config
        plain = algo is not None and (algo.quant_algo or "").upper() in _PLAIN_FP8
        return None if plain else name
    return None


_PLAIN_FP8 = ("FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO")
"""ModelOpt algorithms that are not claimed by an override: --quantization is compared."""


def _known(ctx: Context) -> QuantName | None:
    return quant_names().get(ctx.plan.rollout.quantization or "")


@rule(
    "PP401",
    "vllm-quantization-unknown",
    "error",
    stage="engine_config",
    source=(f"{_MODEL}:1452-1470", _NAMES),
)
@by_engine("PP401")
def unknown_name(ctx: Context) -> Found:
    """vLLM does not know this quantization method at the declared version.

    Why:
        --quantization is free text for the parser and refused when the engine is configured.
        Methods come and go: bitsandbytes and gguf left by 0.28, the online shorthands
        (fp8_per_block and others) came by 0.22. An out-of-tree plugin may add a name; vime's
        ``ascend`` is one.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: bitsandbytes}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: fp8_per_block}
    """
    flag = ctx.plan.rollout.quantization
    if flag is None or flag in {"ascend", "marlin"} or not serves(ctx) or _replaced(ctx):
        return None
    row = _known(ctx)
    have = ctx.target.package("vllm")
    if row is not None and (have is None or have in row.versions):
        return None
    names = [name for name, one in quant_names().items() if have is None or have in one.versions]
    close = get_close_matches(flag, names, n=1, cutoff=0.6)
    if row is not None:
        return ctx.found(
            f"vLLM {have} has no quantization method {flag} ({row.versions})",
            FLAG,
            "software.vllm",
            *([Because(row.note)] if row.note else ()),
            fix=(set_to((FLAG, None)),),
        )
    guess = f"; did you mean {close[0]}?" if close else ""
    return ctx.found(
        f"vLLM has no quantization method {flag}{guess}",
        FLAG,
        fix=(*(set_to((FLAG, name)) for name in close), set_to((FLAG, None))),
    )


@rule(
    "PP402",
    "vllm-quantization-deprecated",
    "error",
    stage="engine_config",
    source=(f"{_MODEL}:1472-1485",),
)
@by_engine("PP402")
def deprecated(ctx: Context) -> Found:
    """The method is deprecated and vLLM refuses it unless told otherwise.

    Why:
        fbgemm_fp8 and fp_quant raise ValueError without --allow-deprecated-quantization, and
        will be removed.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: fbgemm_fp8}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {quantization: fbgemm_fp8, allow_deprecated_quantization: true}
    """
    if ctx.plan.rollout.allow_deprecated_quantization or not serves(ctx):
        return None
    name = checkpoint_method(ctx) or ctx.plan.rollout.quantization
    row = quant_names().get(name) if name else None
    have = ctx.target.package("vllm")
    if row is None or row.deprecated is None or (have or DEFAULT_VERSION) not in row.deprecated:
        return None
    field = FLAG if ctx.plan.rollout.quantization == name else f"{CONFIG}.quant_method"
    return ctx.found(
        f"vLLM refuses the deprecated method {name}",
        field,
        "rollout.allow_deprecated_quantization",
        fix=(set_to(("rollout.allow_deprecated_quantization", True)),),
    )


@rule(
    "PP403",
    "vllm-quantization-differs-from-checkpoint",
    "error",
    stage="engine_config",
    source=(f"{_MODEL}:1383-1462", "vllm-project/vllm#19050", "vllm-project/vllm-ascend#6635"),
)
@by_engine("PP403")
def differs(ctx: Context) -> Found:
    """--quantization names another method than the checkpoint's quantization_config.

    Why:
        vLLM compares the two and raises ValueError. The flag is needed for an unquantized
        checkpoint only; for a quantized one leave it unset. An online shorthand on a quantized
        checkpoint is refused, too.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {quantization: fp8_per_block}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {quantization: fp8}
    """
    flag = ctx.plan.rollout.quantization
    if flag is None or not serves(ctx):
        return None
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method is None:
        if ctx.plan.checkpoint.hf_weight_format in {"bf16", "fp16", "fp32"}:
            return _needs_config(ctx, flag)
        return None
    stored = checkpoint_method(ctx)
    if stored is None or _replaced(ctx) or flag == "humming":
        return None
    row = _known(ctx)
    if flag in {config.quant_method, stored} or (row is not None and row.resolves == stored):
        return None
    if flag in _CONVERTS.get(stored, ()):
        return None
    return ctx.found(
        f"rollout.quantization = {flag}, but the checkpoint's method is {config.quant_method}",
        FLAG,
        f"{CONFIG}.quant_method",
        fix=(set_to((FLAG, None)), *_stale(flag)),
    )


def _stale(flag: str) -> tuple[Fix, ...]:
    """GGUF files stand beside a config.json that describes the weights they were made from."""
    if flag != "gguf":
        return ()
    return (Fix("remove quantization_config from config.json if it describes other files"),)


_CONVERTS = {
    "auto_awq": ("awq", "awq_marlin", "auto_awq", "marlin", "moe_wna16"),
    "auto_gptq": ("gptq", "gptq_marlin", "auto_gptq", "marlin", "moe_wna16"),
    "fp8": ("deepseek_v4_fp8",),
}


_FLAG_ALONE = ("fp8", "experts_int8", "torchao", "humming", "ascend")


def _needs_config(ctx: Context, flag: str) -> Finding | None:
    row = _known(ctx)
    if row is None or row.kind == "online" or flag in _FLAG_ALONE:
        return None
    return ctx.found(
        f"rollout.quantization = {flag} needs a checkpoint in that format",
        FLAG,
        "checkpoint.hf_weight_format",
        fix=(set_to((FLAG, None)), set_to((FLAG, "fp8_per_block"), also=" to quantize at load")),
    )


@rule(
    "PP404",
    "vllm-quantization-replaced",
    "warning",
    stage="engine_config",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/quantization/modelopt.py:453-462",
        "vllm-project/vllm#42181",
    ),
)
def replaced(ctx: Context) -> Found:
    """--quantization is replaced in silence by what a ModelOpt checkpoint says.

    Why:
        ModelOpt checkpoints decide by quant_algo (modelopt_fp4, modelopt_mxfp8,
        modelopt_mixed, modelopt), and vLLM overwrites the flag without comparing. Where the
        flag is right it is idle; where it is wrong it misleads, and some versions compared it
        in some processes only.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {quantization: modelopt}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}
        rollout: {quantization: modelopt_fp4}
    """
    flag = ctx.plan.rollout.quantization
    if flag is None or flag == "humming" or not serves(ctx):
        return None
    name = _replaced(ctx)
    if name is None or name == flag or (name == "gpt_oss_mxfp4" and flag == "mxfp4"):
        return None
    return Finding(
        f"rollout.quantization = {flag} becomes {name}, as the checkpoint says",
        FLAG,
        (ctx.premise(f"{CONFIG}.quant_algo"),),
        (set_to((FLAG, name)), set_to((FLAG, None))),
        resolved={FLAG: name},
    )


@rule(
    "PP410",
    "vllm-argument-not-in-version",
    "error",
    stage="parse",
    source=(
        "vllm@0.33.0:vllm/engine/arg_utils.py:456-877",
        "vllm@0.22.1:vllm/config/cache.py:238-248",
        "verl-project/verl#4435",
    ),
    versions=None,
    needs=("vllm",),
)
def not_in_version(ctx: Context) -> Iterator[Finding]:
    """The declared vLLM has no such engine argument, or the argument does not take the value.

    Why:
        Arguments come and go: --calculate-kv-scales is gone since 0.28, --attention-backend
        replaced a variable by 0.17, recurrent-state dtypes grew one by one. An unknown
        argument stops ``vllm serve``; a framework that forwards arguments fails as its engine
        starts.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {calculate_kv_scales: true}

    Good:
        software: {framework: vllm, vllm: 0.22.1}
        rollout: {calculate_kv_scales: true}
    """
    have = ctx.target.package("vllm")
    if have is None or not serves(ctx):
        return
    known = engine_args()
    for name, value in ctx.plan.rollout.set_items():
        field = f"rollout.{name}"
        arg = known.get(field)
        if arg is None or value is False:
            continue
        if have not in arg.versions:
            yield ctx.found(
                f"vLLM {have} has no {arg.flag} ({arg.versions})",
                field,
                "software.vllm",
                *([Because(arg.note)] if arg.note else ()),
                fix=(set_to((field, None)),),
            )
        elif arg.changes and isinstance(value, str):
            choices = arg.at(have).choices or ()
            if value not in choices and not arg.is_open(have):
                yield ctx.found(
                    f"{arg.flag} of vLLM {have} does not take {value}",
                    field,
                    "software.vllm",
                    Because(f"it takes {', '.join(choices)}"),
                    fix=(set_to((field, None)),),
                )


@rule(
    "PP450",
    "checkpoint-method-not-in-version",
    "error",
    stage="engine_config",
    source=(
        "vllm@0.15.1:vllm/model_executor/layers/quantization/modelopt.py:110-119",
        "vllm@0.16.0:vllm/model_executor/layers/quantization/modelopt.py:104-115,315-321",
        "vllm@0.18.1:vllm/model_executor/layers/quantization/__init__.py:102-104",
        "vllm@0.23.0:vllm/model_executor/layers/quantization/online/base.py:105-111",
    ),
    needs=("vllm",),
)
def stored_method_refused(ctx: Context) -> Found:
    """The declared vLLM cannot read a checkpoint of this method yet.

    Why:
        ModelOpt's MXFP8 came with 0.16 and its mixed precision with 0.17; earlier releases stop
        at the algorithm's name. ``quant_method: mxfp8`` is read since 0.24: from 0.20 on the name
        stood for online quantization alone, which has no checkpoint config.

    Bad:
        software: {framework: vllm, vllm: 0.22.1}
        checkpoint: {quantization_config: {quant_method: mxfp8}}

    Good:
        software: {framework: vllm, vllm: 0.22.1}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
    """
    have, found = ctx.target.package("vllm"), quant_methods().get(checkpoint_method(ctx) or "")
    if found is None or have is None or not serves(ctx):
        return None
    if not any(have in span for span in found.refused):
        return None
    method = f"{CONFIG}.quant_method"
    renamed = found.name == "mxfp8" and have not in VersionRange(None, "0.15")
    other = ((method, "modelopt"), (f"{CONFIG}.quant_algo", "MXFP8"))
    return ctx.found(
        f"vLLM {have} does not read checkpoints of {found.name}",
        method,
        "software.vllm",
        fix=(*([set_to(*other)] if renamed else ()), set_to(("software.vllm", "0.24.0"))),
    )


RULES: tuple[Rule, ...] = (
    unknown_name,
    deprecated,
    differs,
    replaced,
    not_in_version,
    stored_method_refused,
)

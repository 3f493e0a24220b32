"""PP465, PP467 to PP470, PP670: SGLang's precision arguments, passed on with a prefix."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.sglang_flags import sglang_attention, sglang_flags, sglang_moe_methods
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS
from precision_plan.rules.vllm_engine import CONFIG

_KV = "kv-cache-dtype"
_ATTENTION = "attention-backend"
_MOE = "moe-runner-backend"
_METHOD = "quantization"
_DEFAULTS = "sglang@0.5.23:sglang/srt/arg_groups"
_ARGS = "sglang@0.5.15.post1:sglang/srt/server_args.py"


def _given(ctx: Context, flag: str) -> tuple[str | None, str]:
    """``(value, place)`` of one of SGLang's arguments in ``launch.extra_args``."""
    wanted = f"sglang-{flag}"
    for name in ctx.plan.launch.extra_args or {}:
        if name.lstrip("-").replace("_", "-") == wanted:
            value = ctx.extra(wanted.replace("-", "_"))
            return (value if isinstance(value, str) else None), f"launch.extra_args.{name}"
    return None, f"launch.extra_args.{wanted}"


@rule(
    "PP465",
    "sglang-value-unknown",
    "error",
    stage="parse",
    source=(f"{_DEFAULTS}/choices.py:32-188", f"{_ARGS}:103-310"),
    frameworks=SGLANG_FRAMEWORKS,
)
def unknown_value(ctx: Context) -> Iterator[Finding]:
    """No release of SGLang takes this value for the argument.

    Why:
        SGLang's parser has lists of its own: the cache is ``bf16`` and not ``float16``, the dtype
        ``half`` and not ``fp16``, FP8 is always ``fp8_e4m3`` or ``fp8_e5m2``. The lists grow; a
        value that any of the releases 0.5.5 to 0.5.23 has is not reported.

    Bad:
        software: {framework: slime}
        launch: {extra_args: {sglang-kv-cache-dtype: fp8}}

    Good:
        software: {framework: slime}
        launch: {extra_args: {sglang-kv-cache-dtype: fp8_e4m3}}
    """
    for name in ctx.plan.launch.extra_args or {}:
        bare = name.lstrip("-").replace("_", "-")
        row = sglang_flags().get("--" + bare.removeprefix("sglang-"))
        if row is None or row.choices is None or not bare.startswith("sglang-"):
            continue
        value = ctx.extra(bare.replace("-", "_"))
        if not isinstance(value, str) or value in row.choices:
            continue
        place = f"launch.extra_args.{name}"
        close = [each for each in row.choices if each.startswith(value)][:2]
        yield ctx.found(
            f"SGLang has no --{bare.removeprefix('sglang-')} {value}: {', '.join(row.choices)}",
            place,
            fix=(*(set_to((place, each)) for each in close), set_to((place, None))),
        )


@rule(
    "PP467",
    "sglang-experts-refuse-method",
    "error",
    stage="engine_config",
    source=(f"{_ARGS}:4929-4978", f"{_DEFAULTS}/moe_hook.py:80-147"),
    frameworks=SGLANG_FRAMEWORKS,
)
def experts_refuse(ctx: Context) -> Found:
    """The runner of experts does not take the quantization method that is asked for.

    Why:
        FlashInfer's runners assert the method: the CUTLASS one takes ModelOpt's FP8 and FP4
        only, the routed TRT-LLM one no compressed-tensors. The server stops before it loads.

    Bad:
        software: {framework: slime}
        launch:
          extra_args: {sglang-moe-runner-backend: flashinfer_cutlass, sglang-quantization: fp8}

    Good:
        software: {framework: slime}
        launch:
          extra_args: {sglang-moe-runner-backend: flashinfer_trtllm, sglang-quantization: fp8}
    """
    runner, place = _given(ctx, _MOE)
    asked, method = _given(ctx, _METHOD)
    takes = sglang_moe_methods().get(runner or "")
    if takes is None or asked is None or asked in takes:
        return None
    return ctx.found(
        f"SGLang's {runner} takes {', '.join(takes)}, not {asked}",
        place,
        method,
        fix=(set_to((place, "auto")),),
    )


@rule(
    "PP468",
    "sglang-attention-refuses",
    "error",
    stage="attention_backend",
    source=(
        f"{_ARGS}:4451-4462",
        "sglang@0.5.15.post1:sglang/srt/arg_groups/overrides.py:1588-1657",
        f"{_DEFAULTS}/overrides.py:1204-1256",
    ),
    frameworks=SGLANG_FRAMEWORKS,
    hardware="by backend",
)
def attention_refuses(ctx: Context) -> Found:
    """The attention backend does not exist on the GPU, or does not take the KV cache dtype.

    Why:
        TRT-LLM's MLA and CuteDSL's need Blackwell, TRT-LLM's MHA at least Hopper. The MLA ones
        name their cache dtypes: e5m2 is none of them, and trtllm_mla knows ``bf16`` only by that
        spelling.

    Bad:
        hardware: {gpu: h100}
        software: {framework: miles}
        launch: {extra_args: {sglang-attention-backend: trtllm_mla}}

    Good:
        hardware: {gpu: b200}
        software: {framework: miles}
        launch: {extra_args: {sglang-attention-backend: trtllm_mla}}
    """
    asked, place = _given(ctx, _ATTENTION)
    decode, other = _given(ctx, f"decode-{_ATTENTION}")
    if decode is not None:
        asked, place = decode, other
    row = sglang_attention().get(asked or "")
    if row is None:
        return None
    capability, (kv, cache) = ctx.target.compute_capability, _given(ctx, _KV)
    if capability is not None and capability < row.min_cc:
        gpu = "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability"
        text = f"SGLang's {asked} needs compute capability {row.min_cc[0]}.{row.min_cc[1]}"
        return ctx.found(text, place, gpu, fix=(set_to((place, None)),))
    if kv is None or row.kv is None or kv in row.kv:
        return None
    text = f"SGLang's {asked} takes a KV cache in {', '.join(row.kv)}, not {kv}"
    return ctx.found(text, place, cache, fix=(set_to((cache, "auto")), set_to((place, None))))


@rule(
    "PP469",
    "sglang-e5m2-cache-leaves-fa3",
    "warning",
    stage="run",
    source=(
        "sglang@0.5.9:sglang/srt/server_args.py:1910-1915",
        f"{_DEFAULTS}/overrides.py:1263-1269",
    ),
    frameworks=SGLANG_FRAMEWORKS,
)
def leaves_fa3(ctx: Context) -> Found:
    """With an e5m2 cache SGLang takes Triton in place of FlashAttention 3.

    Why:
        FlashAttention 3 reads FP8 caches in e4m3 only. The server changes the backend with one
        line in its log; speed and rounding are those of another kernel.

    Bad:
        software: {framework: slime}
        launch:
          extra_args: {sglang-attention-backend: fa3, sglang-kv-cache-dtype: fp8_e5m2}

    Good:
        software: {framework: slime}
        launch:
          extra_args: {sglang-attention-backend: fa3, sglang-kv-cache-dtype: fp8_e4m3}
    """
    backend, place = _given(ctx, _ATTENTION)
    kv, cache = _given(ctx, _KV)
    if backend != "fa3" or kv != "fp8_e5m2":
        return None
    fixes = (set_to((cache, "fp8_e4m3")), set_to((place, "triton")))
    return ctx.found("fa3 does not take an e5m2 cache: Triton is used", cache, place, fix=fixes)


@rule(
    "PP470",
    "sglang-kv-scales-default-to-one",
    "advice",
    stage="run",
    source=(f"{_ARGS}:546-570", "sglang@0.5.9:sglang/srt/server_args.py:3069-3090"),
    frameworks=SGLANG_FRAMEWORKS,
)
def scales_default(ctx: Context) -> Found:
    """An FP8 KV cache without scales is scaled by one.

    Why:
        SGLang takes the scales from the file of --quantization-param-path or from the checkpoint,
        else 1.0; converters for RL write none. Keys with large outliers exceed 448 and lose
        accuracy. Compare a few prompts with ``auto`` first.

    Bad:
        software: {framework: slime}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        launch: {extra_args: {sglang-kv-cache-dtype: fp8_e4m3}}

    Good:
        software: {framework: slime}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        launch: {extra_args: {sglang-kv-cache-dtype: auto}}
    """
    kv, place = _given(ctx, _KV)
    config = ctx.plan.checkpoint.quantization_config
    if kv != "fp8_e4m3" or config is None or config.kv_cache_quant_algo is not None:
        return None
    if ctx.extra("sglang_quantization_param_path") is not None:
        return None
    return ctx.found(
        f"KV cache in {kv} without KV scales in the checkpoint: every scale is 1.0",
        place,
        f"{CONFIG}.kv_cache_quant_algo",
        fix=(Fix("compare with --sglang-kv-cache-dtype auto, or calibrate the checkpoint"),),
    )


_HALF = frozenset({"half", "float16"})
_OTHER = frozenset({"bfloat16", "float", "float32"})


@rule(
    "PP670",
    "sglang-dtype-contradicts-training",
    "error",
    stage="run",
    source=(
        "THUDM/slime@624b824a:slime/backends/sglang_utils/sglang_engine.py:571-572",
        "radixark/miles@31f1ca96:miles/backends/sglang_utils/sglang_engine.py:761-762",
    ),
    frameworks=SGLANG_FRAMEWORKS,
)
def engine_dtype(ctx: Context) -> Found:
    """--sglang-dtype asks for another base format than the trainer has.

    Why:
        slime and miles start the engine in float16 if the trainer has --fp16, whatever was asked
        for. Without --fp16 the trainer is in bfloat16, and --sglang-dtype float16 makes the engine
        round otherwise than the trainer, at every weight and activation.

    Bad:
        software: {framework: slime}
        training: {fp16: true}
        launch: {extra_args: {sglang-dtype: bfloat16}}

    Good:
        software: {framework: slime}
        training: {fp16: true}
    """
    asked, place = _given(ctx, "dtype")
    if asked not in _HALF | _OTHER or (asked in _HALF) == bool(ctx.args.fp16):
        return None
    if asked in _HALF:
        text = f"the engine is in {asked}, the trainer in bfloat16"
    else:
        text = f"--sglang-dtype {asked} is dropped: with fp16 training the engine is in float16"
    return ctx.found(text, place, "training.fp16", fix=(set_to((place, None)),))


RULES: tuple[Rule, ...] = (
    unknown_value,
    experts_refuse,
    attention_refuses,
    leaves_fa3,
    scales_default,
    engine_dtype,
)

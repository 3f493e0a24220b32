"""PP421 to PP426: KV cache dtype and attention backend against version, dtype and GPU."""

from __future__ import annotations

from difflib import get_close_matches

from precision_plan.facts.vllm import kv_dtypes
from precision_plan.facts.vllm_backends import (
    AttentionBackend,
    attention_backend,
    attention_backends,
)
from precision_plan.plan import Because
from precision_plan.plan.diagnostic import Stage
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import by_engine, engine_dtype, is_mla, method, serves

KV = "rollout.kv_cache_dtype"
_BACKEND = "rollout.attention_backend"
_VLLM = "vllm@0.33.0:vllm/config/vllm.py"
_CACHE = "vllm@0.33.0:vllm/config/cache.py"
_ATTENTION = "vllm@0.33.0:vllm/model_executor/layers/attention/attention.py"
_SELECTOR = "vllm@0.33.0:vllm/platforms/cuda.py:84-181"
_FREE_TEXT = "0.33"
"""First release whose parser takes any text; vllm@0.32.0:vllm/engine/arg_utils.py has choices."""
_SAME_DTYPE = "0.33"
"""First release that compares the two; vllm@0.32.0:vllm/config/vllm.py does not."""


def asked_kv_dtype(ctx: Context) -> str | None:
    """The KV dtype that the plan asks vLLM for; ``None`` for ``auto`` and for other engines."""
    asked = ctx.plan.rollout.kv_cache_dtype
    return None if asked in {None, "auto"} or not serves(ctx) else asked


@rule(
    "PP421",
    "kv-cache-dtype-not-in-version",
    "error",
    stage="engine_config",
    source=(f"{_CACHE}:44-67",),
    needs=("vllm",),
)
@by_engine("PP421")
def not_in_version(ctx: Context) -> Found:
    """The declared vLLM does not have this KV cache dtype.

    Why:
        The list grew from six names in 0.12 to over twenty in 0.33 (nvfp4 and the per-token
        formats by 0.22, nvfp4_4over6 by 0.28). Up to 0.32 the parser refuses another text, since
        0.33 the engine's configuration does.

    Bad:
        software: {framework: vllm, vllm: 0.17.1}
        rollout: {kv_cache_dtype: nvfp4}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {kv_cache_dtype: nvfp4}
    """
    # a text that no plan can hold, by the engine's name and by the framework's
    unknown = ctx.extra("kv_cache_dtype") or ctx.extra("vllm_kv_cache_dtype")
    asked = asked_kv_dtype(ctx) or unknown
    if not isinstance(asked, str):
        return None
    row, have = kv_dtypes().get(asked), ctx.target.package("vllm")
    stage: Stage | None = "parse" if ctx.at_least("vllm", _FREE_TEXT) is False else None
    if row is None:
        close = get_close_matches(asked.lower().replace("-", "_"), kv_dtypes(), n=1, cutoff=0.75)
        fix = (*(set_to((KV, each)) for each in close), set_to((KV, "auto")))
        return ctx.found(f"vLLM has no KV cache dtype {asked}", KV, fix=fix, stage=stage)
    if have is None or have in row.versions:
        return None
    return ctx.found(
        f"vLLM {have} has no KV cache dtype {asked} ({row.versions})",
        KV,
        "software.vllm",
        fix=(set_to((KV, "fp8_e4m3")), set_to((KV, "auto"))),
        stage=stage,
    )


@rule(
    "PP422",
    "kv-cache-float-differs-from-model",
    "error",
    stage="engine_config",
    source=(f"{_VLLM}:1492-1508",),
)
@by_engine("PP422")
def float_differs(ctx: Context) -> Found:
    """A 16-bit KV cache dtype must be the model's dtype.

    Why:
        float16 and bfloat16 are accepted only where the model computes in them; vLLM raises
        ValueError. ``auto`` is the same thing without the trap.

    Bad:
        software: {framework: vllm}
        rollout: {dtype: float16, kv_cache_dtype: bfloat16}

    Good:
        software: {framework: vllm}
        rollout: {dtype: float16, kv_cache_dtype: auto}
    """
    asked = asked_kv_dtype(ctx)
    if asked not in {"float16", "bfloat16"} or ctx.at_least("vllm", _SAME_DTYPE) is False:
        return None
    dtype, place = engine_dtype(ctx)
    if dtype is None or dtype == asked:
        return None
    return ctx.found(
        f"KV cache in {asked}, model in {dtype}", KV, place, fix=(set_to((KV, "auto")),)
    )


@rule(
    "PP423",
    "nvfp4-kv-cache-with-mla",
    "error",
    stage="engine_config",
    source=(f"{_VLLM}:3421-3438",),
)
@by_engine("PP423")
def nvfp4_with_mla(ctx: Context) -> Found:
    """NVFP4 KV caches are not for multi-head latent attention.

    Why:
        The NVFP4 layout splits a head into data and scales; MLA caches one latent vector
        instead. vLLM refuses nvfp4 and nvfp4_4over6 there; nvfp4_ds_mla belongs to sparse MLA.

    Bad:
        software: {framework: vllm}
        model: {multi_latent_attention: true}
        rollout: {kv_cache_dtype: nvfp4}

    Good:
        software: {framework: vllm}
        model: {multi_latent_attention: true}
        rollout: {kv_cache_dtype: fp8}
    """
    asked = asked_kv_dtype(ctx)
    if asked not in {"nvfp4", "nvfp4_4over6"} or not is_mla(ctx):
        return None
    return ctx.found(
        f"KV cache dtype {asked} with multi-head latent attention",
        KV,
        "model.multi_latent_attention",
        fix=(set_to((KV, "fp8")), set_to((KV, "auto"))),
    )


_KV_SCALES = (
    *("fp8", "deepseek_v4_fp8", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "mxfp8"),
    *("modelopt_mixed", "quark"),
)
"""Methods that create KV scales for every attention layer."""


@rule(
    "PP424",
    "e5m2-kv-cache-with-fp8-checkpoint",
    "error",
    stage="build",
    source=(f"{_ATTENTION}:201-220", "vllm-project/vllm#8409"),
)
def e5m2_with_fp8(ctx: Context) -> Found:
    """An fp8_e5m2 KV cache does not go with a checkpoint that carries FP8 scales.

    Why:
        KV scales are made for E4M3. vLLM refuses E5M2 with FP8, ModelOpt and Quark checkpoints
        when it builds the attention layers; compressed-tensors without a KV scheme may use it.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {kv_cache_dtype: fp8_e5m2}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {kv_cache_dtype: fp8_e4m3}
    """
    if asked_kv_dtype(ctx) != "fp8_e5m2":
        return None
    found, field = method(ctx)
    config = ctx.plan.checkpoint.quantization_config
    scheme = config is not None and (config.kv_cache_quant_algo or "").upper() == "FP8"
    if found is None or not (
        found.name in _KV_SCALES or (found.name == "compressed-tensors" and scheme)
    ):
        return None
    return ctx.found(
        f"KV cache in fp8_e5m2 with a checkpoint of method {found.name}",
        KV,
        field,
        fix=(set_to((KV, "fp8_e4m3")), set_to((KV, "auto"))),
    )


def _kinds(ctx: Context) -> tuple[str, ...]:
    """Kinds of attention that the model may have."""
    mla = is_mla(ctx)
    if mla is None:
        return ("dense", "mla", "sparse_mla")
    return ("mla", "sparse_mla") if mla else ("dense",)


def _candidates(ctx: Context, asked: str) -> list[AttentionBackend]:
    target, kinds = ctx.target, _kinds(ctx)
    dtype, _ = engine_dtype(ctx)
    return [
        row
        for row in attention_backends()
        if row.automatic
        and row.platform == target.platform
        and row.kind in kinds
        and (dtype is None or dtype in row.dtypes)
        and row.accepts(asked, target.compute_capability)
    ]


@rule(
    "PP425",
    "kv-cache-dtype-without-a-backend",
    "error",
    stage="attention_backend",
    source=(
        _SELECTOR,
        "vllm@0.33.0:vllm/v1/attention/backend.py:279-369",
        "vllm-project/vllm#12543",
    ),
    needs=("gpu",),
    hardware="by KV dtype and compute capability",
)
@by_engine("PP425")
def without_a_backend(ctx: Context) -> Found:
    """No attention backend of vLLM takes this KV cache dtype on the declared GPU.

    Why:
        fp8_inc is Gaudi's, octave ROCm's, ultraquant_4bit was refused everywhere;
        nvfp4_4over6 needs 10.x; dense MLA takes no fp8_e5m2; below 8.9 the only backend of a
        7.5 GPU has no FP8. vLLM refuses to start, or fails while it builds the layers. FP8
        caches themselves are storage: on 8.0 FlashInfer reads them.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vllm}
        model: {num_layers: 48}
        rollout: {kv_cache_dtype: fp8_inc}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm}
        model: {num_layers: 48}
        rollout: {kv_cache_dtype: fp8_e4m3}
    """
    asked = asked_kv_dtype(ctx)
    if asked is None or ctx.target.platform is None or ctx.plan.rollout.attention_backend:
        return None
    rows = _candidates(ctx, asked)
    capability = ctx.target.compute_capability
    built = [
        row
        for row in rows
        if capability is None or capability >= row.build_min_cc.get(asked, (0, 0))
    ]
    if built:
        return None
    where = ctx.target.gfx or "{}.{}".format(*capability or (0, 0))
    attention = "multi-head latent attention" if is_mla(ctx) else "attention"
    return ctx.found(
        f"no vLLM {attention} backend takes a KV cache in {asked} on {where}",
        KV,
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        *([Because(kv_dtypes()[asked].note or "")] if kv_dtypes()[asked].note else ()),
        fix=(set_to((KV, "fp8_e4m3")), set_to((KV, "auto"))),
        stage="build" if rows else None,
    )


@rule(
    "PP426",
    "attention-backend-refuses",
    "error",
    stage="attention_backend",
    source=(
        "vllm@0.33.0:vllm/platforms/cuda.py:429-449",
        "vllm@0.33.0:vllm/v1/attention/backend.py:279-369",
        "vllm-project/vllm#14221",
    ),
    needs=("gpu",),
    hardware="by backend",
)
@by_engine("PP426")
def backend_refuses(ctx: Context) -> Found:
    """The attention backend that the plan names cannot serve this model here.

    Why:
        A named backend must take the GPU, the dtype, the KV cache dtype and the kind of
        attention, or vLLM stops with the reasons. FlashAttention has no FP8 cache below 9.0
        and none on 12.x, FlashInfer starts at 8.0, MLA has backends of its own.

    Bad:
        hardware: {gpu: a100}
        software: {framework: vllm, vllm: 0.33.0}
        model: {num_layers: 48}
        rollout: {attention_backend: FLASH_ATTN, kv_cache_dtype: fp8}

    Good:
        hardware: {gpu: a100}
        software: {framework: vllm, vllm: 0.33.0}
        model: {num_layers: 48}
        rollout: {attention_backend: FLASHINFER, kv_cache_dtype: fp8}
    """
    name = ctx.plan.rollout.attention_backend
    platform = ctx.target.platform
    if name is None or platform is None or name.lower() == "auto" or not serves(ctx):
        return None
    row = attention_backend(name, platform)
    if row is None:
        return _other_platform(ctx, name, platform)
    capability, asked = ctx.target.compute_capability, ctx.plan.rollout.kv_cache_dtype or "auto"
    dtype, place = engine_dtype(ctx)
    stage: Stage | None = None
    if row.kind not in _kinds(ctx):
        kind = "is" if is_mla(ctx) else "is not"
        why, premise = f"the model {kind} one with latent attention", "model.multi_latent_attention"
    elif row.ran_on(capability, ctx.target.package("vllm")):
        return None  # what it took on such a GPU was not read
    elif not row.runs_on(capability):
        why, premise = "the GPU is out of its range", _gpu(ctx)
    elif not row.accepts(asked, capability):
        why, premise = f"it takes no KV cache in {asked} there", KV
    elif capability is not None and capability < row.build_min_cc.get(asked, (0, 0)):
        why, premise, stage = f"a KV cache in {asked} needs a newer GPU", KV, "build"
    elif dtype is not None and dtype not in row.dtypes:
        why, premise = f"it does not compute in {dtype}", place
    else:
        return None
    return ctx.found(
        f"{name} cannot serve this: {why}",
        _BACKEND,
        premise,
        _gpu(ctx),
        fix=(set_to((_BACKEND, None), also=" and let vLLM choose"),),
        stage=stage,
    )


def _gpu(ctx: Context) -> str:
    return "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability"


def _other_platform(ctx: Context, name: str, platform: str) -> Found:
    if attention_backend(name, "cuda" if platform == "rocm" else "rocm") is None:
        return None
    return ctx.found(
        f"{name} does not exist on {platform}", _BACKEND, _gpu(ctx), fix=(set_to((_BACKEND, None)),)
    )


RULES: tuple[Rule, ...] = (
    not_in_version,
    float_differs,
    nvfp4_with_mla,
    e5m2_with_fp8,
    without_a_backend,
    backend_refuses,
)

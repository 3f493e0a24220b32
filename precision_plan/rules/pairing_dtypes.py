"""PP505 to PP507: base format, output head and router of trainer and engine."""

from __future__ import annotations

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.vllm_routers import fp32_router
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import serves


@rule(
    "PP505",
    "base-dtype-differs-from-rollout",
    "warning",
    stage="run",
    source=(
        "verl-project/verl#4036",
        "huggingface/trl#6774",
        "hiyouga/EasyR1#583",
    ),
)
def base_dtype(ctx: Context) -> Found:
    """The trainer's base format and the engine's dtype differ.

    Why:
        Trainer and engine are separate programs with separate defaults: a trainer without a base
        format computes in FP32. ``auto`` takes the checkpoint's dtype. vime and slime pass
        float16 to the engine with --fp16 by themselves. FP16 on one side and BF16 on the other
        is another rule's subject.

    Bad:
        training: {bf16: false, fp16: false}
        rollout: {dtype: bfloat16}

    Good:
        training: {bf16: true}
        rollout: {dtype: bfloat16}
    """
    sides = trained_and_served(ctx)
    if sides is None or set(sides) == {"fp16", "bf16"}:
        return None  # PP147 speaks of the latter
    trained, asked = sides
    if asked == trained:
        return None
    return ctx.found(
        f"training in {trained}, rollout in {asked}",
        "rollout.dtype",
        f"training.{trained}" if trained != "fp32" else "training.bf16",
        fix=(set_to(("rollout.dtype", _LONG[trained])),),
    )


def trained_and_served(ctx: Context) -> tuple[str, str] | None:
    """Base formats of trainer and engine; ``None`` if one of them is not said."""
    asked = _ENGINE_DTYPES.get(ctx.plan.rollout.dtype or "")
    if asked is None or not ctx.plan.training.model_fields_set & {"fp16", "bf16"}:
        return None
    return "fp16" if ctx.args.fp16 else "bf16" if ctx.args.bf16 else "fp32", asked


_ENGINE_DTYPES = {
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float": "fp32",
    "float32": "fp32",
}
_LONG = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


@rule(
    "PP506",
    "fp32-head-on-one-side",
    "error",
    stage="policy",
    source=(
        "NVIDIA-NeMo/RL#4096",
        "vllm@0.33.0:vllm/config/model.py:2108-2134",
        "THUDM/slime@624b824a:slime/backends/sglang_utils/arguments.py:51-69",
    ),
    frameworks=RL_FRAMEWORKS,
)
def one_sided_head(ctx: Context) -> Found:
    """The output head computes in FP32 on one side only.

    Why:
        An FP32 lm_head is chosen to make the log-probabilities of trainer and rollout agree.
        On one side only it adds a difference instead of removing one.

    Bad:
        software: {framework: vime, megatron_core: HEAD}
        rollout: {head_dtype: float32}

    Good:
        software: {framework: vime, megatron_core: HEAD}
        training: {output_logit_dtype: fp32}
        rollout: {head_dtype: float32}
    """
    ours = ctx.plan.training.output_logit_dtype == "fp32"
    served = serves(ctx)
    theirs = (
        ctx.plan.rollout.head_dtype == "float32"
        if served
        else ctx.extra("sglang_enable_fp32_lm_head") not in (None, False)
    )
    if ours == theirs:
        return None
    trainer, engine = "training.output_logit_dtype", "rollout.head_dtype"
    if not served:
        engine = "launch.extra_args"
    flag = ctx.extra_field("sglang_enable_fp32_lm_head")
    sglang = Fix(f"{engine}: {{{_SGLANG_HEAD}: true}}", {flag: True})
    both = set_to((engine, "float32")) if served else sglang
    alone = set_to((trainer, None))
    if theirs:
        both = set_to((trainer, "fp32"))
        off = Fix(f"remove {_SGLANG_HEAD} from {engine}", {flag: None})
        alone = set_to((engine, None)) if served else off
    old = theirs and ctx.at_least("megatron_core", "HEAD") is False
    other = f"{trainer}: fp32" if theirs else f"{engine}: float32" if served else _SGLANG_HEAD
    return ctx.found(
        f"the head is in FP32 in the {'engine' if theirs else 'trainer'} without {other}",
        engine if theirs else trainer,
        trainer if theirs else engine,
        fix=(alone,) if old else (both, alone),
    )


_SGLANG_HEAD = "sglang-enable-fp32-lm-head"


_MODELS = "vllm@0.33.0:vllm/model_executor/models"


@rule(
    "PP507",
    "router-in-other-dtype-than-engine",
    "warning",
    stage="run",
    source=(
        "PrimeIntellect-ai/prime-rl#2952",
        f"{_MODELS}/deepseek_v2.py:135-145",
        f"{_MODELS}/glm4_moe.py:141-145",
        f"{_MODELS}/minimax_m2.py:110-115",
        f"{_MODELS}/nemotron_h.py:159-163",
    ),
    frameworks=RL_FRAMEWORKS,
)
def router_dtype(ctx: Context) -> Found:
    """The trainer computes the router in another dtype than vLLM does for this model.

    Why:
        A rounded router picks other experts for close tokens, so trainer and rollout follow
        different paths. vLLM computes the router of GLM, MiniMax M2 and Nemotron-H in FP32
        (GLM-5's from 0.25 on); Megatron computes it in the model's dtype unless told otherwise.

    Bad:
        software: {framework: vime, vllm: 0.33.0}
        model: {num_experts: 160, hf_model_type: glm4_moe, add_bias_linear: false}
        training: {bf16: true}

    Good:
        software: {framework: vime, vllm: 0.33.0}
        model: {num_experts: 160, hf_model_type: glm4_moe, add_bias_linear: false}
        training: {bf16: true, moe_router_dtype: fp32}
    """
    name = ctx.plan.model.hf_model_type
    row = fp32_router(name) if name is not None else None
    if row is None or not ctx.plan.model.num_experts or not serves(ctx):
        return None
    field, exact = "training.moe_router_dtype", ctx.args.moe_router_dtype in {"fp32", "fp64"}
    since = row.versions.since
    if since is not None and ctx.at_least("vllm", since) is False:
        if not exact:
            return None
        return ctx.found(
            f"{ctx.shown(field)}, but the engine's router is in bf16 before vLLM {since}",
            field,
            "software.vllm",
            "model.hf_model_type",
            fix=(set_to(("software.vllm", since), also=" or later"),),
        )
    if exact:
        return None
    return ctx.found(
        f"vLLM computes the router of {name} in fp32, and {ctx.shown(field)}",
        field,
        "model.hf_model_type",
        fix=(set_to((field, "fp32")),),
    )


RULES: tuple[Rule, ...] = (
    base_dtype,
    one_sided_head,
    router_dtype,
)

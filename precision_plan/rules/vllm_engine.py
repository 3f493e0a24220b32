"""What vLLM would make of a plan: method, dtype and kind of attention, as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING

from precision_plan.facts.vllm import architectures, quant_names
from precision_plan.facts.vllm_quant import QuantMethod, quant_methods, resolve_method
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS

if TYPE_CHECKING:
    from precision_plan.plan.engine import Refusal
    from precision_plan.plan.serving import QuantizationConfig

FLAG = "rollout.quantization"
CONFIG = "checkpoint.quantization_config"

LONG_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "half": "float16",
        "float16": "float16",
        "bfloat16": "bfloat16",
        "float": "float32",
        "float32": "float32",
    }
)


Check = Callable[[Context], Found]


def by_engine(rule_id: str) -> Callable[[Check], Check]:
    """Let the resolved engine decide where there is one; without, the decorated check does.

    The engine is resolved where the model's ``config.json`` is known (``ctx.engine``). The check
    then rests on what the plan says of the checkpoint.
    """

    def wrap(check: Check) -> Check:
        @wraps(check)
        def examine(ctx: Context) -> Found:
            if ctx.engine is None:
                return check(ctx)
            return tuple(refused(ctx, rule_id))

        return examine

    return wrap


def refused(ctx: Context, rule_id: str) -> Iterator[Finding]:
    """What the resolved engine refuses for the reason that one rule explains."""
    if ctx.engine is None:
        return
    for refusal in ctx.engine.refusals:
        if refusal.rule == rule_id:
            yield _finding(ctx, refusal)


def refused_config(ctx: Context) -> bool:
    """True if the resolved engine does not take the checkpoint's quantization config."""
    return any(True for _ in refused(ctx, "PP413"))


def _finding(ctx: Context, refusal: Refusal) -> Finding:
    premises = tuple(ctx.premise(name) for name in refusal.premises)
    if refusal.field.startswith("rollout."):
        fix = (set_to((refusal.field, refusal.instead)),)
    else:
        fix = (Fix("correct the checkpoint's config, or serve another checkpoint"),)
    because = premises or (Because("as vLLM 0.33 resolves the model's configuration"),)
    return Finding(refusal.message, refusal.field, because, fix, stage=refusal.stage)


def serves(ctx: Context) -> bool:
    """True unless the framework is known to roll out with another engine than vLLM."""
    return ctx.target.framework not in SGLANG_FRAMEWORKS


def refuses_fp16(ctx: Context) -> bool:
    """True if the model's family is on vLLM's float16 block list."""
    refused = [row for row in architectures() if not row.float16]
    model = ctx.plan.model
    if model.hf_model_type is not None:
        return any(model.hf_model_type in row.model_types for row in refused)
    return (model.hf_architecture or "").startswith(tuple(row.prefix for row in refused))


def engine_dtype(ctx: Context) -> tuple[str | None, str]:
    """``(dtype, plan field)`` of the engine; ``None`` where ``auto`` meets an unknown checkpoint.

    ``auto`` takes the checkpoint's dtype, or the GPU's first one where it cannot
    (``vllm@0.33.0:vllm/config/model.py:2423-2518``). vime owns the dtype: float16 with fp16
    training, else ``auto``.
    """
    plan = ctx.plan
    asked = plan.rollout.dtype
    if ctx.target.framework == "vime":
        if ctx.args.fp16:
            return "float16", "training.fp16"
        asked = None
    if asked not in {None, "auto"}:
        return LONG_DTYPES[asked or ""], "rollout.dtype"
    stored, field = plan.model.hf_torch_dtype, "model.hf_torch_dtype"
    if stored is None:
        return None, field
    capability = ctx.target.compute_capability
    if capability is None:
        return (stored if stored != "float32" else None), field
    first = "bfloat16" if capability >= (8, 0) else "float16"
    if first == "float16" and refuses_fp16(ctx):
        first = "float32"
    if stored == "float32":
        return first, field
    missing = stored == "bfloat16" and capability < (8, 0)
    return (first if missing or (stored == "float16" and refuses_fp16(ctx)) else stored), field


def config_of(config: QuantizationConfig) -> dict[str, str]:
    """The keys of a plan's ``quantization_config`` that select the method, as in the file."""
    keys = ("quant_method", "quant_algo", "format")
    return {key: value for key in keys if (value := getattr(config, key)) is not None}


def checkpoint_method(ctx: Context) -> str | None:
    """Method that vLLM selects for the checkpoint; ``None`` without (or for an unknown) config."""
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method is None:
        return None
    return resolve_method(config_of(config), ctx.plan.model.hf_model_type)


def method(ctx: Context) -> tuple[QuantMethod | None, str]:
    """``(method, plan field)`` that the engine ends with: the checkpoint's, else the flag's."""
    name = checkpoint_method(ctx)
    if name is not None:
        return quant_methods().get(name), f"{CONFIG}.quant_method"
    flag = ctx.plan.rollout.quantization
    row = quant_names().get(flag) if flag is not None else None
    if row is None or ctx.plan.checkpoint.quantization_config is not None:
        return None, FLAG
    resolved = row.resolves_at(ctx.target.package("vllm"))
    return quant_methods().get("online" if flag == "mxfp8" else resolved), FLAG


def is_mla(ctx: Context) -> bool | None:
    """Whether the model has multi-head latent attention; ``None`` if the plan has no model."""
    model = ctx.plan.model
    if model.multi_latent_attention is not None:
        return model.multi_latent_attention
    return None if model.num_layers is None and model.hidden_size is None else False


def is_hybrid(ctx: Context) -> bool | None:
    """Whether the model keeps a recurrent state; ``None`` if the plan has no model."""
    model = ctx.plan.model
    if model.linear_attention_layers is not None:
        return model.linear_attention_layers > 0
    recurrent = tuple(row.prefix for row in architectures() if row.recurrent_state)
    if (model.hf_architecture or "").startswith(recurrent):
        return True
    return None if model.num_layers is None and model.hidden_size is None else False

"""What vLLM makes of its arguments and a checkpoint's configuration, step by step as it does.

The counterpart of ``effective`` for the rollout engine. It needs the model's ``config.json``
(a folder that was read, or a configuration given beside a command line) and holds for the release
whose code was followed. What is not known stays ``None``, and nothing is refused because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.facts.hf_config import model_types
from precision_plan.facts.vllm import architectures, kv_dtypes, quant_names
from precision_plan.facts.vllm_options import is_release, limits
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan.checkpoint_files import CheckpointFiles
from precision_plan.plan.diagnostic import Stage
from precision_plan.plan.engine_attention import AttentionChoice, choose_attention
from precision_plan.plan.engine_config import config_refusal
from precision_plan.plan.engine_method import kv_dtype_of, method_of
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import Target


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that the engine refuses: the rule that explains it, what, and where.

    ``instead`` is a value of the field that would do; ``None`` if it is best left unset.
    """

    rule: str
    message: str
    field: str
    premises: tuple[str, ...] = ()
    stage: Stage = "engine_config"
    instead: Any = None


@dataclass(frozen=True, slots=True)
class Engine:
    """The resolved values, and what the engine refuses.

    ``attention_backend`` is the class that the selection names for a full-attention layer of the
    model's head size and dtypes; single layers with sinks or windows may end with another.
    """

    dtype: str | None
    quantization: str | None
    kv_cache_dtype: str
    mamba_ssm_cache_dtype: str
    attention: AttentionChoice | None
    refusals: tuple[Refusal, ...]

    def resolved(self) -> dict[str, Any]:
        """The values under vLLM's names; what is not known is left out."""
        found: dict[str, Any] = {
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "mamba_ssm_cache_dtype": self.mamba_ssm_cache_dtype,
        }
        if self.dtype is not None:
            found["dtype"] = self.dtype
        if self.attention is not None and self.attention.classname is not None:
            found["attention_backend"] = self.attention.classname
        return found


_DTYPES: Mapping[str, str] = {
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
}
_SERVED_BY_VLLM = (None, "vllm", "vime")
_DTYPE = "rollout.dtype"
_FLAG = "rollout.quantization"
_KV = "rollout.kv_cache_dtype"
_CONFIG = "checkpoint.quantization_config.quant_method"
_HF_DTYPE = "model.hf_torch_dtype"


def engine(
    plan: PrecisionPlan, checkpoint: CheckpointFiles | None, target: Target
) -> Engine | None:
    """Resolve the rollout; ``None`` without a model configuration, or for another release."""
    if checkpoint is None or not checkpoint.config:
        return None
    vllm = target.package("vllm")
    if vllm is None or not is_release(vllm) or target.framework not in _SERVED_BY_VLLM:
        return None
    return _Resolution(plan, checkpoint, target).engine()


class _Resolution:
    """The steps of one resolution, in vLLM's order."""

    def __init__(self, plan: PrecisionPlan, checkpoint: CheckpointFiles, target: Target) -> None:
        self.plan = plan
        self.target = target
        self.config = _overridden(checkpoint.config, plan)
        nested = self.config.get("text_config")
        self.text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else self.config
        self.raw = checkpoint.quantization_config
        self.model_type = _text(self.config.get("model_type"))
        self.text_type = _text(self.text.get("model_type")) or self.model_type
        self.extra: Mapping[str, Any] = plan.launch.extra_args or {}
        self.refusals: list[Refusal] = []

    def engine(self) -> Engine:
        rollout = self.plan.rollout
        dtype = self._dtype()
        method = self._method()
        kv = self._kv_dtype()
        state = self._state_dtype()
        self._parallel()
        self._floats(kv, dtype)
        if rollout.enable_mamba_cache_stochastic_rounding and state != "float16":
            self._refuse(
                "PP432",
                "stochastic rounding needs a recurrent state in float16",
                "rollout.enable_mamba_cache_stochastic_rounding",
                "rollout.mamba_ssm_cache_dtype",
            )
        if method is not None:
            self._load_config(method, dtype)
        attention = None
        if not self.refusals:
            attention = self._attention(dtype, kv)
        return Engine(dtype, method, kv, state, attention, tuple(self.refusals))

    def _refuse(
        self, rule: str, message: str, field: str, *premises: str, stage: Stage = "engine_config"
    ) -> None:
        self.refusals.append(Refusal(rule, message, field, premises, stage))

    # Data types -------------------------------------------------------------------------------
    def _dtype(self) -> str | None:
        """Source: vllm@0.33.0:vllm/config/model.py:2398-2518."""
        asked = (self.plan.rollout.dtype or "auto").lower()
        if self.target.framework == "vime":  # it decides the dtype itself
            asked = "float16" if self.plan.training.fp16 else "auto"
        if asked != "auto":
            dtype = _DTYPES.get(asked)
            if dtype == "float16" and not self._takes_float16():
                message = f"the model type {self.model_type} does not run in float16"
                self._refuse("PP408", message, _DTYPE, "model.hf_model_type")
            return dtype
        stored = self._stored_dtype()
        supported = self._supported_dtypes()
        if supported is None or stored is None:
            return stored if stored in {"bfloat16", "float16"} and supported is None else None
        wanted = supported[0] if stored == "float32" else stored
        return wanted if wanted in supported else supported[0]

    def _takes_float16(self) -> bool:
        return not any(
            not row.float16 and self.model_type in row.model_types for row in architectures()
        )

    def _stored_dtype(self) -> str | None:
        """The dtype of ``config.json``; a file that names none is float32 or says it in shards."""
        places = [self.config, self.text]
        vision = self.config.get("vision_config")
        places += [vision] if isinstance(vision, Mapping) else []
        for place in places:
            for key in ("dtype", "torch_dtype"):
                value = place.get(key)
                if isinstance(value, str):
                    name = value.removeprefix("torch.")
                    return name if name in _DTYPES.values() else None
        return None

    def _supported_dtypes(self) -> tuple[str, ...] | None:
        """vllm@0.33.0:vllm/platforms/cuda.py:257-266."""
        capability = self.target.compute_capability
        if capability is None:
            return None
        names = ("bfloat16", "float16", "float32")
        found = names if capability >= (8, 0) else names[1:]
        return found if self._takes_float16() else tuple(n for n in found if n != "float16")

    # The quantization method --------------------------------------------------------------------
    def _method(self) -> str | None:
        """Source: vllm@0.33.0:vllm/config/model.py:1383-1486."""
        asked = self.plan.rollout.quantization
        flag = asked.lower() if isinstance(asked, str) else None
        written = self.config.get("quantization_config")
        if written is not None and not isinstance(written, Mapping):
            self._refuse("PP413", "quantization_config is no object", _CONFIG.rpartition(".")[0])
            return None
        found = method_of(self.raw, flag, self.model_type, self.target.compute_capability)
        if found.problem is not None:
            self._refuse(found.rule, found.problem, _FLAG if found.by_flag else _CONFIG)
            return None
        name = found.name
        row = quant_names().get(name) if name is not None else None
        if name is None:
            return None
        vllm = self.target.package("vllm") or ""
        known = quant_names()
        if row is None or vllm not in row.versions:
            field = _FLAG if flag == name else _CONFIG
            self._refuse("PP401", f"vLLM {vllm} has no quantization method {name}", field)
            return None
        if row.deprecated and not self.plan.rollout.allow_deprecated_quantization:
            message = f"vLLM refuses the deprecated method {name}"
            self._refuse("PP402", message, _FLAG if flag == name else _CONFIG)
            return None
        if self.target.platform == "rocm" and (known[name].rocm is None):
            self._refuse("PP406", f"vLLM has no {name} on ROCm", _FLAG if flag == name else _CONFIG)
            return None
        return name

    def _load_config(self, method: str, dtype: str | None) -> None:
        """Source: vllm@0.33.0:vllm/config/vllm.py:916-950."""
        given = self.plan.rollout.quantization_config
        found = config_refusal(method, self.raw, given)
        if found.problem is not None:
            field = _CONFIG.rpartition(".")[0] if self.raw is not None else _FLAG
            self._refuse("PP413" if self.raw is not None else "PP414", found.problem, field)
            return
        name = quant_names()[found.checked_as].resolves if found.checked_as != "mxfp8" else "mxfp8"
        row = quant_methods().get(name)
        if row is None:
            return
        capability, least = self.target.compute_capability, row.min_capability("0.33.0")
        if capability is not None and least is not None and capability < least:
            message = f"{method} needs compute capability {least[0]}.{least[1]}"
            self._refuse("PP405", message, _CONFIG if self.raw is not None else _FLAG, self._gpu())
        elif dtype is not None and dtype not in row.act_dtypes:
            message = f"{method} does not compute in {dtype}"
            premise = _DTYPE if self.plan.rollout.dtype else _HF_DTYPE
            self._refuse("PP407", message, _CONFIG if self.raw is not None else _FLAG, premise)

    # Caches -------------------------------------------------------------------------------------
    def _kv_dtype(self) -> str:
        """Source: vllm@0.33.0:vllm/utils/torch_utils.py:443-516; .../vllm/config/cache.py."""
        asked = self.plan.rollout.kv_cache_dtype or self.extra.get("kv_cache_dtype") or "auto"
        found = kv_dtype_of(self.raw) if asked == "auto" else asked
        row = kv_dtypes().get(found)
        if row is None or "0.33.0" not in row.versions:
            self._refuse("PP421", f"vLLM 0.33.0 has no KV cache dtype {found}", _KV)
        return found

    def _state_dtype(self) -> str:
        """NemotronH replaces ``auto``; other models decide when the layers are built.

        Source: vllm@0.33.0:vllm/model_executor/models/config.py:812-842.
        """
        asked = self.plan.rollout.mamba_ssm_cache_dtype or "auto"
        names = self.config.get("architectures")
        first = names[0] if isinstance(names, (list, tuple)) and names else None
        if asked != "auto" or first not in _STATE_IN_FLOAT32:
            return asked
        stored = self.config.get("mamba_ssm_cache_dtype")
        return stored if isinstance(stored, str) else "float32"

    def _floats(self, kv: str, dtype: str | None) -> None:
        if kv in {"float16", "bfloat16"} and dtype is not None and dtype != kv:
            premise = _DTYPE if self.plan.rollout.dtype else _HF_DTYPE
            self._refuse("PP422", f"KV cache in {kv}, model in {dtype}", _KV, premise)
        if kv.startswith("nvfp4") and not kv.endswith("_ds_mla") and self._mla():
            message = f"KV cache dtype {kv} with multi-head latent attention"
            self._refuse("PP423", message, _KV, "model.multi_latent_attention")

    # Parallelism and numbers ----------------------------------------------------------------------
    def _parallel(self) -> None:
        """Source: vllm@0.33.0:vllm/config/model.py:1537-1568; vllm/config/parallel.py:563-593."""
        rollout = self.plan.rollout
        for message, field in out_of_range(self.plan):
            self._refuse("PP415", message, field)
        tensor = rollout.tensor_parallel_size or 1
        heads = _whole(self.text.get("num_attention_heads"))
        if heads is not None and tensor > 0 and heads % tensor:
            self._refuse(
                "PP416",
                f"{heads} attention heads cannot be shared by {tensor} tensor-parallel ranks",
                "rollout.tensor_parallel_size",
                "model.num_attention_heads",
            )
        if rollout.enable_expert_parallel and self._experts() == 0:
            message = "expert parallelism of a model without experts"
            self._refuse("PP445", message, "rollout.enable_expert_parallel", "model.num_experts")
        if rollout.enable_eplb and not rollout.enable_expert_parallel:
            message = "expert load balancing without expert parallelism"
            self._refuse("PP442", message, "rollout.enable_eplb", "rollout.enable_expert_parallel")
        elif rollout.enable_eplb and tensor * (rollout.data_parallel_size or 1) <= 1:
            message = "expert load balancing needs tensor or data parallelism"
            self._refuse("PP417", message, "rollout.enable_eplb", "rollout.tensor_parallel_size")

    def _experts(self) -> int | None:
        for key in ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"):
            if key in self.text:
                return _whole(self.text[key])
        if "block_configs" in self.text or self.text_type not in model_types():
            return None
        return model_types()[self.text_type or ""].experts

    def _mla(self) -> bool:
        row = model_types().get(self.text_type or "")
        switched_off = _flag(self._env("VLLM_MLA_DISABLE"))
        return bool(row and row.mla and self.text.get("kv_lora_rank")) and not switched_off

    def _env(self, name: str) -> str | None:
        for role in (self.plan.env.vllm_worker, self.plan.env.rollout_engine, self.plan.env.all):
            if role is not None and name in role:
                return role[name]
        return None

    def _gpu(self) -> str:
        return "hardware.gpu" if self.target.gpu else "hardware.compute_capability"

    # Attention ------------------------------------------------------------------------------------
    def _attention(self, dtype: str | None, kv: str) -> AttentionChoice | None:
        capability = self.target.compute_capability
        asked = self.plan.rollout.attention_backend
        head_size = self._head_size()
        sparse = "index_topk" in self.text
        block = self.extra.get("block_size")
        choice = choose_attention(
            asked,
            capability,
            head_size=None if sparse else head_size,
            dtype=dtype,
            kv_cache_dtype=kv,
            mla=self._mla(),
            block_size=block if type(block) is int else None,
            batch_invariant=_flag(self._env("VLLM_BATCH_INVARIANT")),
        )
        if choice is not None and choice.problem is not None:
            rule = "PP426" if asked and asked.lower() != "auto" else "PP425"
            field = "rollout.attention_backend" if rule == "PP426" else _KV
            stage: Stage = "engine_config" if choice.unknown else "attention_backend"
            self._refuse(rule, choice.problem, field, self._gpu(), stage=stage)
        return choice

    def _head_size(self) -> int | None:
        """Source: .../vllm/transformers_utils/model_arch_config_convertor.py (get_head_size)."""
        if self._mla():
            rank = _whole(self.text.get("kv_lora_rank"))
            rope = _whole(self.text.get("qk_rope_head_dim"))
            return None if rank is None or rope is None else rank + rope
        found = _whole(self.text.get("head_dim"))
        if found:
            return found
        row = model_types().get(self.text_type or "")
        if row is None or row.head_dim is None:
            return None
        if row.head_dim != "derived" and "head_dim" not in self.text:
            return row.head_dim
        hidden = _whole(self.text.get("hidden_size"))
        heads = _whole(self.text.get("num_attention_heads"))
        return hidden // heads if hidden and heads else None


def out_of_range(plan: PrecisionPlan) -> Iterator[tuple[str, str]]:
    """``(message, plan field)`` of engine arguments outside of what the configuration takes."""
    extra = plan.launch.extra_args or {}
    for dest, limit in limits().items():
        value = getattr(plan.rollout, dest, None)
        field = f"rollout.{dest}"
        if value is None:
            value, field = extra.get(dest), "launch.extra_args"
        if not isinstance(value, (int, float)):
            continue
        broken = limit.broken(value)
        if broken is not None:
            yield f"{dest} is {value}; it must be {broken}", field


_STATE_IN_FLOAT32 = ("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM")


def _overridden(config: Mapping[str, Any], plan: PrecisionPlan) -> Mapping[str, Any]:
    """``config.json`` with the flat keys of ``--hf-overrides`` in place."""
    overrides = (plan.launch.extra_args or {}).get("hf_overrides")
    if not isinstance(overrides, Mapping):
        return config
    return {**config, **overrides}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _flag(text: str | None) -> bool:
    """``bool(int(text))``, as vLLM reads these variables; another text stops it elsewhere."""
    try:
        return bool(int(text or "0"))
    except ValueError:
        return False

"""What vLLM makes of its arguments and a checkpoint's configuration, step by step as it does.

The counterpart of ``effective`` for the rollout engine. It needs the model's ``config.json``
(a folder that was read, or a configuration given beside a command line) and holds for the release
whose code was followed. What is not known stays ``None``, and nothing is refused because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.vllm import kv_defaults, kv_dtypes, quant_names, state_dtype_of
from precision_plan.facts.vllm_backends import attention_backend
from precision_plan.facts.vllm_options import is_release
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.facts.vllm_selection import Layer
from precision_plan.plan.checkpoint_files import CheckpointFiles
from precision_plan.plan.diagnostic import Stage
from precision_plan.plan.engine_attention import AttentionChoice, choose_attention
from precision_plan.plan.engine_config import config_refusal
from precision_plan.plan.engine_method import kv_dtype_of, method_of
from precision_plan.plan.engine_model import DTYPES, ServedModel
from precision_plan.plan.engine_parallel import parallel_refusals
from precision_plan.plan.engine_serving import serving_refusals
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import Target
from precision_plan.plan.unknown import NotKnown, is_reference, look_up


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
        self.vllm = target.package("vllm") or ""
        self.extra: Mapping[str, Any] = look_up(plan.launch.extra_args, "launch.extra_args")
        self.model = ServedModel(checkpoint, self.extra.get("hf_overrides"))
        self.latent = self.model.latent and not _flag(self._env("VLLM_MLA_DISABLE"))
        self.refusals: list[Refusal] = []

    def engine(self) -> Engine:
        rollout = self.plan.rollout
        dtype = self._dtype()
        method = self._method()
        kv = self._kv_dtype()
        state = self._state_dtype()
        for refusals in (parallel_refusals, serving_refusals):
            for rule, message, field, premise in refusals(self.plan, self.model):
                self._refuse(rule, message, field, *((premise,) if premise else ()))
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
        attention = None if self.refusals else self._attention(dtype, kv)
        return Engine(dtype, method, kv, state, attention, tuple(self.refusals))

    def _refuse(
        self, rule: str, message: str, field: str, *premises: str, stage: Stage = "engine_config"
    ) -> None:
        self.refusals.append(Refusal(rule, message, field, premises, stage))

    def _env(self, name: str) -> str | None:
        for role in (self.plan.env.vllm_worker, self.plan.env.rollout_engine, self.plan.env.all):
            if role is not None and name in role:
                if is_reference(role[name]):
                    raise NotKnown(f"env.all.{name}")
                return role[name]
        return None

    def _gpu(self) -> str:
        return "hardware.gpu" if self.target.gpu else "hardware.compute_capability"

    # Data types -------------------------------------------------------------------------------
    def _dtype(self) -> str | None:
        """Source: vllm@0.33.0:vllm/config/model.py:2398-2518."""
        asked = (self.plan.rollout.dtype or "auto").lower()
        if self.target.framework == "vime":  # it decides the dtype itself
            asked = "float16" if self.plan.training.fp16 else "auto"
        stored, unreadable = self.model.stored_dtype()
        if unreadable is not None:
            message = f"the model's configuration has the dtype {unreadable}, which torch has not"
            self._refuse("PP418", message, _HF_DTYPE)
        if asked != "auto":
            dtype = DTYPES.get(asked)
            if dtype == "float16" and not self.model.takes_float16:
                message = f"the model type {self.model.model_type} does not run in float16"
                self._refuse("PP408", message, _DTYPE, "model.hf_model_type")
            return dtype
        supported = self._supported_dtypes()
        if self.extra.get("runner") == "pooling":
            return None  # pooling models prefer float16 where the file has float32
        if self.model.dtype_overridden:  # vllm@0.33.0:vllm/config/model.py:2441-2470
            return None if supported is None else supported[0]
        if supported is None or stored is None:
            return stored if stored in {"bfloat16", "float16"} and supported is None else None
        wanted = supported[0] if DTYPES.get(stored) == "float32" else DTYPES.get(stored)
        return wanted if wanted in supported else supported[0]

    def _supported_dtypes(self) -> tuple[str, ...] | None:
        """vllm@0.33.0:vllm/platforms/cuda.py:257-266."""
        capability = self.target.compute_capability
        if capability is None:
            return None
        names = ("bfloat16", "float16", "float32")
        found = names if capability >= (8, 0) else names[1:]
        return found if self.model.takes_float16 else tuple(n for n in found if n != "float16")

    # The quantization method --------------------------------------------------------------------
    def _method(self) -> str | None:
        """Source: vllm@0.33.0:vllm/config/model.py:1383-1486."""
        asked = self.plan.rollout.quantization
        flag = asked.lower() if isinstance(asked, str) else None
        if not self.model.readable:
            self._refuse("PP413", "quantization_config is no object", _CONFIG.rpartition(".")[0])
            return None
        found = method_of(
            self.model.raw, flag, self.model.model_type, self.target.compute_capability
        )
        if found.problem is not None:
            self._refuse(found.rule, found.problem, _FLAG if found.by_flag else _CONFIG)
        if found.problem is not None or found.name is None:
            return None
        return self._known_method(found.name, _FLAG if flag == found.name else _CONFIG)

    def _known_method(self, name: str, field: str) -> str | None:
        row = quant_names().get(name)
        if row is None or self.vllm not in row.versions:
            self._refuse("PP401", f"vLLM {self.vllm} has no quantization method {name}", field)
            return None
        deprecated = row.deprecated is not None and self.vllm in row.deprecated
        if deprecated and not self.plan.rollout.allow_deprecated_quantization:
            self._refuse("PP402", f"vLLM refuses the deprecated method {name}", field)
            return None
        if self.target.platform == "rocm" and (row.rocm is None or self.vllm not in row.rocm):
            self._refuse("PP406", f"vLLM has no {name} on ROCm", field)
            return None
        return name

    def _load_config(self, method: str, dtype: str | None) -> None:
        """Source: vllm@0.33.0:vllm/config/vllm.py:916-950."""
        raw = self.model.raw
        field = _CONFIG if raw is not None else _FLAG
        found = config_refusal(method, raw, self.plan.rollout.quantization_config)
        if found.problem is not None:
            rule = "PP413" if raw is not None else "PP414"
            self._refuse(rule, found.problem, _CONFIG.rpartition(".")[0] if raw else field)
            return
        name = quant_names()[found.checked_as].resolves if found.checked_as != "mxfp8" else "mxfp8"
        row = quant_methods().get(name)
        if row is None:
            return
        capability, least = self.target.compute_capability, row.min_capability(self.vllm)
        if capability is not None and least is not None and capability < least:
            message = f"{method} needs compute capability {least[0]}.{least[1]}"
            self._refuse("PP405", message, field, self._gpu())
        elif dtype is not None and dtype not in row.act_dtypes:
            premise = _DTYPE if self.plan.rollout.dtype else _HF_DTYPE
            self._refuse("PP407", f"{method} does not compute in {dtype}", field, premise)

    # Caches -------------------------------------------------------------------------------------
    def _kv_dtype(self) -> str:
        """Source: vllm@0.33.0:vllm/utils/torch_utils.py:443-516; .../vllm/config/cache.py."""
        asked = self.plan.rollout.kv_cache_dtype or self.extra.get("kv_cache_dtype") or "auto"
        found = kv_dtype_of(self.model.raw) if asked == "auto" else asked
        found = self._kv_default(found)
        row = kv_dtypes().get(found)
        if row is None or self.vllm not in row.versions:
            self._refuse("PP421", f"vLLM {self.vllm} has no KV cache dtype {found}", _KV)
        return found

    def _kv_default(self, found: str) -> str:
        capability = self.target.compute_capability
        for row in kv_defaults():
            if found != row.asked or self.model.architecture not in row.architectures:
                continue
            if row.needs is not None and row.needs not in self.model.text:
                continue
            if row.min_cc is None:
                return row.becomes
            least, below = row.min_cc, row.below_cc or "99.0"
            if capability and parse_capability(least) <= capability < parse_capability(below):
                return row.becomes
        return found

    def _state_dtype(self) -> str:
        """A few families replace ``auto``; others decide when the layers are built.

        Source: vllm@0.33.0:vllm/model_executor/models/config.py:812-842,953-985.
        """
        asked = self.plan.rollout.mamba_ssm_cache_dtype or "auto"
        own = asked == "auto" and self.extra.get("model_impl") != "transformers"
        row = state_dtype_of(self.model.architecture) if own else None
        if row is None or row.hf_key is None:
            return asked
        stored = self.model.text.get(row.hf_key, self.model.config.get(row.hf_key))
        return stored if isinstance(stored, str) else row.default or _STATE_DEFAULT

    def _floats(self, kv: str, dtype: str | None) -> None:
        if kv in {"float16", "bfloat16"} and dtype is not None and dtype != kv:
            premise = _DTYPE if self.plan.rollout.dtype else _HF_DTYPE
            self._refuse("PP422", f"KV cache in {kv}, model in {dtype}", _KV, premise)
        if kv.startswith("nvfp4") and not kv.endswith("_ds_mla") and self.latent:
            message = f"KV cache dtype {kv} with multi-head latent attention"
            self._refuse("PP423", message, _KV, "model.multi_latent_attention")

    # Attention ------------------------------------------------------------------------------------
    def _attention(self, dtype: str | None, kv: str) -> AttentionChoice | None:
        """The selection for a plain layer, and what the model's own layers would add to it."""
        asked = self.plan.rollout.attention_backend
        settings = self.extra.get("attention_config")
        config: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
        if self.extra.get("attention_backend_given") and config.get("backend") is not None:
            message = "the attention backend is given twice"
            self._refuse("PP419", message, "rollout.attention_backend")
            return None
        by_kind = config.get("backend_per_kind")
        if isinstance(by_kind, Mapping):
            own = by_kind.get("mla_attention" if self.latent else "full_attention")
            asked = own if isinstance(own, str) else asked
        prefill = self.extra.get("prefill_context_parallel_size", 1)
        if prefill != 1 and not self.latent and self.model.attends:
            message = f"no attention backend shares prefill among {prefill} context-parallel ranks"
            self._refuse("PP436", message, "launch.extra_args", stage="attention_backend")
            return None
        if prefill != 1 or not _UNDECIDED.isdisjoint(config):
            return None
        capability, model = self.target.compute_capability, self.model
        layer = self._layer(dtype, kv)
        choice = choose_attention(asked, capability, layer)
        if dtype is None and choice is None:
            choice = self._in_every_dtype(asked, kv)
        if layer is None or not (model.sparse or model.sinks):
            self._report(choice, asked, kv)
            return choice
        own = choose_attention(
            asked, capability, layer._replace(sparse=model.sparse, sinks=model.sinks)
        )
        refused = own is not None and own.problem is not None
        if choice is None or choice.problem is None:
            self._report(own._replace(later=True) if own and refused else choice, asked, kv)
        elif refused:
            self._report(choice, asked, kv)
        return None if model.sparse else choice

    def _in_every_dtype(self, asked: str | None, kv: str) -> AttentionChoice | None:
        """The refusal that comes whatever the shards' dtype is, if there is one."""
        capability, found = self.target.compute_capability, None
        if self.model.sparse or self.model.sinks:
            return None
        for dtype in self._supported_dtypes() or ():
            found = choose_attention(asked, capability, self._layer(dtype, kv))
            if found is None or found.problem is None:
                return None
        return found

    def _layer(self, dtype: str | None, kv: str) -> Layer | None:
        """What a full-attention layer asks for; ``None`` if that is not known."""
        size = self.model.head_size(self.latent)
        if not size or dtype is None or not self.model.attends:
            return None
        block = self.extra.get("block_size")
        return Layer(
            size,
            dtype,
            kv,
            self.latent,
            block if type(block) is int else None,
            _flag(self._env("VLLM_BATCH_INVARIANT")),
        )

    def _built(self, name: str, kv: str) -> None:
        """Some backends ask for more when a layer is built than when they are selected."""
        row, capability = attention_backend(name, "cuda"), self.target.compute_capability
        least = row.build_min_cc.get(kv) if row is not None else None
        if least is not None and capability is not None and capability < least:
            message = f"{name} keeps a KV cache in {kv} from {least[0]}.{least[1]} only"
            self._refuse("PP425", message, _KV, self._gpu(), stage="build")

    def _report(self, choice: AttentionChoice | None, asked: str | None, kv: str) -> None:
        if choice is None:
            return
        if choice.problem is None:
            self._built(choice.name or "", kv)
            return
        rule = "PP426" if asked and asked.lower() != "auto" else "PP425"
        field = "rollout.attention_backend" if rule == "PP426" else _KV
        stage: Stage = "attention_backend"
        if choice.unknown or choice.later:
            stage = "engine_config" if choice.unknown else "build"
        self._refuse(rule, choice.problem, field, self._gpu(), stage=stage)


_UNDECIDED = frozenset({"flash_attn_version", "use_non_causal", "hisparse_config"})
"""Attention settings that change which backend suits, in ways that the facts do not hold."""

_STATE_DEFAULT = "float32"
"""``mamba_ssm_dtype`` of the Qwen3.5 configuration classes where the file is silent."""


def _flag(text: str | None) -> bool:
    """``bool(int(text))``, as vLLM reads these variables; another text stops it elsewhere."""
    try:
        return bool(int(text or "0"))
    except ValueError:
        return False

"""The served model as vLLM's configuration sees it: what ``config.json`` says and implies.

Source: vllm@0.33.0:vllm/transformers_utils/model_arch_config_convertor.py; the defaults are those
of the model type's configuration class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_plan.facts.hf_config import model_types
from precision_plan.facts.vllm import architectures
from precision_plan.plan.checkpoint_files import CheckpointFiles

DTYPES: Mapping[str, str] = {
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
}
"""Dtypes that an engine computes in, by every name that they have."""

_TORCH_DTYPES = frozenset(
    {
        *("float32", "float", "float64", "double", "float16", "half", "bfloat16", "int8", "uint8"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("int16", "short", "int32", "int", "int64", "long", "bool", "float4_e2m1fn_x2"),
    }
)
"""Texts that transformers finds as a dtype in torch."""

_DTYPE_KEYS = ("dtype", "torch_dtype")
_WITH_SINKS = ("gpt_oss",)
_WITHOUT_ATTENTION = ("Mamba", "FalconMamba")
_EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


class ServedModel:
    """One model's configuration, with the flat keys of ``--hf-overrides`` in place."""

    def __init__(self, checkpoint: CheckpointFiles, overrides: Any) -> None:
        self.config = checkpoint.config
        self.raw = checkpoint.quantization_config
        # An override sets a text where vLLM compares dtypes, and no dtype is found in it.
        self.dtype_overridden = False
        if isinstance(overrides, Mapping):
            self.dtype_overridden = any(isinstance(overrides.get(key), str) for key in _DTYPE_KEYS)
            kept = {key: value for key, value in overrides.items() if key not in _DTYPE_KEYS}
            self.config = {**self.config, **kept}
            replaced = self.config.get("quantization_config")
            self.raw = replaced if isinstance(replaced, Mapping) else self.raw
        nested = self.config.get("text_config")
        self.text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else self.config
        self.model_type = _text(self.config.get("model_type"))
        self.text_type = _text(self.text.get("model_type")) or self.model_type
        names = self.config.get("architectures")
        first = names[0] if isinstance(names, (list, tuple)) and names else None
        self.architecture = _text(first)

    @property
    def readable(self) -> bool:
        """False if ``quantization_config`` is there and no object."""
        written = self.config.get("quantization_config")
        return written is None or isinstance(written, Mapping)

    @property
    def takes_float16(self) -> bool:
        """False for the families that vLLM does not run in float16."""
        refused = (row for row in architectures() if not row.float16)
        return not any(self.model_type in row.model_types for row in refused)

    def stored_dtype(self) -> tuple[str | None, str | None]:
        """``(torch dtype, None)`` of the file, or ``(None, what stands there)`` if it is none.

        A file that names no dtype leaves it to the shards, which are not known here.
        """
        vision = self.config.get("vision_config")
        for place in (self.config, self.text, vision if isinstance(vision, Mapping) else {}):
            for key in _DTYPE_KEYS:
                value = place.get(key)
                if isinstance(value, str):
                    name = value.removeprefix("torch.")
                    return (name, None) if name in _TORCH_DTYPES else (None, value)
        return None, None

    def experts(self) -> int | None:
        """Number of experts, also by default; ``None`` if it is not known."""
        for key in _EXPERT_KEYS:
            if key in self.text:
                return whole(self.text[key])
        if "block_configs" in self.text or self.text_type not in model_types():
            return None
        return model_types()[self.text_type or ""].experts

    @property
    def latent(self) -> bool:
        """True if vLLM treats the model as one with multi-head latent attention."""
        row = model_types().get(self.text_type or "")
        return bool(row is not None and row.mla and self.text.get("kv_lora_rank"))

    @property
    def sparse(self) -> bool:
        """True if an indexer chooses the keys of each layer."""
        return "index_topk" in self.text

    @property
    def sinks(self) -> bool:
        """True if the attention layers have sinks."""
        return self.text_type in _WITH_SINKS

    @property
    def attends(self) -> bool:
        """False for models of recurrent layers alone."""
        return not (self.architecture or "").startswith(_WITHOUT_ATTENTION)

    def head_size(self, latent: bool) -> int | None:
        """Size of a head in the cache: that of the latent vector if ``latent``."""
        if latent:
            rank = whole(self.text.get("kv_lora_rank"))
            rope = whole(self.text.get("qk_rope_head_dim"))
            return None if rank is None or rope is None else rank + rope
        found = whole(self.text.get("head_dim"))
        if found:
            return found
        row = model_types().get(self.text_type or "")
        if row is None or row.head_dim is None:
            return None
        if isinstance(row.head_dim, int) and "head_dim" not in self.text:
            return row.head_dim
        hidden = whole(self.text.get("hidden_size"))
        heads = whole(self.text.get("num_attention_heads"))
        return hidden // heads if hidden and heads else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def whole(value: Any) -> int | None:
    """A whole number, or ``None`` for anything else."""
    return value if type(value) is int else None

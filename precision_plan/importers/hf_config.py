"""A Hugging Face ``config.json`` -> the plan's ``model`` section and its quantization config.

The mapping comes from anybody's file: a value of the wrong type counts as absent, and nothing here
raises. What the file leaves to the model's code (a default that is not written) stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, get_args

from precision_plan.facts.hf_config import KeyKind, config_keys
from precision_plan.facts.vllm_quant import quant_algo_of
from precision_plan.plan import dtypes
from precision_plan.plan.serving import IGNORE_KEYS

_EMPTY: Mapping[str, Any] = {}
_MAX_LAYERS = 10_000
_RECURRENT_TYPES = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "conv"})
_ATTENTION_TYPES = frozenset({"full_attention", "sliding_attention", "attention", "hybrid"})
_RECURRENT_LETTER, _ATTENTION_LETTER = "M", "*"
"""Letters of ``hybrid_override_pattern``; ``-`` and ``E`` are MLP and expert layers."""


class FoundConfig(NamedTuple):
    """A raw quantization config and the dotted key of ``config.json`` where it stands."""

    config: Mapping[str, Any] | None
    key: str | None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's configuration: nested in multimodal wrappers, else the whole."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def quantization_config_in(config: Mapping[str, Any]) -> FoundConfig:
    """The quantization config that vLLM finds in ``config.json``; nested ones come last.

    Source: vllm@0.33.0:vllm/transformers_utils/model_arch_config_convertor.py
    (get_quantization_config).
    """
    for prefix, place in (("", config), ("text_config.", config.get("text_config"))):
        if not isinstance(place, Mapping):
            continue
        for key in ("quantization_config", "compression_config"):
            found = place.get(key)
            if isinstance(found, Mapping):
                return FoundConfig(found, prefix + key)
    return FoundConfig(None, None)


# Values ---------------------------------------------------------------------------------------
def _whole(value: Any, least: int) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= least else None


def _number(value: Any) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _dtype(value: Any) -> str | None:
    text = value.removeprefix("torch.") if isinstance(value, str) else None
    return text if text in get_args(dtypes.HfDtype) else None


_READERS: Mapping[KeyKind, Callable[[Any], Any]] = {
    "positive": lambda value: _whole(value, 1),
    "count": lambda value: _whole(value, 0),
    "number": _number,
    "text": _text,
    "flag": lambda value: value if isinstance(value, bool) else None,
    "dtype": _dtype,
}


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, tuple[str, ...], Callable[[Any], Any]], ...]:
    return tuple(
        (row.field.partition(".")[2], row.keys, _READERS[row.kind]) for row in config_keys()
    )


# The model ------------------------------------------------------------------------------------
def model_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the plan's ``model`` section by field name, of the right types."""
    inner = text_config(config)
    found: dict[str, Any] = {}
    places = (inner,) if inner is config else (inner, config)
    for field, keys, read in _table():
        value = _first(places, keys, read)
        if value is not None:
            found[field] = value
    found.update(_names(config, inner))
    found.update(_attention(inner, found))
    found.update(_rope(inner, found))
    found.update(_experts(inner, found))
    found.update(_hybrid(inner, found))
    return found


def _first(
    places: tuple[Mapping[str, Any], ...], keys: tuple[str, ...], read: Callable[[Any], Any]
) -> Any:
    for place in places:
        for key in keys:
            if key in place:
                value = read(place[key])
                if value is not None:
                    return value
    return None


def _names(config: Mapping[str, Any], inner: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for place in (config, inner):
        names = place.get("architectures")
        if isinstance(names, (list, tuple)) and names and isinstance(names[0], str):
            yield "hf_architecture", names[0]
            break
    if (name := _text(config.get("model_type"))) is not None:
        yield "hf_model_type", name
    for place in (config, inner):
        dtype = _dtype(place.get("dtype")) or _dtype(place.get("torch_dtype"))
        if dtype is not None:
            yield "hf_torch_dtype", dtype
            break
    if "rms_norm_eps" in inner:
        yield "normalization", "RMSNorm"
    if _text(inner.get("hidden_act")) in {"silu", "swish"} and "intermediate_size" in inner:
        yield "swiglu", True
    tied = inner.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    if isinstance(tied, bool):
        yield "untie_embeddings_and_output_weights", not tied


def _attention(inner: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    heads, groups = found.get("num_attention_heads"), found.get("num_query_groups")
    if "kv_lora_rank" in found:
        yield "multi_latent_attention", True
    elif heads is not None:
        yield "multi_latent_attention", False
        if groups is not None:
            yield "group_query_attention", groups < heads
    hidden = found.get("hidden_size")
    if heads is None or hidden is None or "kv_channels" in found or "kv_lora_rank" in found:
        return
    if hidden % heads == 0:
        yield "kv_channels", hidden // heads


def _rope(inner: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """transformers 5 keeps the base and the fraction below ``rope_parameters``."""
    parameters = inner.get("rope_parameters")
    if not isinstance(parameters, Mapping):
        return
    for field, key in (("rotary_base", "rope_theta"), ("rotary_percent", "partial_rotary_factor")):
        value = _number(parameters.get(key))
        if field not in found and value is not None:
            yield field, value


def _experts(inner: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if "num_experts" not in found:
        return
    width = found.get("moe_ffn_hidden_size")
    if width is None and (width := found.get("ffn_hidden_size")) is not None:
        yield "moe_ffn_hidden_size", width
    shared = _whole(inner.get("n_shared_experts"), 1)
    unsaid = "moe_shared_expert_intermediate_size" not in found
    if unsaid and shared is not None and width is not None:
        yield "moe_shared_expert_intermediate_size", shared * width
    pattern = _expert_layers(inner, found.get("num_layers"))
    if pattern is not None:
        yield "moe_layer_freq", pattern


def _expert_layers(inner: Mapping[str, Any], layers: int | None) -> tuple[int, ...] | None:
    """Which layers have experts, as zeros and ones; ``None`` where every layer has them."""
    if layers is None or layers > _MAX_LAYERS:
        return None
    first = _whole(inner.get("first_k_dense_replace"), 0) or 0
    step = _whole(inner.get("decoder_sparse_step"), 1) or _whole(inner.get("moe_layer_freq"), 1)
    listed = inner.get("mlp_only_layers")
    dense = set(filter(_is_index, listed)) if isinstance(listed, (list, tuple)) else set()
    by_step = "decoder_sparse_step" in inner
    pattern = tuple(
        int(index >= first and index not in dense and (index + by_step) % (step or 1) == 0)
        for index in range(layers)
    )
    return None if all(pattern) else pattern


def _is_index(value: Any) -> bool:
    return type(value) is int


def _hybrid(inner: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    counts = _kinds_of_layers(inner, found.get("num_layers"))
    if counts is not None and counts[0]:
        yield "linear_attention_layers", counts[0]
        yield "full_attention_layers", counts[1]


def _kinds_of_layers(inner: Mapping[str, Any], layers: int | None) -> tuple[int, int] | None:
    """How many layers keep a recurrent state, and how many attend."""
    types = inner.get("layer_types", inner.get("layers_block_type"))
    if isinstance(types, (list, tuple)) and types:
        names = [name for name in types if isinstance(name, str)]
        return (
            sum(name in _RECURRENT_TYPES for name in names),
            sum(name in _ATTENTION_TYPES for name in names),
        )
    pattern = inner.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern.count(_RECURRENT_LETTER), pattern.count(_ATTENTION_LETTER)
    interval = _whole(inner.get("full_attention_interval"), 1)
    if interval is not None and layers is not None:
        return layers - layers // interval, layers // interval
    return None


# The quantization config ------------------------------------------------------------------------
def quantization_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Values of ``checkpoint.quantization_config`` by field name, of the right types.

    Whatever the layout: compressed-tensors keeps bits and groups below ``config_groups`` (taken
    where all groups agree), ModelOpt writes flat or below ``quantization``, AWQ and GPTQ have names
    of their own for the same things.
    """
    nested = raw.get("quantization")
    inner: Mapping[str, Any] = nested if isinstance(nested, Mapping) else _EMPTY
    found = dict(_plain(raw, inner))
    found.update(_grouped(raw, found))
    method = found.get("quant_method")
    if method is None:
        producer = raw.get("producer")
        if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
            found["quant_method"] = "modelopt"
    return found


_TEXTS = ("quant_method", "format", "fmt", "scale_fmt", "kv_cache_quant_algo", "scale_tensor")
_FLAGS = ("desc_act", "zero_point")
_SIZES: Mapping[str, tuple[str, ...]] = {
    "bits": ("bits", "w_bit", "weight_bits"),
    "group_size": ("group_size", "q_group_size"),
}


def _plain(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    def first(read: Callable[[Any], Any], *keys: str) -> Any:
        return _first((raw, inner), keys, read)

    for key in _TEXTS:
        if (text := first(_text, key)) is not None:
            yield key, text
    if (algorithm := quant_algo_of(raw)) is not None:
        yield "quant_algo", algorithm
    if (scheme := first(_text, "activation_scheme")) in get_args(dtypes.ActivationScheme):
        yield "activation_scheme", scheme
    if (blocks := first(_sizes, "weight_block_size")) is not None:
        yield "weight_block_size", blocks
    for field, keys in _SIZES.items():
        if (size := first(_READERS["positive"], *keys)) is not None:
            yield field, size
    for key in _FLAGS:
        if (flag := first(_READERS["flag"], key)) is not None:
            yield key, flag
    if (symmetric := first(_READERS["flag"], "sym", "symmetric")) is not None:
        yield "symmetric", symmetric
    for key in IGNORE_KEYS:
        if (names := first(_strings, key)) is not None:
            yield key, names


def _sizes(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, (list, tuple)) and all(_whole(item, 1) is not None for item in value):
        return tuple(value)
    return None


def _strings(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, (list, tuple)):
        return tuple(item for item in value if isinstance(item, str))
    return None


def _grouped(raw: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the weights of every entry of ``config_groups`` agree on."""
    groups = raw.get("config_groups")
    if not isinstance(groups, Mapping):
        return
    weights = [
        part
        for group in groups.values()
        if isinstance(group, Mapping) and isinstance(part := group.get("weights"), Mapping)
    ]
    for field, key, read in (
        ("bits", "num_bits", _READERS["positive"]),
        ("group_size", "group_size", _READERS["positive"]),
        ("symmetric", "symmetric", _READERS["flag"]),
        ("actorder", "actorder", _order),
        ("weight_block_size", "block_structure", _sizes),
    ):
        values = [read(part.get(key)) for part in weights]
        agreed = bool(values) and all(value == values[0] for value in values)
        if agreed and values[0] is not None and field not in found:
            yield field, values[0]


def _order(value: Any) -> str | bool | None:
    return value if isinstance(value, (str, bool)) else None

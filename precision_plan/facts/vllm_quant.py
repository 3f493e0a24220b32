"""vLLM quantization methods: what each reads, what it needs, and which one a config selects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.versions import VersionRange

Capability = tuple[int, int]


class QuantMethod(NamedTuple):
    """One method that a checkpoint can select.

    ``min_cc`` gives the least compute capability by version and ``native_cc`` the one from
    which activations are quantized, too (below, the weights alone are). ``ignore_keys`` are the
    keys that hold the layers to leave alone, in the order of precedence; ``ignore_match`` tells
    how their entries match; ``unread_keys`` are keys that other methods read and this one
    drops in silence. ``head`` says when the output head is quantized: never, if the key
    ``lm_head`` is true, if a target names it, or like any linear layer. ``groups`` and ``bits``
    are the only ones that it takes, where it leaves the others to another method; ``refused`` are
    the releases that stop at a checkpoint of it. The tensors are in ``facts.checkpoint_tensors``.
    """

    name: str
    versions: VersionRange
    min_cc: tuple[tuple[VersionRange, Capability], ...]
    act_dtypes: tuple[str, ...]
    required_keys: tuple[str, ...]
    optional_keys: tuple[str, ...]
    ignore_keys: tuple[str, ...]
    ignore_match: Literal["exact", "substring", "wildcard", "regex", "none"]
    source: str
    unread_keys: tuple[str, ...] = ()
    native_cc: Capability | None = None
    head: Literal["never", "lm_head", "targets", "linear"] | None = None
    note: str | None = None
    groups: tuple[int, ...] = ()
    bits: tuple[int, ...] = ()
    refused: tuple[VersionRange, ...] = ()

    def min_capability(self, vllm: str | None) -> Capability | None:
        """Least compute capability at one version.

        ``None`` if the version is unknown and the versions differ.
        """
        found = {cc for span, cc in self.min_cc if vllm is None or vllm in span}
        return found.pop() if len(found) == 1 else None


class Template(NamedTuple):
    """A ``quantization_config`` that vLLM loads, without its ignore list.

    The ignore list belongs under ``ignore_key``; ``facts.checkpoint_tensors`` has the tensors of
    ``weight_format``.
    """

    name: str
    weight_format: str
    method: str
    config: Mapping[str, Any]
    ignore_key: str
    source: str
    note: str | None = None


class CtScheme(NamedTuple):
    """A compressed-tensors scheme with its least (and, rarely, greatest) compute capability.

    ``cls`` is the class of vLLM's sources.
    """

    scheme: str
    cls: str
    min_cc: Capability
    versions: VersionRange
    source: str
    max_cc: Capability | None = None
    note: str | None = None


@lru_cache(maxsize=1)
def quant_methods() -> Mapping[str, QuantMethod]:
    """Every method by the name that vLLM reports."""
    return MappingProxyType({row["name"]: _method(row) for row in table("vllm_methods")})


def _method(row: Mapping[str, Any]) -> QuantMethod:
    native = row.get("native_cc")
    return record(
        QuantMethod,
        {
            **row,
            "min_cc": tuple(
                (VersionRange(span["since"], span["until"]), parse_capability(span["min_cc"]))
                for span in row["min_cc"]
            ),
            "native_cc": parse_capability(native) if native else None,
            "refused": tuple(
                VersionRange(span["since"], span["until"]) for span in row.get("refused", ())
            ),
        },
    )


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Template]:
    """Known good ``quantization_config`` texts by name."""
    return MappingProxyType({row["name"]: record(Template, row) for row in table("vllm_templates")})


@lru_cache(maxsize=1)
def ct_schemes() -> Mapping[str, CtScheme]:
    """compressed-tensors schemes by name."""
    return MappingProxyType({row["scheme"]: _scheme(row) for row in table("vllm_ct_schemes")})


def _scheme(row: Mapping[str, Any]) -> CtScheme:
    limits = {key: parse_capability(row[key]) for key in ("min_cc", "max_cc") if key in row}
    return record(CtScheme, {**row, **limits})


def quant_algo_of(config: Mapping[str, Any]) -> str | None:
    """``quant_algo`` of a ModelOpt config, flat or nested under ``quantization``; upper case."""
    algo = config.get("quant_algo")
    nested = config.get("quantization")
    if algo is None and isinstance(nested, Mapping):
        algo = nested.get("quant_algo")
    return algo.upper() if isinstance(algo, str) else None


def resolve_method(config: Mapping[str, Any], model_type: str | None = None) -> str | None:
    """The method that vLLM selects for a checkpoint's ``quantization_config``.

    ``model_type`` is that of ``config.json``; a few methods depend on it. ``None`` if no method
    takes the config. A file without ``quant_method`` that ModelOpt wrote (``producer.name``)
    counts as ``modelopt``.
    """
    method = config.get("quant_method")
    producer = config.get("producer")
    if method is None and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        method = "modelopt"
    if not isinstance(method, str):
        return None
    method = method.lower()
    if method.startswith("modelopt"):
        method = "modelopt"
    algo, form = quant_algo_of(config), config.get("format")
    for row in table("vllm_resolution"):
        if row["quant_method"] == method and all(
            key not in row or value in row[key]
            for key, value in (("quant_algo", algo), ("format", form), ("model_type", model_type))
        ):
            return str(row["method"])
    return None

"""What an engine expects of a quantized layer's tensors, by the checkpoint's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.checkpoint_tensors import CheckpointTensor, checkpoint_tensors
from precision_plan.facts.vllm_quant import quant_algo_of, resolve_method


class _Row(NamedTuple):
    """Which weight format (of ``checkpoint_tensors``) a method reads under which conditions."""

    method: str
    format: str
    source: str
    quant_algo: str | None = None
    container: str | None = None
    type: str | None = None
    bits: int | None = None
    strategy: str | None = None
    blocks: bool | None = None
    static: bool = False
    activations: bool | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The tensors of one quantized linear layer of ``N`` outputs and ``K`` inputs.

    ``weight`` is the tensor that holds the weight, ``others`` the rest that must be there, and
    ``optional`` what may be there. ``group`` and ``block`` are what the configuration says;
    ``group`` is ``None`` for one scale per output.
    """

    method: str
    format: str
    weight: CheckpointTensor
    others: tuple[CheckpointTensor, ...]
    optional: tuple[CheckpointTensor, ...]
    static: bool
    group: int | None
    block: tuple[int, int]

    @property
    def names(self) -> frozenset[str]:
        """Suffixes of every tensor that a layer may have."""
        return frozenset(each.name for each in (self.weight, *self.others, *self.optional))

    @property
    def shared(self) -> int:
        """How many consecutive inputs share one scale; 1 if all of them do."""
        found = 1
        for tensor in self.others:
            for letter, parts in _dims(tensor.shape):
                if letter == "K":
                    named = {"{columns}": self.block[1], "{group}": self.group or 1}
                    found = max(found, named[parts] if parts in named else int(parts))
        return found

    def inputs(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """``(N, K)`` of a weight that is stored as ``shape``; ``None`` if it cannot be one."""
        sizes: dict[str, int] = {}
        dims = _dims(self.weight.shape)
        if len(shape) < len(dims):
            return None
        for (letter, parts), size in zip(dims, shape[-len(dims) :], strict=True):
            if letter is not None:
                sizes[letter] = size * int(parts)
            elif size != int(parts):
                return None
        return sizes["N"], sizes["K"]

    def outer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What stands before one layer's dimensions: the number of experts in one tensor."""
        return shape[: -len(_dims(self.weight.shape))]

    def shape(self, tensor: CheckpointTensor, n: int, k: int) -> tuple[int, ...] | None:
        """Shape of ``tensor`` beside a weight of ``n`` x ``k``; ``None`` if it cannot be whole."""
        found = []
        for letter, parts in _dims(tensor.shape):
            if letter is None:
                found.append(int(parts))
                continue
            size = n if letter == "N" else k
            named = {"{rows}": self.block[0], "{columns}": self.block[1], "{group}": self.group}
            part = named[parts] if parts in named else int(parts)
            if part is None:
                found.append(1)
            elif size % part and not tensor.shape.count("ceil"):
                return None
            else:
                found.append(-(-size // part))
        return tuple(found)


_DIM = re.compile(r"(?:ceil\()?([NK])(?:/(\{\w+\}|\d+))?\)?|(\d+)")


@lru_cache(maxsize=64)
def _dims(shape: str) -> tuple[tuple[str | None, str], ...]:
    """``[N, K/16]`` as ``(("N", "1"), ("K", "16"))``; a number has no letter."""
    found: list[tuple[str | None, str]] = []
    for text in shape.strip("[]").split(", "):
        match = _DIM.fullmatch(text) if text else None
        if match is not None:
            found.append((match[1], match[2] or "1") if match[1] else (None, match[3]))
    return tuple(found)


def contract_of(
    config: Mapping[str, Any], model_type: str | None = None, engine: str = "vllm"
) -> Contract | None:
    """What a ``quantization_config`` promises of every quantized linear layer.

    ``None`` where layers differ from each other or the method is not in the table.
    """
    method = resolve_method(config, model_type)
    facts = _read(config)
    if method is None or facts is None:
        return None
    for values in table("checkpoint_contracts"):
        row = record(_Row, values)
        if row.method == method and _fits(row, facts):
            return _contract(row, facts, engine)
    return None


def _fits(row: _Row, facts: Mapping[str, Any]) -> bool:
    keys = ("quant_algo", "container", "type", "bits", "strategy", "blocks")
    wanted = ((getattr(row, key), facts.get(key)) for key in keys)
    return all(value is None or value == given for value, given in wanted)


def _contract(row: _Row, facts: Mapping[str, Any], engine: str) -> Contract:
    static = row.static or bool(facts["static"])
    activations = facts["activations"] if row.activations is None else row.activations
    given = {
        "static": static,
        "activations": activations,
        "asymmetric": facts["symmetric"] is False,
        "activation_order": bool(facts["desc_act"]),
    }
    tensors = [
        each
        for each in checkpoint_tensors(row.format)
        if each.engines is None or engine in each.engines
    ]
    needed = [each for each in tensors if each.when is None or given[each.when]]
    return Contract(
        row.method,
        row.format,
        needed[0],
        tuple(needed[1:]),
        tuple(each for each in tensors if each not in needed),
        static,
        facts["group"],
        facts["block"] or (128, 128),
    )


def _read(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The keys that decide, flat, whatever the method calls them."""
    block = config.get("weight_block_size")
    found: dict[str, Any] = {
        "quant_algo": quant_algo_of(config),
        "bits": config.get("bits", config.get("w_bit")),
        "blocks": bool(block),
        "block": _pair(block),
        "static": config.get("activation_scheme") == "static",
        "symmetric": config.get("sym"),
        "activations": False,
        "desc_act": config.get("desc_act"),
        "group": _group(config.get("group_size", config.get("q_group_size"))),
    }
    groups = config.get("config_groups")
    if config.get("quant_method") == "compressed-tensors":
        schemes = list(groups.values()) if isinstance(groups, Mapping) else []
        if len(schemes) != 1 or not isinstance(schemes[0], Mapping):
            return None
        return {**found, **_scheme(schemes[0], config.get("format"))}
    return found


def _scheme(scheme: Mapping[str, Any], container: Any) -> Mapping[str, Any]:
    weights = scheme.get("weights")
    inputs = scheme.get("input_activations")
    weights = weights if isinstance(weights, Mapping) else {}
    inputs = inputs if isinstance(inputs, Mapping) else {}
    return {
        "container": scheme.get("format") or container,
        "type": weights.get("type", "int"),
        "bits": weights.get("num_bits", 8),
        "strategy": weights.get("strategy"),
        "symmetric": weights.get("symmetric", True),
        "group": _group(weights.get("group_size")),
        "block": _pair(weights.get("block_structure")),
        "static": bool(inputs) and inputs.get("dynamic") is False,
        "activations": bool(inputs),
    }


def _group(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(_group(each) for each in value):
        return int(value[0]), int(value[1])
    return None

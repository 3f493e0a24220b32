"""The layers of a checkpoint by their headers: built once, read by every rule about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from precision_plan.facts.checkpoint_contracts import Contract, contract_of
from precision_plan.facts.checkpoint_modules import module_names
from precision_plan.plan import CheckpointFiles, TensorHeader
from precision_plan.rules.checkpoint_names import FUSED, Ignored

Tensors = Mapping[str, TensorHeader]

WIDE = frozenset({"F64", "F32", "F16", "BF16"})
WEIGHTS = ("weight", "weight_packed", "qweight", "blocks")
_FUSED_NAME = re.compile(r"(gate_up_proj|down_proj|gate_proj|up_proj)_(blocks|scales|bias)")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")
_EXPERT = re.compile(r"\.experts\.\d+\.")
MTP = re.compile(r"(?:^|\.)mtp(?:_layers?|_block)?(?:\.|$)")


class Group(NamedTuple):
    """Layers whose tensors have the same names, dtypes and shapes."""

    tensors: Tensors
    names: list[str]


class CheckpointLayers:
    """Module -> its tensors by suffix, and what the configuration promises of them.

    Fused experts count as modules (``mlp.experts.gate_up_proj`` with ``blocks`` and ``scales``).
    """

    def __init__(self, checkpoint: CheckpointFiles, engine: str = "vllm") -> None:
        self.files = checkpoint
        self.engine = engine
        self.quantization: Mapping[str, Any] = checkpoint.quantization_config or {}

    @cached_property
    def modules(self) -> Mapping[str, dict[str, TensorHeader]]:
        """Every module that has tensors, in the order of the headers."""
        found: dict[str, dict[str, TensorHeader]] = {}
        for name, header in (self.files.tensors or {}).items():
            module, _, suffix = name.rpartition(".")
            if suffix.endswith(("_blocks", "_scales", "_bias")):
                match = _FUSED_NAME.fullmatch(suffix)
                if match is not None:
                    module, suffix = f"{module}.{match[1]}", match[2]
            tensors = found.get(module)
            if tensors is None:
                found[module] = {suffix: header}
            else:
                tensors[suffix] = header
        return found

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Alike layers together: what holds for one holds for all of its names."""
        found: dict[tuple[tuple[str, str, tuple[int, ...]], ...], Group] = {}
        for name, tensors in self.modules.items():
            key = tuple((suffix, head.dtype, head.shape) for suffix, head in tensors.items())
            group = found.get(key)
            if group is None:
                found[key] = Group(tensors, [name])
            else:
                group.names.append(name)
        return tuple(found.values())

    @cached_property
    def contract(self) -> Contract | None:
        """What the configuration promises of a quantized layer; ``None`` if that is not known."""
        model_type = self.files.config.get("model_type")
        return contract_of(self.quantization, model_type, self.engine)

    @cached_property
    def ignored(self) -> Ignored:
        """Which layers the configuration leaves unquantized."""
        method = self.contract.method if self.contract else None
        return Ignored(self.quantization, method, "text_config" in self.files.config)

    @cached_property
    def quantized(self) -> tuple[Group, ...]:
        """Groups whose weight is stored in fewer than 16 bits."""
        return tuple(group for group in self.groups if quantized(group.tensors))

    @cached_property
    def plain(self) -> tuple[Group, ...]:
        """Groups of matrices in 16 bits or more."""
        return tuple(group for group in self.groups if _plain(group.tensors))

    @property
    def layers(self) -> int | None:
        """``num_hidden_layers`` of the language model."""
        found = self.files.text_config.get("num_hidden_layers")
        return found if isinstance(found, int) else None

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Indices of the decoder layers that have tensors; encoders and MTP modules aside."""
        found: set[int] = set()
        for name in self.modules:
            match = _LAYER.search(name)
            if match is not None and not is_encoder(name) and not MTP.search(name):
                found.add(int(match[1]))
        return frozenset(found)

    def is_mtp(self, name: str) -> bool:
        """True for a layer of multi-token prediction: after the last layer, or named so."""
        if MTP.search(name):
            return True
        match = _LAYER.search(name)
        return bool(match and self.layers is not None and int(match[1]) >= self.layers)

    def fused_scale(self, name: str, suffix: str) -> TensorHeader | None:
        """The scale of all experts together that stands for ``suffix`` of one expert's matrix.

        transformers splits the experts' weights when it saves, and leaves their block scales as
        ``experts.gate_up_proj_scale_inv``; vLLM reads both.
        """
        match = _EXPERT.search(name)
        if match is None:
            return None
        part = name[match.end() :]
        fused = FUSED.get(part, part) + suffix.removeprefix("weight")
        return self.modules.get(f"{name[: match.start()]}.experts", {}).get(fused)

    def judged(self, groups: tuple[Group, ...]) -> Iterator[tuple[Tensors, list[str]]]:
        """Groups of linear layers of the language model, without MTP layers and encoders."""
        for tensors, names in groups:
            kept = [name for name in names if is_linear(name) and not self.is_mtp(name)]
            if kept:
                yield tensors, kept


def quantized(tensors: Tensors) -> bool:
    """True if the weight is stored in fewer than 16 bits."""
    for suffix in WEIGHTS:
        head = tensors.get(suffix)
        if head is not None:
            return head.dtype not in WIDE and head.dtype not in {"BOOL", "I64", "C64"}
    return False


def _plain(tensors: Tensors) -> bool:
    head = tensors.get("weight")
    return head is not None and head.dtype in WIDE and len(head.shape) >= 2


def is_encoder(name: str) -> bool:
    """True for a layer of a vision or audio part."""
    return not module_names("encoder").isdisjoint(name.split("."))


def is_linear(name: str) -> bool:
    """True for a layer that is a quantizable linear one beyond doubt."""
    return name.rpartition(".")[2] in module_names("linear") and not is_encoder(name)


def collapsed(name: str) -> str:
    """The name with every expert's number made 0: engines judge experts together."""
    return _EXPERT.sub(".experts.0.", name) if ".experts." in name else name

"""Which linear modules the declared model has, layer by layer, under Megatron's own names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precision_plan.facts.te_modules import ModuleKind, module_names
from precision_plan.plan.effective import Effective
from precision_plan.plan.pipeline import local_layers
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.sections import Model

EXPERT = "{expert}"
"""Stands for the number of an expert in the name of its module."""

LIMIT = 1024
"""Layers, or experts of a rank. No model has as many; a larger number is not worked through."""


class ModelModules(NamedTuple):
    """Modules of every layer, as paths below the layer.

    ``complete`` is false where the model has layers that the plan does not describe (recurrent
    ones). ``indices`` holds the number of each decoder layer inside its model chunk, which is the
    one in its name; ``None`` if it is not known. ``experts`` is the number of experts of a rank.
    """

    decoder: tuple[tuple[str, ...], ...]
    mtp: tuple[tuple[str, ...], ...]
    indices: tuple[int, ...] | None
    experts: int
    complete: bool

    def expand(self, name: str) -> Iterator[str]:
        """The names that a module name with ``{expert}`` stands for."""
        if EXPERT not in name:
            yield name
        else:
            yield from (name.replace(EXPERT, str(expert)) for expert in range(self.experts))

    def numbers(self, layer: int) -> tuple[int, ...]:
        """The numbers that decoder layer ``layer`` may have in its name."""
        if self.indices is None:
            return tuple(range(len(self.decoder)))
        return (self.indices[layer],)

    def full_names(self) -> Iterator[str]:
        """Every full name that occurs on some rank, each once."""
        seen: dict[str, None] = {}
        for layer, names in enumerate(self.decoder):
            for number in self.numbers(layer):
                seen.update((f"decoder.layers.{number}.{name}", None) for name in names)
        for number, names in enumerate(self.mtp):
            seen.update((f"mtp.layers.{number}.{name}", None) for name in names)
        for name in seen:
            yield from self.expand(name)


def model_modules(plan: PrecisionPlan, resolved: Effective) -> ModelModules | None:
    """The modules of the declared model; ``None`` if the number of its layers is not known."""
    model = plan.model
    if model.num_layers is None or model.num_layers + (model.mtp_num_layers or 0) > LIMIT:
        return None
    attention = _attention(plan)
    decoder = []
    for has_experts in _expert_layers(plan, model.num_layers):
        kinds = attention + (_experts(plan, resolved) if has_experts else ("dense",))
        decoder.append(module_names(kinds, resolved.megatron_core))
    parallel = plan.parallel.expert_model_parallel_size or 1
    return ModelModules(
        decoder=tuple(decoder),
        mtp=_mtp(decoder[-1], model.mtp_num_layers or 0, resolved.megatron_core),
        indices=local_layers(plan),
        experts=min(max((model.num_experts or 0) // parallel, 1), LIMIT),
        complete=not model.linear_attention_layers,
    )


def has_dense_layers(model: Model) -> bool:
    """False if every layer is a mixture of experts, so that ffn_hidden_size describes nothing."""
    frequency = model.moe_layer_freq
    if model.num_experts is None:
        return True
    if isinstance(frequency, int):
        return frequency > 1 and model.num_layers != 1
    return frequency is not None and 0 in frequency


def _attention(plan: PrecisionPlan) -> tuple[ModuleKind, ...]:
    model = plan.model
    if not model.multi_latent_attention:
        return ("attention",)
    return ("mla", "mla_q" if model.q_lora_rank is None else "mla_q_lora")


def _expert_layers(plan: PrecisionPlan, layers: int) -> tuple[bool, ...]:
    """Which layers have experts: all of an MoE model, unless ``moe_layer_freq`` says otherwise.

    A number means every so many layers, the first one included.
    Source: NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/models/gpt/gpt_layer_specs.py:583-592.
    """
    model = plan.model
    if model.num_experts is None:
        return (False,) * layers
    pattern = model.moe_layer_freq
    if isinstance(pattern, int) and pattern > 0:
        return tuple(layer % pattern == 0 for layer in range(layers))
    if not isinstance(pattern, tuple) or len(pattern) != layers:
        return (True,) * layers
    return tuple(bool(entry) for entry in pattern)


def _experts(plan: PrecisionPlan, resolved: Effective) -> tuple[ModuleKind, ...]:
    """Kinds of a layer with experts. The legacy grouped GEMM is no module of TE."""
    kinds: tuple[ModuleKind, ...] = ()
    if not getattr(resolved.args, "moe_grouped_gemm", None):
        kinds = ("single_experts",)
    elif not getattr(resolved.args, "moe_use_legacy_grouped_gemm", None):
        kinds = ("grouped_experts",)
    if plan.model.moe_shared_expert_intermediate_size is not None:
        kinds += ("shared_experts",)
    return kinds


def _mtp(last: tuple[str, ...], layers: int, megatron_core: str) -> tuple[tuple[str, ...], ...]:
    """A multi-token prediction layer: a projection and a transformer layer like the last one."""
    (inner,) = module_names(("mtp_layer",), megatron_core)
    own = module_names(("mtp",), megatron_core)
    return ((*own, *(f"{inner}.{name}" for name in last)),) * layers

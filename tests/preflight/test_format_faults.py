"""One fault at a time, planted into a sound quantized checkpoint: each kind has an id of its own.

The sound ones are headers that ModelOpt, transformers and compressed-tensors wrote, and a few
that were published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from precision_plan.api import lint
from tests.conformance.layout_files import Headers, headers, layout, save, values
from tests.preflight.folders import folder

L0, L1 = "model.layers.0", "model.layers.1"
OUT = f"{L1}.self_attn.o_proj"
LLAMA4 = f"{L1}.feed_forward.experts"


@dataclass
class Checkpoint:
    """What a fault changes; ``separate`` is hf_quant_config.json."""

    config: dict[str, Any]
    separate: dict[str, Any] | None
    tensors: Headers
    scalars: dict[str, Any] = field(default_factory=dict)

    @property
    def quantization(self) -> dict[str, Any]:
        found = self.config["quantization_config"]
        assert isinstance(found, dict)
        return found

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of the only group of a compressed-tensors configuration."""
        (group,) = self.quantization["config_groups"].values()
        found = group["weights"]
        assert isinstance(found, dict)
        return found


Plant = Callable[[Checkpoint], object]


def sound(name: str) -> Checkpoint:
    described = layout(name)
    return Checkpoint(
        described["config"], described.get("hf_quant_config"), headers(described), values(described)
    )


def ids(path: Path, checkpoint: Checkpoint, target: Mapping[str, str]) -> list[str]:
    """Ids of what is found above advice in a folder of this checkpoint."""
    folder(path, checkpoint.config)
    if checkpoint.separate is not None:
        (path / "hf_quant_config.json").write_text(json.dumps(checkpoint.separate))
    save(path, checkpoint.tensors, checkpoint.scalars)
    report = lint([path], target={"gpu": "b200", "vllm": "0.33.0", **target})
    return sorted({each.id for each in report.diagnostics if each.severity != "advice"})


def lost(*names: str) -> Plant:
    def plant(checkpoint: Checkpoint) -> None:
        for name in names:
            del checkpoint.tensors[name]

    return plant


def lost_all(*ends: str) -> Plant:
    def plant(checkpoint: Checkpoint) -> None:
        found = [name for name in checkpoint.tensors if name.endswith(ends)]
        assert found
        lost(*found)(checkpoint)

    return plant


def header(name: str, dtype: str | None = None, shape: list[int] | None = None) -> Plant:
    """Another dtype or shape of a tensor, or a new tensor."""

    def plant(checkpoint: Checkpoint) -> None:
        given = checkpoint.tensors.get(name, ("", []))
        checkpoint.tensors[name] = (dtype or given[0], given[1] if shape is None else shape)

    return plant


def scalar(name: str, shape: list[int]) -> Plant:
    """A new scale of 0.01."""

    def plant(checkpoint: Checkpoint) -> None:
        checkpoint.tensors[name] = ("F32", shape)
        checkpoint.scalars[name] = 0.01

    return plant


def renamed(old: str, new: str) -> Plant:
    def plant(checkpoint: Checkpoint) -> None:
        checkpoint.tensors[new] = checkpoint.tensors.pop(old)
        if old in checkpoint.scalars:
            checkpoint.scalars[new] = checkpoint.scalars.pop(old)

    return plant


def value(name: str, number: float | list[int]) -> Plant:
    def plant(checkpoint: Checkpoint) -> None:
        assert name in checkpoint.scalars
        checkpoint.scalars[name] = number

    return plant


def scaled(name: str, factor: float) -> Plant:
    return lambda checkpoint: value(name, checkpoint.scalars[name] * factor)(checkpoint)


def setting(**keys: Any) -> Plant:
    """Other keys of quantization_config, and of hf_quant_config.json so that they agree."""

    def plant(checkpoint: Checkpoint) -> None:
        checkpoint.quantization.update(keys)
        if checkpoint.separate is not None:
            checkpoint.separate["quantization"].update(keys)

    return plant


def other_file(**keys: Any) -> Plant:
    """Other keys of hf_quant_config.json alone."""

    def plant(checkpoint: Checkpoint) -> None:
        assert checkpoint.separate is not None
        checkpoint.separate["quantization"].update(keys)

    return plant


def group(**keys: Any) -> Plant:
    return lambda checkpoint: checkpoint.weights.update(keys)


def listed(*names: str) -> Plant:
    return lambda checkpoint: checkpoint.quantization["ignore"].extend(names)


def unlisted(name: str) -> Plant:
    return lambda checkpoint: checkpoint.quantization["ignore"].remove(name)


def each(*plants: Plant) -> Plant:
    return lambda checkpoint: [plant(checkpoint) for plant in plants]


def wide(*layers: str) -> Plant:
    """Layers back in BF16, their scales removed."""

    def plant(checkpoint: Checkpoint) -> None:
        for layer in layers:
            shape = checkpoint.tensors[f"{layer}.weight"][1]
            for name in [name for name in checkpoint.tensors if name.startswith(f"{layer}.")]:
                del checkpoint.tensors[name]
            checkpoint.tensors[f"{layer}.weight"] = ("BF16", shape)

    return plant


def cast_back(checkpoint: Checkpoint) -> None:
    """Every quantized layer in BF16; the configuration is left as it was."""
    scaled_layers = [name for name in checkpoint.tensors if name.endswith("weight_scale_inv")]
    wide(*(name.rpartition(".")[0] for name in scaled_layers))(checkpoint)


class Fault(NamedTuple):
    base: str
    plant: Plant
    id: str
    target: Mapping[str, str] = MappingProxyType({})


NVFP4, FP8, MXFP8, BLOCKS = "modelopt_nvfp4", "modelopt_fp8", "modelopt_mxfp8", "transformers_fp8"
EXPERTS, FUSED = "transformers_fp8_experts", "modelopt_nvfp4_fused_experts"
INT4, ASYMMETRIC, CT = "compressed_int4", "compressed_int4_asymmetric", "compressed_nvfp4"
AWQ, GPTQ, GPT_OSS = "published_awq", "published_gptq_int4", "published_gpt_oss"
DEEPSEEK = "published_deepseek_fp8"

FAULTS: dict[str, Fault] = {
    # names
    "compressed-tensors' name of a global scale": Fault(
        NVFP4, renamed(f"{OUT}.weight_scale_2", f"{OUT}.weight_global_scale"), "PP748"
    ),
    "the name of per-tensor scales": Fault(
        BLOCKS, renamed(f"{OUT}.weight_scale_inv", f"{OUT}.weight_scale"), "PP748"
    ),
    "SGLang's name of MXFP8 scales": Fault(
        MXFP8, renamed(f"{OUT}.weight_scale", f"{OUT}.weight_scale_inv"), "PP748"
    ),
    # what is missing
    "no block scales": Fault(NVFP4, lost(f"{OUT}.weight_scale"), "PP746"),
    "no global scale": Fault(NVFP4, lost(f"{OUT}.weight_scale_2"), "PP746"),
    "no scale of one expert": Fault(
        "modelopt_fp8_kv", lost(f"{L1}.mlp.experts.3.up_proj.weight_scale"), "PP746"
    ),
    "no scales of published experts": Fault(
        GPT_OSS, lost(f"{L1}.mlp.experts.down_proj_scales"), "PP746"
    ),
    "no weight": Fault(FP8, lost(f"{OUT}.weight"), "PP747"),
    "no calibration": Fault(FP8, lost_all(".input_scale"), "PP751"),
    "no input scale of one layer": Fault(NVFP4, lost(f"{OUT}.input_scale"), "PP751"),
    "no scale of fused experts": Fault(
        FUSED, lost(f"{LLAMA4}.gate_up_proj_weight_scale"), "PP776"
    ),
    "no global scale of fused experts": Fault(
        FUSED, lost(f"{LLAMA4}.down_proj_weight_scale_2"), "PP776"
    ),
    "no zero points": Fault(ASYMMETRIC, lost(f"{OUT}.weight_zero_point"), "PP777"),
    "no zero points of AWQ": Fault(AWQ, lost(f"{OUT}.qzeros"), "PP777"),
    "no shape of packed weights": Fault(INT4, lost(f"{OUT}.weight_shape"), "PP778"),
    "no scales of the declared cache": Fault(
        "modelopt_fp8_kv", lost_all(".k_scale", ".v_scale"), "PP765"
    ),
    # dtypes
    "exponents as floats": Fault(MXFP8, header(f"{OUT}.weight_scale", "F32"), "PP749"),
    "E4M3 scales where exponents belong": Fault(
        "compressed_mxfp8", header(f"{OUT}.weight_scale", "F8_E4M3"), "PP749"
    ),
    "exponents where E4M3 belongs": Fault(NVFP4, header(f"{OUT}.weight_scale", "U8"), "PP749"),
    "E5M2": Fault(BLOCKS, header(f"{OUT}.weight", "F8_E5M2"), "PP759"),
    "FP8 weights under an INT4 configuration": Fault(
        INT4, each(renamed(f"{OUT}.weight_packed", f"{OUT}.weight"),
                   header(f"{OUT}.weight", "F8_E4M3", [128, 256]),
                   lost(f"{OUT}.weight_shape")), "PP758"
    ),
    "cast back to BF16": Fault(BLOCKS, cast_back, "PP756"),
    "no configuration": Fault(
        BLOCKS, lambda checkpoint: checkpoint.config.pop("quantization_config"), "PP757"
    ),
    # shapes
    "transposed scales": Fault(BLOCKS, header(f"{OUT}.weight_scale_inv", shape=[2, 1]), "PP750"),
    "another block": Fault(BLOCKS, setting(weight_block_size=[64, 64]), "PP750"),
    "another group": Fault(INT4, group(group_size=64), "PP750"),
    "another group of published weights": Fault(GPTQ, setting(group_size=64), "PP750"),
    "scales of the wrong number of experts": Fault(
        GPT_OSS, header(f"{L1}.mlp.experts.down_proj_scales", shape=[2, 64, 2]), "PP750"
    ),
    "inputs that no group divides": Fault(
        NVFP4, header(f"{OUT}.weight", shape=[128, 124]), "PP761"
    ),
    "a part transposed": Fault(
        FP8, header(f"{L1}.mlp.up_proj.weight", shape=[128, 256]), "PP782"
    ),
    "another shape than was packed": Fault(INT4, value(f"{OUT}.weight_shape", [128, 128]), "PP760"),
    # values
    "gate and up with other globals": Fault(
        NVFP4, scaled(f"{L1}.mlp.up_proj.weight_scale_2", 2), "PP753"
    ),
    "q, k and v with other globals": Fault(
        CT, scaled(f"{L1}.self_attn.k_proj.weight_global_scale", 2), "PP753"
    ),
    "q, k and v with other input scales": Fault(
        NVFP4, scaled(f"{L1}.self_attn.k_proj.input_scale", 2), "PP783"
    ),
    "a scale that is no number": Fault(
        NVFP4, value(f"{OUT}.weight_scale_2", float("nan")), "PP754"
    ),
    "a reciprocal": Fault(CT, value(f"{OUT}.weight_global_scale", 1e-4), "PP755"),
    # what should not be there
    "input scales of dynamic activations": Fault(BLOCKS, scalar(f"{OUT}.input_scale", []), "PP752"),
    "an embedding in FP8": Fault(
        BLOCKS, each(header("model.embed_tokens.weight", "F8_E4M3"),
                     header("model.embed_tokens.weight_scale_inv", "F32", [2, 1])), "PP763"
    ),
    "a router in FP8": Fault(
        EXPERTS, each(header(f"{L1}.mlp.gate.weight", "F8_E4M3"),
                      scalar(f"{L1}.mlp.gate.weight_scale_inv", [1, 1])), "PP764"
    ),
    "a head in FP8": Fault(
        BLOCKS, each(header("lm_head.weight", "F8_E4M3"),
                     header("lm_head.weight_scale_inv", "F32", [2, 1])), "PP780"
    ),
    "a tied head beside the embedding": Fault(
        BLOCKS, lambda checkpoint: checkpoint.config.update(tie_word_embeddings=True), "PP774",
        {"vllm": "0.28.0"},
    ),
    "the experts' scales in one tensor, for an old engine": Fault(
        DEEPSEEK, each(lost_all("layers.1.mlp.experts.3.down_proj.weight_scale_inv"),
                       header(f"{L1}.mlp.experts.down_proj_scale_inv", "F32", [4, 2, 1])),
        "PP784", {"vllm": "0.24.0"},
    ),
    "experts packed as one": Fault(
        INT4, header(f"{L1}.mlp.experts.gate_up_proj_packed", "I32", [4, 256, 16]), "PP775"
    ),
    # two configurations, and keys of one
    "two configurations": Fault(
        FP8, other_file(quant_algo="NVFP4"), "PP762"
    ),
    "an algorithm that is none": Fault(NVFP4, setting(quant_algo="W4A8_NVFP4_FP8"), "PP413"),
    "groups that NVFP4 does not have": Fault(NVFP4, setting(group_size=32), "PP707"),
    # the list of layers left alone
    "a quantized layer on the list": Fault(FP8, listed(OUT), "PP767"),
    "a BF16 layer off the list": Fault(FP8, wide(OUT), "PP768"),
    "fused experts in BF16": Fault(
        FUSED, each(lost_all("experts.gate_up_proj_weight_scale",
                             "experts.gate_up_proj_weight_scale_2",
                             "experts.gate_up_proj_input_scale"),
                    header(f"{L0}.feed_forward.experts.gate_up_proj", "BF16"),
                    header(f"{LLAMA4}.gate_up_proj", "BF16")), "PP769"
    ),
    "half of a fused layer in BF16": Fault(FP8, wide(f"{L1}.mlp.up_proj"), "PP770"),
    "a head off the list": Fault(FP8, unlisted("lm_head"), "PP781"),
    "a prediction layer in BF16": Fault(
        DEEPSEEK, wide("model.layers.2.self_attn.o_proj"), "PP779"
    ),
    "the list under a key of another method": Fault(BLOCKS, setting(ignore=["lm_head"]), "PP721"),
    "a pattern where names are compared": Fault(
        BLOCKS, setting(modules_to_not_convert=["re:.*lm_head"]), "PP722"
    ),
    "a wrapper's prefix": Fault(
        EXPERTS, setting(modules_to_not_convert=["model.language_model.layers.0.mlp.gate"]),
        "PP771",
    ),
    "a pattern of compressed-tensors": Fault(FP8, listed("re:.*mlp.gate"), "PP772"),
    "a pattern of ModelOpt": Fault(INT4, listed("*.mlp.gate"), "PP772"),
    "a name that no layer has": Fault(INT4, listed(f"{L0}.mlp.router"), "PP773"),
}  # fmt: skip
BASES = sorted({fault.base for fault in FAULTS.values()})


@pytest.mark.parametrize("base", BASES)
def test_the_checkpoint_is_sound(base: str, tmp_path: Path) -> None:
    assert ids(tmp_path, sound(base), {}) == []


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_and_nothing_else(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    checkpoint = sound(fault.base)
    before = json.dumps([checkpoint.config, checkpoint.separate, checkpoint.tensors]) + str(
        checkpoint.scalars
    )
    fault.plant(checkpoint)
    after = json.dumps([checkpoint.config, checkpoint.separate, checkpoint.tensors]) + str(
        checkpoint.scalars
    )
    assert before != after
    assert ids(tmp_path, checkpoint, fault.target) == [fault.id]


def test_the_ids_are_many() -> None:
    found = {fault.id for fault in FAULTS.values()}
    assert len(FAULTS) >= 50 and len(found) >= 30, sorted(found)

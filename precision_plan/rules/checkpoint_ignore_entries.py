"""PP771 to PP773 and PP779: entries of the ignore list that name nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Found, Rule, rule
from precision_plan.rules.checkpoint_files import some
from precision_plan.rules.checkpoint_found import about_config, about_layers, judging, layers_of
from precision_plan.rules.checkpoint_names import spellings
from precision_plan.rules.checkpoint_table import CheckpointLayers, collapsed, is_encoder

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_MATCHING = f"{_QUANT}/utils/quant_utils.py:619-694"
_MODELOPT = f"{_QUANT}/modelopt.py:185-226"
_CT = f"{_QUANT}/compressed_tensors/utils.py:53-170"


def _by_vllm(ctx: Context) -> CheckpointLayers | None:
    layers = judging(ctx)
    return layers if layers is not None and layers.engine == "vllm" else None


@rule(
    "PP771",
    "ignore-entry-under-other-prefix",
    "warning",
    stage="worker",
    source=(_MATCHING, _CT, "vllm-project/vllm#28072"),
)
def other_prefix(ctx: Context) -> Found:
    """An entry of the ignore list names a layer under a prefix that the checkpoint does not have.

    Why:
        Wrappers put the language model below model.language_model; lists that were written for the
        language model alone start with model.layers. Names are compared whole, so the entry names
        nothing and its layer is built quantized.

    Bad:
        files:
          config:
            text_config: {num_hidden_layers: 1}
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.0.mlp.gate]
          tensors: {model.language_model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}

    Good:
        files:
          config:
            text_config: {num_hidden_layers: 1}
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.language_model.layers.0.mlp.gate]
          tensors: {model.language_model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}
    """
    layers = _by_vllm(ctx)
    if layers is None or layers.ignored.match not in {"exact", "regex"}:
        return None
    entries = [each for each in layers.ignored.entries if "layers." in each and "*" not in each]
    entries = [each for each in entries if each[:3] != "re:" and not is_encoder(each)]
    if not entries:
        return None
    known: set[str] = set()
    tails: dict[str, str] = {}
    for name in layers.modules:
        if ".experts." not in name and "layers." in name and not is_encoder(name):
            known.update(spellings(name, layers.ignored.wrapper))
            tails[name[name.index("layers.") :]] = name
    wrong = [
        each for each in entries if each not in known and each[each.index("layers.") :] in tails
    ]
    if not wrong:
        return None
    right = tails[wrong[0][wrong[0].index("layers.") :]]
    return about_config(
        layers,
        _name_no_layer(layers, wrong),
        layers.ignored.key,
        Fix(f"{right} instead of {wrong[0]}"),
        because=f"the checkpoint has {right}",
    )


def _name_no_layer(layers: CheckpointLayers, entries: list[str]) -> str:
    which = "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"
    verb = "names" if len(entries) == 1 else "name"
    return f"{which} of {layers.ignored.key} {verb} no layer: {some(entries)}"


@rule(
    "PP772",
    "ignore-entry-in-other-dialect",
    "warning",
    stage="worker",
    source=(_MODELOPT, _CT, f"{_QUANT}/auto_awq.py:174-260"),
)
def other_dialect(ctx: Context) -> Found:
    """An entry of the ignore list is a pattern of another method's kind.

    Why:
        compressed-tensors knows ``re:`` and whole names, no ``*``; ModelOpt knows ``*``, no
        ``re:``; AWQ looks for parts of names and knows neither. Such an entry matches nothing, and
        nobody says so.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: ["re:.*lm_head"]}

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8, ignore: ["*lm_head"]}
    """
    files = ctx.checkpoint
    if files is None or files.quantization_config is None:
        return None
    layers = CheckpointLayers(files)
    match, entries = layers.ignored.match, layers.ignored.entries
    if match == "regex":
        wrong = [each for each in entries if "*" in each and each[:3] != "re:"]
    elif match in {"wildcard", "substring"}:
        wrong = [each for each in entries if each[:3] == "re:"]
    else:
        return None  # PP722 speaks of exact names
    if not wrong:
        return None
    kinds = {"regex": "re: or whole names", "wildcard": "* and parts of names"}
    return about_config(
        layers,
        f"{wrong[0]!r} in {layers.ignored.key} is no pattern of {layers.ignored.method}",
        layers.ignored.key,
        Fix("write it as " + kinds.get(match, "a part of the name")),
    )


@rule(
    "PP773",
    "ignore-entry-names-no-layer",
    "warning",
    stage="run",
    source=(_CT, "vllm-project/vllm#51910"),
)
def names_no_layer(ctx: Context) -> Found:
    """An entry of a compressed-tensors ignore list is a whole name that no tensor has.

    Why:
        Whole names are compared letter by letter. One that names nothing keeps nothing
        unquantized: the layer was renamed after the list was written, or never existed.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: float-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights: {num_bits: 8, type: float, symmetric: true, strategy: channel}
                  input_activations: {num_bits: 8, type: float, strategy: token, dynamic: true}
              ignore: [model.layers.0.mlp.router]
          tensors: {model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}

    Good:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: float-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights: {num_bits: 8, type: float, symmetric: true, strategy: channel}
                  input_activations: {num_bits: 8, type: float, strategy: token, dynamic: true}
              ignore: [model.layers.0.mlp.gate]
          tensors: {model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}
    """
    layers = layers_of(ctx, complete=True)
    if layers is None or layers.ignored.match != "regex":
        return None
    entries = [each for each in layers.ignored.entries if _is_layer_name(each)]
    if not entries:
        return None
    known = _names_of(layers)
    idle = [each for each in entries if each not in known]
    if not idle or _is_named_elsewhere(idle, known):
        return None
    return about_config(
        layers,
        _name_no_layer(layers, idle),
        layers.ignored.key,
        Fix("write the name that the tensors have, or a pattern (re:...)"),
    )


def _is_layer_name(entry: str) -> bool:
    """True for a whole name of a decoder layer's module, which must be among the tensors."""
    return "layers." in entry and entry[:3] != "re:" and "*" not in entry and not is_encoder(entry)


def _names_of(layers: CheckpointLayers) -> frozenset[str]:
    """Every module with tensors and everything above it, in the engine's spellings too."""
    found: set[str] = set()
    for name in layers.modules:
        for each in spellings(name, layers.ignored.wrapper):
            while each not in found:
                found.add(each)
                each = each.rpartition(".")[0]
    return frozenset(found)


def _is_named_elsewhere(entries: list[str], known: frozenset[str]) -> bool:
    """True if an entry's layer is there under another prefix: another rule speaks of that."""
    tails = {name[name.index("layers.") :] for name in known if "layers." in name}
    return any(each[each.index("layers.") :] in tails for each in entries)


@rule(
    "PP779",
    "mtp-layer-unquantized-not-ignored",
    "warning",
    stage="worker",
    source=("vllm-project/vllm#44087", "vllm-project/vllm#35031", _MATCHING),
)
def mtp_not_ignored(ctx: Context) -> Found:
    """Layers of multi-token prediction are stored in BF16, and the ignore list does not name them.

    Why:
        The draft model inherits the target's quantization config. Its layers are then built
        quantized and loaded with BF16 values: it refuses on shapes or proposes garbage, which costs
        every speculative token.

    Bad:
        files:
          config:
            num_hidden_layers: 1
            num_nextn_predict_layers: 1
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.1.mlp.down_proj.weight: "BF16 [64, 64]"

    Good:
        files:
          config:
            num_hidden_layers: 1
            num_nextn_predict_layers: 1
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              modules_to_not_convert: [model.layers.1.mlp.down_proj]
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
            model.layers.1.mlp.down_proj.weight: "BF16 [64, 64]"
    """
    layers = _by_vllm(ctx)
    if layers is None or not layers.quantized:
        return None
    found = [name for name in _mtp_plain(layers) if not layers.ignored.holds(collapsed(name))]
    if not found:
        return None
    fix = Fix(f"add them to {layers.ignored.key}")
    return about_layers(ctx, f"MTP layers in BF16, but not in {layers.ignored.key}", found, fix)


def _mtp_plain(layers: CheckpointLayers) -> Iterator[str]:
    for tensors, names in layers.plain:
        if len(tensors["weight"].shape) == 2:
            yield from (name for name in names if _is_linear(name) and layers.is_mtp(name))


@lru_cache(maxsize=4096)
def _is_linear(name: str) -> bool:
    return name.rpartition(".")[2] in {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


RULES: tuple[Rule, ...] = (
    other_prefix,
    other_dialect,
    names_no_layer,
    mtp_not_ignored,
)

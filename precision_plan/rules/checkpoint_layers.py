"""PP72x: which layers a quantized rollout checkpoint leaves alone, and how it says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.vllm_quant import quant_methods
from precision_plan.plan import Because, Fix
from precision_plan.plan.serving import IGNORE_KEYS, QuantizationConfig
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.vllm_engine import CONFIG, checkpoint_method, serves

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_MATCHING = f"{_QUANT}/utils/quant_utils.py:619-694"


def _given(config: QuantizationConfig) -> list[str]:
    return [name for name in IGNORE_KEYS if getattr(config, name)]


@rule(
    "PP721",
    "ignore-list-under-wrong-key",
    "error",
    stage="run",
    source=(
        f"{_QUANT}/fp8.py:135-208",
        f"{_QUANT}/modelopt.py:1203-1289",
        "vllm-project/vllm#51265",
    ),
)
def wrong_key(ctx: Context) -> Iterator[Finding]:
    """The list of unquantized layers stands under a key that this method does not read.

    Why:
        Every method has its own key: fp8 ignored_layers, else modules_to_not_convert (the two
        are not merged); modelopt ignore, else exclude_modules; mxfp8 ignored_layers only;
        compressed-tensors ignore. A list under another key is dropped without a word, and the
        BF16 tensors of those layers are then loaded as quantized ones.

    Bad:
        software: {framework: vllm}
        checkpoint:
          quantization_config: {quant_method: fp8, activation_scheme: dynamic, ignore: [lm_head]}

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, modules_to_not_convert: [lm_head]}
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or not serves(ctx):
        return
    given = _given(config)
    method = quant_methods().get(checkpoint_method(ctx) or "") if given else None
    if method is None or method.ignore_match == "none":
        return
    keys = [key for key in method.ignore_keys if key in IGNORE_KEYS]
    read = next((key for key in keys if key in given), None)
    for name in given:
        if name == read or not keys:
            continue
        why = f"{read} comes first" if name in keys else f"it reads {' or '.join(keys)}"
        yield ctx.found(
            f"{config.quant_method} does not read {name}: {why}",
            f"{CONFIG}.{name}",
            f"{CONFIG}.quant_method",
            fix=(
                set_to(
                    (f"{CONFIG}.{keys[0]}", list(getattr(config, name))), (f"{CONFIG}.{name}", None)
                ),
            )
            if read is None
            else (set_to((f"{CONFIG}.{name}", None)),),
        )


_SUFFIX = re.compile(r"(?:\d+\.|mlp\.|self_attn\.|attention\.).*|[a-z_]+_proj")


@rule(
    "PP722",
    "ignore-entry-matches-nothing",
    "error",
    stage="run",
    source=(_MATCHING, "vllm-project/vllm#51265"),
)
def matches_nothing(ctx: Context) -> Found:
    """An entry of an FP8 ignore list can match no layer.

    Why:
        vLLM compares the entries of an fp8 checkpoint with full module names, letter by letter:
        patterns (``re:...``, ``*``) and shortened names (``mlp.gate``, ``q_proj``) match
        nothing, and the layer is loaded as FP8. modelopt takes wildcards, compressed-tensors
        ``re:``.

    Bad:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert: ["re:.*lm_head"]

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert: [lm_head]
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method != "fp8" or not serves(ctx):
        return None
    key = "ignored_layers" if config.ignored_layers else "modules_to_not_convert"
    names = getattr(config, key)
    if not names:
        return None
    idle = [name for name in names if "*" in name or name[:3] == "re:" or _SUFFIX.fullmatch(name)]
    if not idle:
        return None
    more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
    return ctx.found(
        f"{idle[0]!r}{more} can match no layer: fp8 compares full module names",
        f"{CONFIG}.{key}",
        f"{CONFIG}.quant_method",
        fix=(Fix("write every module's full name (model.layers.0.mlp.gate)"),),
    )


_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@rule(
    "PP723",
    "fused-layer-half-ignored",
    "error",
    stage="build",
    source=(_MATCHING, "vllm-project/vllm#11790", "vllm-project/vllm#31623"),
)
def half_ignored(ctx: Context) -> Iterator[Finding]:
    """Only a part of a layer that vLLM fuses is left unquantized.

    Why:
        q, k and v become one matrix in vLLM, gate and up another; one matrix has one scheme. A
        list that names some of the parts raises ValueError when the layer is built.

    Bad:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert: [lm_head, model.layers.0.self_attn.q_proj]

    Good:
        software: {framework: vllm}
        checkpoint:
          quantization_config:
            quant_method: fp8
            activation_scheme: dynamic
            modules_to_not_convert:
              - lm_head
              - model.layers.0.self_attn.q_proj
              - model.layers.0.self_attn.k_proj
              - model.layers.0.self_attn.v_proj
    """
    config = ctx.plan.checkpoint.quantization_config
    if config is None or config.quant_method not in {"fp8", "compressed-tensors"}:
        return
    key = next((name for name in _given(config)), None)
    if key is None or not serves(ctx):
        return
    names = frozenset(getattr(config, key))
    for name in sorted(names):
        for parts in _FUSED:
            stem, _, part = name.rpartition(".")
            if part != parts[0] and part in parts and f"{stem}.{parts[0]}" in names:
                break  # reported once, at the first part
            missing = [one for one in parts if part in parts and f"{stem}.{one}" not in names]
            if missing and ".layers." in name:
                yield ctx.found(
                    f"{name} stays unquantized, {', '.join(missing)} beside it does not",
                    f"{CONFIG}.{key}",
                    Because("vLLM fuses " + ", ".join(parts)),
                    fix=(Fix("list all parts of the fused layer, or none"),),
                )
                return


@rule(
    "PP724",
    "mtp-layers-not-ignored",
    "warning",
    stage="build",
    source=("vllm-project/vllm#44087", "vllm-project/vllm#35031"),
)
def mtp(ctx: Context) -> Found:
    """The model has multi-token prediction layers, and a 4-bit checkpoint does not exempt them.

    Why:
        NVFP4 and MXFP4 converters quantize the experts of the main decoder and leave MTP layers
        in BF16. The draft model inherits the target's config, so the list must name them
        (``mtp.*`` and ``model.layers.N.*`` after the last layer), or loading fails on shapes or
        the draft starts from random weights. Where the checkpoint's headers are at hand, they are
        judged instead: it may have no such layers, or quantized ones.

    Bad:
        software: {framework: vllm}
        model: {num_layers: 61, mtp_num_layers: 1}
        checkpoint:
          quantization_config: {quant_method: modelopt, quant_algo: NVFP4, ignore: [lm_head]}

    Good:
        software: {framework: vllm}
        model: {num_layers: 61, mtp_num_layers: 1}
        checkpoint:
          quantization_config:
            {quant_method: modelopt, quant_algo: NVFP4,
             ignore: [lm_head, "mtp.*", "model.layers.61.*"]}
    """
    model, config = ctx.plan.model, ctx.plan.checkpoint.quantization_config
    if not model.mtp_num_layers or config is None or not serves(ctx):
        return None
    if ctx.checkpoint_layers is not None:  # PP779 looks at the layers themselves
        return None
    if checkpoint_method(ctx) not in {"modelopt_fp4", "mxfp4"}:
        return None
    names = config.ignore or config.exclude_modules
    last = f"layers.{model.num_layers}"
    if names is None or any("mtp" in name or last in name for name in names):
        return None
    return ctx.found(
        "the ignore list does not name the multi-token prediction layers",
        f"{CONFIG}.ignore" if config.ignore else f"{CONFIG}.exclude_modules",
        "model.mtp_num_layers",
        fix=(Fix(f'add "mtp.*" and "model.{last}.*"'),),
    )


@rule(
    "PP725",
    "nested-quantization-config",
    "error",
    stage="run",
    source=(
        "radixark/miles@31f1ca96:miles/backends/megatron_utils/actor.py:270",
        "vllm-project/vllm#10120",
    ),
    frameworks=RL_FRAMEWORKS,
)
def nested(ctx: Context) -> Found:
    """The framework reads quantization_config at the top level of config.json only.

    Why:
        Multimodal checkpoints often nest it in text_config. vLLM finds it there; the RL
        frameworks do not and send BF16 tensors to an engine that holds quantized ones.

    Bad:
        software: {framework: vime}
        checkpoint:
          quantization_config_key: text_config.quantization_config
          quantization_config: {quant_method: fp8, activation_scheme: dynamic}

    Good:
        software: {framework: vime}
        checkpoint:
          quantization_config: {quant_method: fp8, activation_scheme: dynamic}
    """
    key = ctx.plan.checkpoint.quantization_config_key
    if key in {None, "quantization_config"}:
        return None
    return ctx.found(
        f"{key} is not at the top level: {ctx.target.framework} would send BF16 weights",
        "checkpoint.quantization_config_key",
        "software.framework",
        fix=(Fix("copy it to quantization_config at the top level of config.json"),),
    )


RULES: tuple[Rule, ...] = (wrong_key, matches_nothing, half_ignored, mtp, nested)

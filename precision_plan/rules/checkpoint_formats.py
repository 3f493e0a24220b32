"""PP756 to PP766: weights of a checkpoint against the format that its configuration describes."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_config, about_layers, layers_of
from precision_plan.rules.checkpoint_table import WEIGHTS, CheckpointLayers, collapsed

_QUANT = "vllm@0.33.0:vllm/model_executor/layers/quantization"
_CONFIG = "vllm@0.33.0:vllm/config/model.py:1383-1485"
_TRACK = "vllm@0.33.0:vllm/model_executor/model_loader/default_loader.py:510-575"
_CT = f"{_QUANT}/compressed_tensors/schemes"

_NOT_E4M3 = frozenset({"F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})


@rule(
    "PP756",
    "configured-format-not-in-tensors",
    "error",
    stage="worker",
    source=(_TRACK, "THUDM/slime@624b824a:tools/fp8_cast_bf16.py", "vllm-project/vllm#19050"),
)
def nothing_quantized(ctx: Context) -> Found:
    """The configuration describes quantized weights, and no weight is quantized.

    Why:
        Tools that cast a checkpoint back to BF16 copy its config.json unchanged. The engine then
        casts BF16 weights into quantized parameters and never gets their scales.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.mlp.down_proj.weight: "BF16 [64, 64]"}

    Good:
        files:
          config: {model_type: llama}
          tensors: {model.layers.0.mlp.down_proj.weight: "BF16 [64, 64]"}
    """
    layers = layers_of(ctx, complete=True)
    if layers is None or layers.contract is None or layers.quantized:
        return None
    plain = [
        name
        for _, names in layers.judged(layers.plain)
        for name in names
        if not layers.ignored.holds(collapsed(name))
    ]
    if not plain:
        return None
    fix = Fix("remove quantization_config from config.json, or convert the weights")
    return about_layers(ctx, "weights of 16 bits and more only", plain, fix)


@rule(
    "PP757",
    "quantized-tensors-without-config",
    "error",
    stage="worker",
    source=(_CONFIG, f"{_QUANT}/base_config.py:184-200"),
)
def no_config(ctx: Context) -> Found:
    """Weights are quantized, and the configuration does not say so.

    Why:
        Without quantization_config the layers are BF16. Packed weights have the wrong shape; FP8
        values are copied without their scales where the loader lets the scales pass.

    Bad:
        files:
          config: {model_type: llama}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx)
    if layers is None or layers.quantization or not layers.files.config:
        return None
    if layers.files.hf_quant_config is not None or ctx.plan.rollout.quantization_config:
        return None
    found = [name for _, names in layers.judged(layers.quantized) for name in names]
    if not found:
        return None
    fix = Fix("copy quantization_config from the tool that quantized the weights")
    return about_layers(ctx, "quantized weights without quantization_config", found, fix)


@rule(
    "PP758",
    "weight-dtype-not-of-format",
    "error",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:300-320", f"{_CT}/compressed_tensors_wNa16.py:140-245"),
)
def weight_dtype(ctx: Context) -> Iterator[Finding]:
    """Weights are stored in another packing than the configuration describes.

    Why:
        Method, format and bits select the parameter: int32 words of eight nibbles, bytes of two
        FP4 codes, one byte a value. Another dtype or name does not fit it, or is converted value by
        value to garbage.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None:
        return
    right = layers.contract.weight
    wrong: dict[tuple[str, str], list[str]] = {}
    for tensors, names in layers.judged(layers.quantized):
        name = next(each for each in WEIGHTS if each in tensors)
        dtype = tensors[name].dtype
        if dtype not in _NOT_E4M3 and (name != right.name or dtype not in right.dtypes):
            wrong.setdefault((name, dtype), []).extend(names)
    expected = f"{right.name} in {' or '.join(right.dtypes)}"
    for (name, dtype), names in wrong.items():
        message = f"{name} in {dtype} where the engine reads {expected}"
        yield about_layers(ctx, message, names, _DESCRIBE)


_DESCRIBE = Fix("give the quantization_config that describes these weights")


@rule(
    "PP759",
    "fp8-weights-not-e4m3",
    "error",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:230-240", f"{_QUANT}/utils/fp8_utils.py", "vllm-project/vllm#4342"),
)
def not_e4m3(ctx: Context) -> Found:
    """FP8 weights are not in the E4M3 of the OCP.

    Why:
        vLLM's parameters are float8_e4m3fn. E5M2 has a wider range: values above 448 do not
        survive the copy. FNUZ values (gfx94x) have another exponent bias: the engine makes
        FNUZ of E4M3 itself and would do it twice.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E5M2 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.down_proj.weight: "F8_E4M3 [64, 64]"
            model.layers.0.mlp.down_proj.weight_scale: "F32 []"
    """
    layers = layers_of(ctx)
    found: list[str] = []
    dtype = ""
    for tensors, names in layers.quantized if layers and layers.contract else ():
        head = tensors.get("weight")
        if head is not None and head.dtype in _NOT_E4M3:
            dtype = dtype or head.dtype
            found += names
    if not found:
        return None
    return about_layers(ctx, f"weights in {dtype}", found, Fix("store the weights as F8_E4M3"))


@rule(
    "PP760",
    "packed-shape-disagrees",
    "error",
    stage="worker",
    source=(f"{_CT}/compressed_tensors_wNa16.py:140-245",),
)
def packed_shape(ctx: Context) -> Found:
    """weight_shape names another matrix than the packed words hold.

    Why:
        weight_shape is the size before packing. Eight INT4 values are one int32 word; readers crop
        the unpacked rows to weight_shape, and one that does not fit was packed with other bits or
        belongs to another tensor.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
          tensors:
            model.layers.0.mlp.down_proj.weight_packed: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.weight_scale: "BF16 [64, 2]"
            model.layers.0.mlp.down_proj.weight_shape: "I64 [2]"
          scales: {model.layers.0.mlp.down_proj.weight_shape: [64, 128]}

    Good:
        files:
          config:
            quantization_config:
              quant_method: compressed-tensors
              format: pack-quantized
              config_groups:
                group_0:
                  targets: [Linear]
                  weights:
                    {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
          tensors:
            model.layers.0.mlp.down_proj.weight_packed: "I32 [64, 8]"
            model.layers.0.mlp.down_proj.weight_scale: "BF16 [64, 2]"
            model.layers.0.mlp.down_proj.weight_shape: "I64 [2]"
          scales: {model.layers.0.mlp.down_proj.weight_shape: [64, 64]}
    """
    layers = layers_of(ctx)
    contract = layers.contract if layers is not None else None
    wrong: list[str] = []
    for tensors, names in layers.quantized if layers and contract else ():
        head = tensors.get("weight_packed")
        if head is None or "weight_shape" not in tensors or contract is None or layers is None:
            continue
        size = contract.inputs(head.shape)
        for name in names if size else ():
            said = layers.files.scales.get(f"{name}.weight_shape")
            if said is None or size is None or len(said) != 2:
                continue
            word = size[1] // head.shape[-1]
            if said[0] != size[0] or not size[1] - word < said[1] <= size[1]:
                wrong.append(name)
    if not wrong:
        return None
    return about_layers(
        ctx, "weight_shape is not that of the packed weight", wrong, Fix("pack the weights again")
    )


@rule(
    "PP761",
    "group-does-not-divide-input",
    "error",
    stage="build",
    source=(f"{_CT}/compressed_tensors_wNa16.py:160-180", f"{_QUANT}/modelopt.py:2026-2029"),
)
def group_divides(ctx: Context) -> Iterator[Finding]:
    """The inputs of a layer are no multiple of the group that shares a scale.

    Why:
        The engine allocates inputs / group scales. It refuses a remainder when it builds the
        layer, whatever the tensor parallel size.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.down_proj.weight: "U8 [64, 20]"
            model.layers.0.mlp.down_proj.weight_scale: "F8_E4M3 [64, 3]"
            model.layers.0.mlp.down_proj.weight_scale_2: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: W4A16_NVFP4, group_size: 16}
          tensors:
            model.layers.0.mlp.down_proj.weight: "U8 [64, 24]"
            model.layers.0.mlp.down_proj.weight_scale: "F8_E4M3 [64, 3]"
            model.layers.0.mlp.down_proj.weight_scale_2: "F32 []"
    """
    layers = layers_of(ctx)
    contract = layers.contract if layers is not None else None
    wrong: dict[tuple[str, int], list[str]] = {}
    for tensors, names in layers.quantized if layers and contract else ():
        head = tensors.get(contract.weight.name) if contract else None
        size = contract.inputs(head.shape) if contract and head is not None else None
        if size is None or contract is None:
            continue
        for each in contract.others:
            if each.name in tensors and contract.shape(each, *size) is None:
                wrong.setdefault((each.shape, size[1]), []).extend(names)
                break
    for (shape, inputs), names in wrong.items():
        text = shape.format(group=contract.group if contract else 0, rows=0, columns=0)
        message = f"{inputs} inputs do not make whole scales {text}"
        yield about_layers(
            ctx, message, names, Fix("quantize with a group that divides the inputs")
        )


@rule(
    "PP762",
    "two-quantization-configs-disagree",
    "error",
    stage="run",
    source=("vllm@0.33.0:vllm/model_executor/model_loader/weight_utils.py:197-397", _CONFIG),
)
def two_configs(ctx: Context) -> Iterator[Finding]:
    """hf_quant_config.json and config.json describe different quantizations.

    Why:
        vLLM reads quantization_config of config.json and looks at hf_quant_config.json only without
        it; TensorRT-LLM and SGLang look at the other first. The same folder is then served as two
        different models.

    Bad:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: FP8}
          hf_quant_config: {producer: {name: modelopt}, quantization: {quant_algo: NVFP4}}

    Good:
        files:
          config:
            quantization_config: {quant_method: modelopt, quant_algo: NVFP4, group_size: 16}
          hf_quant_config:
            {producer: {name: modelopt}, quantization: {quant_algo: NVFP4, group_size: 16}}
    """
    files = ctx.checkpoint
    if files is None or files.hf_quant_config is None or files.quantization_config is None:
        return
    if (files.quantization_key or "").endswith(".json"):
        return
    other = files.hf_quant_config.get("quantization")
    nested = files.quantization_config.get("quantization")
    ours = nested if isinstance(nested, dict) else files.quantization_config
    if not isinstance(other, dict):
        return
    for key in ("quant_algo", "group_size"):
        theirs, mine = other.get(key), ours.get(key)
        if theirs is None or mine is None or str(theirs).upper() == str(mine).upper():
            continue
        yield Finding(
            f"{key} is {mine} in config.json and {theirs} in hf_quant_config.json",
            because=(Because("vLLM reads config.json first, other engines the other file"),),
            fix=(Fix("keep the one that describes the tensors, in both files"),),
            origin=files.quantization_position(key),
        )


_NEVER = ("embed_tokens", "norm", "layernorm")


@rule(
    "PP763",
    "embedding-or-norm-quantized",
    "error",
    stage="worker",
    source=(f"{_QUANT}/fp8.py:175-208", f"{_QUANT}/modelopt.py:226-268"),
)
def embedding(ctx: Context) -> Found:
    """The embedding or a norm is stored quantized.

    Why:
        FP8, ModelOpt, AWQ and GPTQ methods quantize linear layers and experts only. The engine's
        embedding and norms are BF16: values are copied without their scale.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.embed_tokens.weight: "F8_E4M3 [128, 64]"
            model.embed_tokens.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.embed_tokens.weight: "BF16 [128, 64]"}
    """
    layers = layers_of(ctx)
    if layers is None or layers.contract is None or layers.contract.method == "compressed-tensors":
        return None
    found = [
        name
        for _, names in layers.quantized
        for name in names
        if name.rpartition(".")[2].endswith(_NEVER)
    ]
    if not found:
        return None
    return about_layers(ctx, "quantized, which no engine reads", found, Fix("leave them in BF16"))


@rule(
    "PP764",
    "router-quantized",
    "warning",
    stage="worker",
    source=("vllm@0.33.0:vllm/model_executor/models/deepseek_v2.py", "THUDM/slime#1679"),
)
def router(ctx: Context) -> Found:
    """The router of a mixture of experts is stored quantized.

    Why:
        Most models of vLLM build the router without quantization, so its scale has no parameter and
        its values are copied without it. Where it is read, rounding flips the choice of experts.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors:
            model.layers.0.mlp.gate.weight: "F8_E4M3 [8, 64]"
            model.layers.0.mlp.gate.weight_scale: "F32 []"

    Good:
        files:
          config:
            quantization_config:
              quant_method: fp8
              activation_scheme: dynamic
              ignored_layers: [model.layers.0.mlp.gate]
          tensors: {model.layers.0.mlp.gate.weight: "BF16 [8, 64]"}
    """
    layers = layers_of(ctx)
    found = [
        name
        for _, names in (layers.quantized if layers else ())
        for name in names
        if name.endswith((".gate", ".router", ".shared_expert_gate"))
    ]
    return (
        about_layers(ctx, "router quantized", found, Fix("leave routers in BF16"))
        if found
        else None
    )


@rule(
    "PP765",
    "kv-scales-declared-and-missing",
    "warning",
    stage="run",
    source=(f"{_QUANT}/kv_cache.py:78-175", "radixark/miles@31f1ca96:tools/convert_hf_to_nvfp4.py"),
)
def kv_missing(ctx: Context) -> Found:
    """The configuration declares a calibrated FP8 KV cache, and there are no k and v scales.

    Why:
        With the scheme vLLM's kv_cache_dtype auto becomes fp8. Without scales it takes 1.0: keys
        and values beyond 448 saturate, and what was called calibrated is not. The NVFP4 converters
        of the RL frameworks declare the scheme by default and write no scales.

    Bad:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: FP8
              kv_cache_scheme: {num_bits: 8, type: float, dynamic: false}
          tensors: {model.norm.weight: "BF16 [64]"}

    Good:
        files:
          config:
            quantization_config:
              quant_method: modelopt
              quant_algo: FP8
              kv_cache_scheme: {num_bits: 8, type: float, dynamic: false}
          tensors:
            model.layers.0.self_attn.k_proj.k_scale: "F32 []"
            model.layers.0.self_attn.v_proj.v_scale: "F32 []"
    """
    layers = layers_of(ctx, complete=True)
    key = _kv_key(layers) if layers is not None else None
    if layers is None or key is None or _kv_scales(layers):
        return None
    if ctx.plan.rollout.kv_cache_dtype not in {None, "auto", "fp8", "fp8_e4m3"}:
        return None
    return about_config(
        layers,
        f"{key} is declared, but no layer has a k_scale or v_scale",
        key,
        Fix(f"remove {key}, or calibrate the KV cache"),
        Fix("rollout.kv_cache_dtype: bfloat16"),
        because="scales that are not there are 1.0",
    )


def _kv_key(layers: CheckpointLayers) -> str | None:
    config = layers.quantization
    nested = config.get("quantization")
    scheme = config.get("kv_cache_scheme")
    if isinstance(nested, dict) and nested.get("kv_cache_quant_algo"):
        return "kv_cache_quant_algo"
    if isinstance(scheme, dict) and not scheme.get("dynamic"):
        return "kv_cache_scheme"
    return None


def _kv_scales(layers: CheckpointLayers) -> list[str]:
    return [name for name in layers.files.tensors or () if name.endswith(_KV)]


_KV = (
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".k_proj.output_scale",
    ".v_proj.output_scale",
    "_cache.scale",
)


@rule(
    "PP766",
    "kv-scales-without-scheme",
    "advice",
    stage="run",
    source=(f"{_QUANT}/kv_cache.py:78-175",),
)
def kv_unused(ctx: Context) -> Found:
    """The checkpoint has k and v scales, and nothing asks for an FP8 KV cache.

    Why:
        Calibrated scales count only with an FP8 KV cache. Without a scheme in the configuration
        and without kv_cache_dtype the cache is BF16 and the scales are read for nothing.

    Bad:
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.self_attn.k_scale: "F32 []"}

    Good:
        rollout: {kv_cache_dtype: fp8}
        files:
          config:
            quantization_config: {quant_method: fp8, activation_scheme: dynamic}
          tensors: {model.layers.0.self_attn.k_scale: "F32 []"}
    """
    layers = layers_of(ctx)
    if layers is None or not layers.quantization or ctx.plan.rollout.kv_cache_dtype is not None:
        return None
    nested = layers.quantization.get("quantization")
    asked = layers.quantization.get("kv_cache_scheme") or layers.quantization.get(
        "kv_cache_quant_algo"
    )
    if asked or (isinstance(nested, dict) and nested.get("kv_cache_quant_algo")):
        return None
    found = _kv_scales(layers)
    if not found:
        return None
    return about_layers(
        ctx, "scales of a KV cache in BF16", found, Fix("rollout.kv_cache_dtype: fp8")
    )


RULES: tuple[Rule, ...] = (
    nothing_quantized,
    no_config,
    weight_dtype,
    not_e4m3,
    packed_shape,
    group_divides,
    two_configs,
    embedding,
    router,
    kv_missing,
    kv_unused,
)

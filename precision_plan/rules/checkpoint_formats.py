"""PP756 to PP761: weights of a checkpoint against the format that its configuration describes."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule
from precision_plan.rules.checkpoint_found import about_layers, layers_of
from precision_plan.rules.checkpoint_table import WEIGHTS, collapsed

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


RULES: tuple[Rule, ...] = (
    nothing_quantized,
    no_config,
    weight_dtype,
    not_e4m3,
    packed_shape,
    group_divides,
)

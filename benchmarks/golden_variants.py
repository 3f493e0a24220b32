"""How each variant of the golden vectors is made with ``precision_plan.numerics``.

``VARIANTS``: format, variant, and the function that gives the variant's artifacts by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor

from precision_plan.numerics import (
    fp8_block,
    fp8_channel,
    fp8_fnuz,
    fp8_group,
    fp8_tensor,
    int4,
    int8,
    mxfp4,
    mxfp8,
    nvfp4,
)
from precision_plan.numerics._common import to_e4m3


class Case(NamedTuple):
    """A case's name and input; ``expected`` holds inputs too where a format has a second one."""

    name: str
    input: Tensor
    expected: Mapping[str, Tensor]


Make = Callable[[Case], dict[str, Tensor]]


def block(method: str, scale: str = "scale_inv") -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = fp8_block.quantize(case.input, method=method, on_nonfinite="propagate")
        return {"q": stored.q, scale: stored.scale_inv, "dequant": fp8_block.dequantize(stored)}

    return make


def group(method: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = fp8_group.quantize(case.input, method=method)
        return {**stored._asdict(), "dequant": fp8_group.dequantize(stored)}

    return make


def tensor(method: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = fp8_tensor.quantize(case.input, method=method)
        return {**stored._asdict(), "dequant": fp8_tensor.dequantize(stored)}

    return make


def channel(method: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = fp8_channel.quantize(case.input, method=method)
        return {**stored._asdict(), "dequant": fp8_channel.dequantize(stored)}

    return make


def in_float32(make: Make) -> Make:
    return lambda case: make(case._replace(input=case.input.float()))


def mx8(rule: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = mxfp8.quantize(case.input, rule=rule, on_nonfinite="propagate")
        return {**stored._asdict(), "dequant": mxfp8.dequantize(stored)}

    return make


def mx4(rule: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = mxfp4.quantize(case.input, rule=rule)
        return {**stored._asdict(), "dequant": mxfp4.dequantize(stored)}

    return make


def nv4(variant: str) -> Make:
    """Every name that a library gives the scale of the whole tensor."""

    def make(case: Case) -> dict[str, Tensor]:
        stored = nvfp4.quantize(case.input, variant=variant)
        bound = nvfp4.VARIANTS[variant].e4m3_max
        return {
            "packed": stored.packed,
            "scale": stored.scale,
            "global_amax": stored.amax,
            "weight_scale_2": stored.scale_2.reshape(1),
            "per_tensor_scale": stored.scale_2.reshape(1),
            "weight_global_scale": stored.global_scale,
            "dequant": nvfp4.dequantize(stored, decode="amax", e4m3_max=bound),
        }

    return make


def int4_group(size: int) -> dict[str, Make]:
    def named(variant: str) -> Make:
        def make(case: Case) -> dict[str, Tensor]:
            stored = int4.quantize(case.input, group_size=size, variant=variant)
            return {**stored.stored(), "dequant": int4.dequantize(stored)}

        return make

    return {
        "ct_sym_cpu": named("ct_sym_cpu"),
        "ct_sym_fp32div": named("ct_sym_fp32div"),
        "ct_asym_cpu": named("ct_asym_cpu"),
        "slime_sym_EMULATED": named("slime"),
    }


def int8_rows(variant: str) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        stored = int8.quantize(case.input, variant=variant)
        named = {"q": stored.weight, "scale": stored.weight_scale}
        return {**named, "dequant": int8.dequantize(stored)}

    return make


def fnuz(case: Case) -> dict[str, Tensor]:
    stored = fp8_fnuz.from_ocp(case.input, case.expected["scale_in"])
    return {
        "q_fnuz_bits": stored.q.view(torch.uint8),
        "scale_in": case.expected["scale_in"],
        "scale_out": stored.scale,
    }


def saturating(case: Case) -> dict[str, Tensor]:
    return {"q": to_e4m3(case.input)}


def overflowing(x: Tensor) -> Tensor:
    """The E4M3 byte where what would round above 448 becomes NaN instead."""
    sign = torch.signbit(x).to(torch.uint8) << 7
    byte = to_e4m3(x.float()).view(torch.uint8)
    return torch.where((x.abs() > 464) | torch.isnan(x), 0x7F | sign, byte)


def one_nan(byte: Tensor) -> Tensor:
    """gfloat writes every NaN as 0xFF."""
    return byte.masked_fill((byte & 0x7F) == 0x7F, 0xFF)


def all_bfloat16(case: Case) -> dict[str, Tensor]:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    return {"bf16_bits_to_e4m3fn_mldtypes": overflowing(every)}


def special(blocks: Make | None, elements: Make | None) -> Make:
    def make(case: Case) -> dict[str, Tensor]:
        chosen = blocks if case.name.startswith("fp8_block") else elements
        return chosen(case) if chosen else {}

    return make


VARIANTS: Final[dict[str, dict[str, Make]]] = {
    "fp8_block_128x128": {
        "div_fp32": block("div_fp32"),
        "div_fp32_modelopt_fp32in": in_float32(block("div_fp32_nofloor")),
        "div_fp32_torchao": in_float32(block("div_fp32_nofloor")),
        "recip_fp32_eps1e-4": block("recip_fp32_eps1e-4"),
        "te_fp32": block("te_fp32"),
        "te_pow2": block("te_pow2"),
        "ue8m0_eps1e-4": block("ue8m0_eps1e-4"),
        "ct_cpu": block("ct_cpu", "scale"),
    },
    "fp8_act_1x128": {"te_fp32": group("te_fp32"), "te_pow2": group("te_pow2")},
    "fp8_per_tensor": {
        "div_fp32": in_float32(tensor("div_fp32")),
        "slime_native_dtype": tensor("slime_native_dtype"),
        "div_fp32_torchao": in_float32(tensor("div_fp32_nofloor")),
        "te_current_scaling": tensor("te_current_scaling"),
        "ct_cpu": tensor("ct_cpu"),
    },
    "fp8_per_channel": {
        "div_fp32": channel("div_fp32"),
        "div_fp32_torchao": in_float32(channel("div_fp32_nofloor")),
        "ct_cpu": channel("ct_cpu"),
    },
    "fp8_fnuz": {"vllm": fnuz},
    "mxfp8": {
        "ceil": mx8("ceil"),
        "ceil_torchao_rceil": mx8("ceil"),
        "ceil_vllm": mx8("ceil"),
        "floor": mx8("floor"),
        "even": mx8("even"),
        "ct": mx8("ct"),
    },
    "mxfp4": {
        "even": mx4("even"),
        "ct": mx4("ct"),
        "floor": mx4("floor"),
        "rceil": mx4("rceil"),
        "modelopt_quirk": mx4("modelopt"),
    },
    "nvfp4": {
        "te_1x16": nv4("te_1x16"),
        "te_16x16": nv4("te_16x16"),
        "te_4over6_448_MAE": nv4("te_4over6_448_MAE"),
        "te_4over6_448_MSE": nv4("te_4over6_448_MSE"),
        "te_4over6_256_MAE": nv4("te_4over6_256_MAE"),
        "te_4over6_256_MSE": nv4("te_4over6_256_MSE"),
        "modelopt": nv4("modelopt"),
        "torchao": nv4("torchao"),
        "ct": nv4("ct"),
        "ct_fp32in": nv4("ct_fp32in"),
    },
    "int4_group32": int4_group(32),
    "int4_group128": int4_group(128),
    "int8_channel": {
        "ct_cpu": int8_rows("ct_cpu"),
        "ct_fp32div": int8_rows("ct_fp32div"),
        "modelopt_fp32": int8_rows("modelopt"),
    },
    "cast_table": {"ml_dtypes": all_bfloat16},
    "cast_tables": {
        "torch_saturating": saturating,
        "gfloat_saturating": saturating,
        "mldtypes_nonsat": lambda case: {"q": overflowing(case.input)},
        "gfloat_nonsat": lambda case: {"q": one_nan(overflowing(case.input))},
    },
    "special_values": {
        "slime": special(block("div_fp32"), None),
        "te_fp32": special(block("te_fp32"), None),
        "torchao_floor": special(None, mx8("floor")),
        "torchao_rceil": special(None, mx8("ceil")),
        "modelopt": special(None, mx8("ceil")),
    },
}

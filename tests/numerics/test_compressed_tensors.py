"""compressed-tensors, the real package, reads our INT4, NVFP4 and INT8 to the same values."""

from __future__ import annotations

import pytest
import torch
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams

from precision_plan.numerics import int4, int8, nvfp4
from precision_plan.numerics._int4_pack import pack_words
from tests.numerics.matrices import DTYPES, matrix, same

Arguments = dict[str, object]


def scheme(**arguments: object) -> QuantizationScheme:
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**arguments))


def int4_arguments(group: int, symmetric: bool) -> Arguments:
    if group == -1:
        return {"num_bits": 4, "symmetric": symmetric, "strategy": "channel"}
    return {"num_bits": 4, "symmetric": symmetric, "strategy": "group", "group_size": group}


@pytest.mark.parametrize("columns", [1, 7, 8, 64, 100])
def test_words_are_packed_alike(columns: int) -> None:
    made = torch.Generator().manual_seed(columns)
    values = torch.randint(-8, 8, (5, columns), generator=made, dtype=torch.int8)
    assert same(pack_words((values + 8).to(torch.uint8)), pack_to_int32(values, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [32, 128, -1])
@pytest.mark.parametrize("name", sorted(int4.VARIANTS))
def test_int4_decompresses_to_our_values(name: str, group: int, dtype: torch.dtype) -> None:
    x = matrix(19, 256, dtype, group + 7)
    stored = int4.quantize(x, group_size=group, variant=name)
    symmetric = int4.VARIANTS[name].symmetric
    read = PackedQuantizationCompressor.decompress(
        {key: each.clone() for key, each in stored.stored().items()},
        scheme(**int4_arguments(group, symmetric)),
    )["weight"]
    # the package multiplies in the dtype of the scales; a product of two is rounded once
    ours = int4.dequantize(stored, dtype=stored.weight_scale.dtype)
    assert torch.equal(read, ours)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("wide", [True, False])
def test_int4_is_quantized_alike(
    wide: bool, symmetric: bool, group: int, dtype: torch.dtype
) -> None:
    x = matrix(24, 256, dtype, 3)
    arguments = QuantizationArgs(**int4_arguments(group, symmetric))
    groups = x.view(24, -1, group)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments)
    up = torch.Tensor.float if wide else torch.Tensor.clone
    codes = quantize(up(x), up(scale), zero, arguments, dtype=torch.int8)
    name = f"ct_{'sym' if symmetric else 'asym'}_{'fp32div' if wide else 'cpu'}"
    stored = int4.quantize(x, group_size=group, variant=name)
    assert same(stored.weight_scale, scale)
    assert same(stored.weight_packed, pack_to_int32(codes, 4))
    if stored.weight_zero_point is not None:
        assert same(
            stored.weight_zero_point,
            pack_to_int32(zero.to(torch.int8), 4, packed_dim=0).contiguous(),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["te_1x16", "te_16x16", "te_4over6_256_MAE", "ct", "modelopt"])
def test_nvfp4_decompresses_to_our_values(name: str, dtype: torch.dtype) -> None:
    stored = nvfp4.quantize(matrix(19, 96, dtype, 1), variant=name)
    arguments: Arguments = {
        "num_bits": 4,
        "type": "float",
        "symmetric": True,
        "strategy": "tensor_group",
        "group_size": 16,
    }
    read = NVFP4PackedCompressor.decompress(
        stored.stored("compressed-tensors"), scheme(**arguments)
    )
    ours = nvfp4.dequantize(stored, decode="global_scale", dtype=torch.bfloat16)
    assert torch.equal(read["weight"], ours)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [True, False])
def test_int8_is_quantized_and_read_alike(wide: bool, dtype: torch.dtype) -> None:
    x = matrix(24, 100, dtype, 5)
    arguments = QuantizationArgs(num_bits=8, symmetric=True, strategy="channel")
    scale, zero = calculate_qparams(x.amin(-1, keepdim=True), x.amax(-1, keepdim=True), arguments)
    up = torch.Tensor.float if wide else torch.Tensor.clone
    codes = quantize(up(x), up(scale), zero, arguments, dtype=torch.int8)
    stored = int8.quantize(x, variant="ct_fp32div" if wide else "ct_cpu")
    assert same(stored.weight_scale, scale)
    assert same(stored.weight, codes)
    read = dequantize(stored.weight, stored.weight_scale, args=arguments)
    assert torch.equal(read, int8.dequantize(stored, dtype=dtype))

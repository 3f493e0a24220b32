"""Number formats against their own arithmetic and against torch."""

import math

import pytest

from precision_plan.facts.formats import NumberFormat, formats

FLOATS = [row for row in formats().values() if row.kind == "float"]
SCALED = [row for row in formats().values() if row.kind == "scaled"]


def _ids(row: NumberFormat) -> str:
    return row.name


@pytest.mark.parametrize("row", FLOATS, ids=_ids)
def test_bits_add_up(row: NumberFormat) -> None:
    stored = 1 + row.exponent_bits + row.mantissa_bits
    assert stored == (19 if row.name == "tf32" else row.bits)


@pytest.mark.parametrize("row", FLOATS, ids=_ids)
def test_smallest_values_follow_from_the_bias(row: NumberFormat) -> None:
    assert row.bias is not None and row.min_subnormal is not None
    assert row.min_normal == 2.0 ** (1 - row.bias)
    assert row.min_subnormal == row.min_normal * 2.0**-row.mantissa_bits


@pytest.mark.parametrize("row", FLOATS, ids=_ids)
def test_largest_value_follows_from_the_encoding(row: NumberFormat) -> None:
    """The top code is lost to infinity and NaN, to one NaN code, or to nothing."""
    assert row.bias is not None
    top = 2**row.exponent_bits - 1
    step = 2.0**-row.mantissa_bits
    if row.has_infinity:
        largest = 2.0 ** (top - 1 - row.bias) * (2 - step)
    elif row.has_nan and not row.name.endswith("fnuz"):
        largest = 2.0 ** (top - row.bias) * (2 - 2 * step)
    else:
        largest = 2.0 ** (top - row.bias) * (2 - step)
    assert row.max_finite == largest


@pytest.mark.parametrize("row", FLOATS, ids=_ids)
def test_torch_agrees(row: NumberFormat) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, row.torch_dtype, None) if row.torch_dtype else None
    if dtype is None or row.torch_dtype == "float4_e2m1fn_x2":
        pytest.skip("torch has no scalar type of this format")
    info = torch.finfo(dtype)
    assert (info.max, info.smallest_normal, info.bits) == (row.max_finite, row.min_normal, row.bits)


@pytest.mark.parametrize("row", SCALED, ids=_ids)
def test_a_scaled_format_is_made_of_known_formats(row: NumberFormat) -> None:
    assert row.element is not None and row.scale_dtype is not None
    element, scale = formats()[row.element], formats()[row.scale_dtype]
    assert (row.bits, row.max_finite) == (element.bits, element.max_finite)
    assert row.scale_bits == scale.bits


@pytest.mark.parametrize(
    ("name", "weights", "activations"),
    [
        ("bf16", 2.0, 2.0),
        ("fp8_block", 1 + 4 / (128 * 128), 1 + 4 / 128),
        ("fp8_per_tensor", 1.0, 1.0),
        ("mxfp8", 1 + 1 / 32, 1 + 1 / 32),
        ("mxfp4", 0.5 + 1 / 32, 0.5 + 1 / 32),
        ("nvfp4", 0.5 + 1 / 16, 0.5 + 1 / 16),
    ],
)
def test_bytes_with_scales(name: str, weights: float, activations: float) -> None:
    row = formats()[name]
    assert math.isclose(row.bytes_per_element, weights)
    assert math.isclose(row.activation_bytes_per_element, activations)


def test_int4_bytes_depend_on_the_group() -> None:
    int4 = formats()["int4"]
    assert int4.bytes_with_block((1, 32)) == 0.5 + 2 / 32
    assert int4.bytes_with_block((1, 128)) == 0.5 + 2 / 128

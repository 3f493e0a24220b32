"""The shared parts: checks, strips, block views, casts, exponents, nibbles, gradient."""

from __future__ import annotations

import math

import pytest
import torch

from precision_plan.numerics import _common as c

NAN, INF = float("nan"), float("inf")


def bits(x: torch.Tensor) -> list[int]:
    return x.view(torch.uint8).flatten().tolist()


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_the_first_value_that_is_not_finite_is_named(value: float) -> None:
    x = torch.zeros(2, 3, 5)
    x[1, 2, 4] = NAN
    x[1, 0, 2] = value
    with pytest.raises(c.NonFiniteInput, match=r"^experts\.w1\[1, 0, 2\] is .*; 2 elements") as e:
        c.require_finite(x, "experts.w1", "raise")
    assert e.value.index == (1, 0, 2)
    assert e.value.count == 2
    c.require_finite(x, "experts.w1", "propagate")


def test_the_place_is_right_beyond_the_first_strip() -> None:
    x = torch.zeros(700, 1000)
    x[650, 7] = INF
    error = c.first_non_finite(x, "w")
    assert error is not None
    assert str(error) == "w[650, 7] is inf"


def test_finite_maxima_spare_the_search() -> None:
    x = torch.tensor([[NAN]])
    c.require_finite(x, "w", "raise", amax=torch.zeros(1))
    with pytest.raises(c.NonFiniteInput):
        c.require_finite(x, "w", "raise", amax=x.abs())
    with pytest.raises(ValueError, match="unknown on_nonfinite 'ignore'"):
        c.require_finite(x, "w", "ignore")  # type: ignore[arg-type]


def test_dtypes_and_shapes_are_checked_by_name() -> None:
    with pytest.raises(TypeError, match=r"w has dtype torch\.float64"):
        c.require_float(torch.zeros(1, dtype=torch.float64), "w")
    with pytest.raises(ValueError, match=r"w has shape \[2, 2, 2\]"):
        c.require_matrix(torch.zeros(2, 2, 2), "w")
    with pytest.raises(ValueError, match="w: the last dimension is 33, not a multiple of 32"):
        c.require_multiple(33, 32, "w")


@pytest.mark.parametrize(("rows", "columns", "height"), [(1, 1, 1), (1000, 3000, 128), (5, 0, 16)])
def test_strips_cover_all_rows_in_steps_of_the_block(rows: int, columns: int, height: int) -> None:
    found = list(c.strips(torch.empty(rows, columns, device="meta"), height))
    covered = [row for strip in found for row in range(strip.start, strip.stop)]
    assert covered == list(range(rows if columns else 0))
    assert all(strip.start % height == 0 for strip in found)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 8), (5, 8), (9, 17)])
def test_block_views_come_back(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    blocks = c.block_view(x, 4, 8)
    assert blocks.shape == (c.blocks_of(shape[0], 4), 4, c.blocks_of(shape[1], 8), 8)
    assert torch.equal(c.from_blocks(blocks, *shape), x)
    amax = c.amax_blocks(x, 4, 8)
    assert amax[0, 0] == x[:4, :8].abs().max()
    assert torch.equal(c.expand_blocks(amax, 4, 8, *shape)[-1, -1], amax[-1, -1])


def test_e4m3_rounds_to_even_and_saturates_on_every_torch() -> None:
    x = torch.tensor([0.0, -0.0, 2**-10, 3 * 2**-10, 464.0, 465.0, 1e9, -INF, NAN, 17.0, 19.0])
    expected = [0, 0x80, 0, 2, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x58, 0x5A]
    assert [code & 0x7F if code == 0xFF else code for code in bits(c.to_e4m3(x))] == expected


def test_e5m2_saturates() -> None:
    x = torch.tensor([57344.0, 61440.0, INF, -INF, -0.0, NAN])
    found = bits(c.to_e5m2(x))
    assert found[:5] == [0x7B, 0x7B, 0x7B, 0xFB, 0x80]
    assert math.isnan(float(c.to_e5m2(x)[5]))


def test_fnuz_has_one_zero_and_saturates_at_240() -> None:
    x = torch.tensor([0.0, -0.0, -1e-9, 240.0, 1e9, -INF, NAN, 2**-10])
    assert bits(c.to_e4m3_fnuz(x)) == [0, 0, 0, 0x7F, 0x7F, 0xFF, 0x80, 1]


def test_e2m1_ties_signs_and_saturation() -> None:
    x = torch.tensor([0.25, -0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.0, -0.2, 5.01, -1e30, INF])
    assert c.to_e2m1(x).tolist() == [0, 8, 2, 2, 4, 4, 6, 6, 0, 8, 7, 15, 7]
    assert c.to_e2m1(x, keep_negative_zero=True).tolist()[8] == 8


def test_e2m1_next_to_each_tie_goes_to_the_nearer_side() -> None:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    low = c.to_e2m1(torch.nextafter(ties, torch.zeros(7)))
    high = c.to_e2m1(torch.nextafter(ties, torch.full((7,), 9.0)))
    assert low.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert high.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_e2m1_codes_come_back() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    values = c.from_e2m1(codes)
    assert values[:8].tolist() == list(c.E2M1_MAGNITUDES)
    assert torch.equal(c.to_e2m1(values, keep_negative_zero=True), codes)


def test_ue8m0_is_exact_for_every_byte() -> None:
    byte = torch.arange(256)
    value, inverse = c.from_ue8m0(byte), c.inverse_ue8m0(byte)
    assert [float(v) for v in value[:255]] == [2.0 ** (b - 127) for b in range(255)]
    assert bool((value[:255] * inverse[:255] == 1).all())
    assert math.isnan(float(value[255])) and math.isnan(float(inverse[255]))


def test_exponents_round_as_asked() -> None:
    x = torch.tensor([1.0, 1.5, 2.0, 0.0, 1e-45])
    assert (c.exponent_byte(x)).tolist() == [127, 127, 128, 0, 0]
    assert (c.exponent_byte(x, 0x7FFFFF)).tolist() == [127, 128, 128, 0, 1]
    assert (c.exponent_byte(x, 0x7FFFFF - 0x400000)).tolist() == [127, 127, 128, 0, 0]


def test_nibbles_low_first() -> None:
    codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    packed = c.pack_nibbles(codes)
    assert packed.tolist() == [[0x21, 0x0F]]
    assert torch.equal(c.unpack_nibbles(packed), codes)
    with pytest.raises(ValueError, match="not a multiple of 2"):
        c.pack_nibbles(codes[:, :3])


def test_the_gradient_is_the_identity_inside() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    fake = torch.tensor([1.5, 2.5, 2.5])
    out = c.straight_through(x, fake)
    assert torch.equal(out, fake)
    (out * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 10.0, 100.0]
    x.grad = None
    c.straight_through(x, fake, torch.tensor([True, True, False])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0, 0.0]


def test_storage_counts_bytes() -> None:
    assert c.Storage("weight_scale_inv", torch.float32, (3, 5)).nbytes == 60

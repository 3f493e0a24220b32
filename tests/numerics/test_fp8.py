"""Block, group, tensor and channel FP8: fixed vectors, edge cases and properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precision_plan.numerics import fp8_block, fp8_channel, fp8_fnuz, fp8_group, fp8_tensor
from precision_plan.numerics._common import NonFiniteInput, expand_blocks
from tests._hypothesis import examples
from tests.numerics.drawing import make, tensors
from tests.numerics.scalar import e4m3

NAN, INF = float("nan"), float("inf")
SAFE = tuple(m for m in fp8_block.METHODS if m != "div_fp32_nofloor")
BLOCKS = st.sampled_from([(1, 1), (2, 3), (4, 8), (16, 16), (128, 128), (1, 128)])


def codes(q: Tensor) -> list[int]:
    return q.view(torch.uint8).flatten().tolist()


# --- Vectors computed by hand --------------------------------------------------------------------


def test_a_block_by_hand() -> None:
    """amax 3.5: scale 1/128 exactly, so each code is E4M3(128 x)."""
    x = torch.tensor([[3.5, -1.75, 0.0], [-0.0, 0.0078125, 0.001]])
    stored = fp8_block.quantize(x)
    assert stored.scale_inv.tolist() == [[0.0078125]]
    # 448, -224, 0, -0, 1, 0.128 (the nearest is 0.125)
    assert codes(stored.q) == [0x7E, 0xF6, 0x00, 0x80, 0x38, 0x20]
    assert fp8_block.dequantize(stored).tolist()[0] == [3.5, -1.75, 0.0]


@pytest.mark.parametrize(
    ("method", "scale", "one_third"),
    [
        ("div_fp32", 1 / 448, 149.333),
        ("te_fp32", 1 / 448, 149.333),
        ("te_pow2", 2**-8, 85.333),
        ("ue8m0_eps1e-4", 2**-8, 85.333),
        ("ct_cpu", 1 / 448, 149.333),
    ],
)
def test_methods_on_a_maximum_of_one(method: str, scale: float, one_third: float) -> None:
    stored = fp8_block.quantize(torch.tensor([[1.0, 1 / 3]]), method=method)
    assert math.isclose(float(stored.scale_inv), scale, rel_tol=2**-23)
    assert codes(stored.q) == [e4m3(1 / scale), e4m3(one_third)]


@pytest.mark.parametrize(
    ("method", "scale"),
    [
        ("div_fp32", 1e-12 / 448),
        ("recip_fp32_eps1e-4", 1e-4 / 448),
        ("recip_fp32_eps1e-10", 1e-10 / 448),
        ("ue8m0_eps1e-4", 2.0**-22),
        ("te_fp32", 1.0),
        ("te_pow2", 1.0),
        ("ct_cpu", 2.0**-23),
    ],
)
def test_zeros_have_a_finite_scale_and_keep_their_sign(method: str, scale: float) -> None:
    stored = fp8_block.quantize(torch.tensor([[0.0, -0.0]]), method=method)
    assert math.isclose(float(stored.scale_inv), scale, rel_tol=2**-22)
    assert codes(stored.q) == [0x00, 0x80]


def test_the_floor_is_rounded_to_the_dtype_of_the_input() -> None:
    seen = {
        dtype: float(fp8_block.quantize(torch.zeros(1, 1, dtype=dtype)).scale_inv)
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    assert math.isclose(seen[torch.bfloat16] * 448, 141 / 128 * 2.0**-40, rel_tol=1e-6)
    assert seen[torch.float32] == seen[torch.float16] < seen[torch.bfloat16]


def test_without_a_floor_zeros_become_nan_as_in_the_libraries() -> None:
    stored = fp8_block.quantize(torch.zeros(1, 2), method="div_fp32_nofloor")
    assert float(stored.scale_inv) == 0.0
    assert torch.isnan(stored.q.float()).all()


def test_division_and_reciprocal_differ_in_some_codes() -> None:
    x = make("normal", (512, 512), torch.bfloat16, 0)
    one, other = (
        fp8_block.quantize(x, block=(16, 16), method=m) for m in ("div_fp32", "recip_fp32_eps1e-10")
    )
    assert torch.equal(one.scale_inv, other.scale_inv)
    share = (one.q.view(torch.uint8) != other.q.view(torch.uint8)).float().mean()
    assert 0 < float(share) < 2e-3


def test_arithmetic_in_bfloat16_costs_three_percent_of_the_codes() -> None:
    x = make("normal", (512, 512), torch.bfloat16, 0)
    exact = fp8_tensor.quantize(x)
    native = fp8_tensor.quantize(x, method="slime_native_dtype")
    assert torch.equal(exact.scale, native.scale)
    share = (exact.q.view(torch.uint8) != native.q.view(torch.uint8)).float().mean()
    assert 0.01 < float(share) < 0.06


def test_an_encode_scale_that_overflows_is_cut() -> None:
    x = torch.full((1, 1), 1e-37)
    assert float(fp8_block.quantize(x, method="te_fp32").scale_inv) == float(
        1 / torch.tensor(torch.finfo(torch.float32).max)
    )
    assert torch.isfinite(fp8_block.dequantize(fp8_block.quantize(x, method="te_pow2"))).all()


# --- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_the_element_that_is_not_finite_is_named(bad: float) -> None:
    x = torch.zeros(300, 200)
    x[257, 131] = bad
    for module in (fp8_block, fp8_group, fp8_tensor, fp8_channel, fp8_fnuz):
        with pytest.raises(NonFiniteInput, match=r"^w1\[257, 131\] is "):
            module.quantize(x, name="w1")


def test_values_that_are_not_finite_can_pass() -> None:
    x = torch.ones(1, 4)
    x[0, 1] = NAN
    stored = fp8_block.quantize(x, block=(1, 2), on_nonfinite="propagate")
    assert torch.isnan(fp8_block.dequantize(stored, block=(1, 2))).tolist() == [
        [True, True, False, False]
    ]
    x[0, 1] = INF
    stored = fp8_block.quantize(x, block=(1, 2), on_nonfinite="propagate")
    assert stored.scale_inv.tolist()[0][0] == INF
    assert codes(stored.q)[0] == 0 and math.isnan(float(stored.q[0, 1]))


def test_what_does_not_fit_is_refused() -> None:
    x = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="unknown method 'exact'; known: div_fp32"):
        fp8_block.quantize(x, method="exact")
    with pytest.raises(ValueError, match=r"block \[0, 128\]"):
        fp8_block.quantize(x, block=(0, 128))
    with pytest.raises(TypeError, match=r"torch\.int32"):
        fp8_group.quantize(x.int())
    with pytest.raises(ValueError, match=r"scale_inv has shape \[1, 1\].*needs \[2, 2\]"):
        fp8_block.dequantize(fp8_block.quantize(x), block=(2, 2))


# --- Properties ----------------------------------------------------------------------------------


@given(tensors(), BLOCKS, st.sampled_from([m for m in SAFE if m != "ct_cpu"]))
@examples(150)
def test_block_error_is_at_most_half_a_step(x: Tensor, block: tuple[int, int], method: str) -> None:
    """|x' - x| <= 2^-4 |x| for normal codes, half of 2^-9 scales for subnormal ones."""
    stored = fp8_block.quantize(x, block=block, method=method)
    exact, scale = x.double(), expand_blocks(stored.scale_inv.double(), *block, *x.shape)
    assert stored.q.shape == x.shape and torch.isfinite(stored.q.float()).all()
    error = (stored.q.double() * scale - exact).abs()
    bound = (exact.abs() * 2**-4).maximum(scale * 2**-10) * (1 + 2**-20) + 2.0**-149 * 448
    assert bool((error <= bound).all())


@given(tensors(kinds=("normal", "wide", "outlier", "signed_zeros")), BLOCKS)
@examples(60)
def test_power_of_two_scales_make_it_idempotent(x: Tensor, block: tuple[int, int]) -> None:
    once = fp8_block.dequantize(fp8_block.quantize(x, block=block, method="te_pow2"), block=block)
    again = fp8_block.dequantize(
        fp8_block.quantize(once, block=block, method="te_pow2"), block=block
    )
    assert torch.equal(once, again)


@given(tensors(kinds=("normal", "wide", "outlier", "signed_zeros")), BLOCKS)
@examples(60)
def test_codes_are_idempotent_with_float32_scales(x: Tensor, block: tuple[int, int]) -> None:
    """The maximum's code is 448, so the scale comes back but for its last bit; codes stay."""
    first = fp8_block.quantize(x.float(), block=block)
    second = fp8_block.quantize(fp8_block.dequantize(first, block=block), block=block)
    assert torch.equal(first.q.view(torch.uint8), second.q.view(torch.uint8))
    assert torch.allclose(first.scale_inv, second.scale_inv, rtol=2**-22, atol=0)


@given(tensors(), st.sampled_from(SAFE))
@examples(60)
def test_order_is_kept_inside_a_block(x: Tensor, method: str) -> None:
    stored = fp8_block.quantize(x, method=method)
    order = x.float().flatten().argsort()
    values = stored.q.float().flatten()[order]
    assert bool((values[1:] >= values[:-1]).all())


@given(tensors(), st.sampled_from(SAFE))
@examples(40)
def test_formats_are_block_fp8_with_other_blocks(x: Tensor, method: str) -> None:
    n, k = x.shape
    if method in fp8_group.METHODS:
        group = fp8_group.quantize(x, group=7, method=method)
        assert same(group, fp8_block.quantize(x, block=(1, 7), method=method))
    if method in fp8_channel.METHODS:
        channel = fp8_channel.quantize(x, method=method)
        assert same(channel, fp8_block.quantize(x, block=(1, k), method=method))
    if method in fp8_tensor.METHODS:
        whole = fp8_tensor.quantize(x, method=method)
        assert same(whole, fp8_block.quantize(x, block=(n, k), method=method))


def same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return all(
        codes(a.contiguous()) == codes(b.contiguous()) for a, b in zip(one, other, strict=True)
    )


@given(tensors(rows=300, columns=300, kinds=("normal", "wide")))
@examples(20)
def test_a_ragged_block_equals_the_block_alone(x: Tensor) -> None:
    stored = fp8_block.quantize(x)
    down, across = stored.scale_inv.shape
    corner = x[(down - 1) * 128 :, (across - 1) * 128 :]
    alone = fp8_block.quantize(corner)
    assert float(alone.scale_inv) == float(stored.scale_inv[-1, -1])
    part = stored.q[(down - 1) * 128 :, (across - 1) * 128 :].contiguous()
    assert codes(part) == codes(alone.q)


@pytest.mark.parametrize("method", SAFE)
@pytest.mark.parametrize("kind", ["normal", "wide", "bits"])
def test_division_agrees_with_exact_fractions(method: str, kind: str) -> None:
    """Given the scale, codes are those of a scalar rounding of the float32 quotient."""
    if method == "ct_cpu":
        method = "div_fp32"
    x = make(kind, (16, 16), torch.float32, 3).clamp(-1e30, 1e30)
    stored = fp8_block.quantize(x, method=method)
    scale = stored.scale_inv.reshape(())
    if method.startswith("te"):
        encode = torch.tensor(448.0) / x.abs().max()
        if method == "te_pow2":
            encode = 1 / scale
        quotient = x * encode
    else:
        quotient = x * (1 / scale) if "recip" in method or "ue8m0" in method else x / scale
    assert codes(stored.q) == [e4m3(value) for value in quotient.flatten().tolist()]


# --- Other forms ---------------------------------------------------------------------------------


def test_a_shared_maximum_gives_one_scale() -> None:
    q, k = make("normal", (4, 8), torch.bfloat16, 1), make("normal", (2, 8), torch.bfloat16, 2)
    amax = torch.maximum(fp8_tensor.amax(q), fp8_tensor.amax(k))
    joint = fp8_tensor.quantize(torch.cat([q, k]))
    parts = [fp8_tensor.quantize(x, amax=amax) for x in (q, k)]
    assert all(torch.equal(part.scale, joint.scale) for part in parts)
    assert codes(torch.cat([part.q.view(torch.uint8) for part in parts])) == codes(joint.q)


def test_leading_dimensions_stay() -> None:
    x = make("normal", (2, 3, 200), torch.bfloat16, 1)
    stored = fp8_group.quantize(x)
    assert stored.q.shape == (2, 3, 200) and stored.scale_inv.shape == (2, 3, 2)
    assert torch.equal(
        fp8_group.dequantize(stored)[1, 2], fp8_group.dequantize(fp8_group.quantize(x[1, 2]))
    )


def test_the_fnuz_view_keeps_every_value() -> None:
    byte = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(1, 256)
    q = byte.view(torch.float8_e4m3fn)
    seen = fp8_fnuz.from_ocp(q, torch.tensor([[0.5]]))
    assert seen.scale.tolist() == [[1.0]]
    values = q.float() * 0.5
    nan = torch.isnan(values)
    assert int(nan.sum()) == 2 and torch.equal(torch.isnan(seen.q.float()), nan)
    assert torch.equal((seen.q.float() * seen.scale)[~nan], values[~nan])


def test_power_of_two_scales_fit_a_byte() -> None:
    scale = torch.tensor([[1.0, 2.0**-126, 2.0**127]])
    found = fp8_block.scale_bytes(scale)
    assert found is not None and found.tolist() == [[127, 1, 254]]
    for bad in (1.5, 0.0, -1.0, INF, NAN, 2.0**-127):
        assert fp8_block.scale_bytes(torch.tensor([[1.0, bad]])) is None


# --- Fake quantization and storage ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_quantization_has_the_gradient_of_the_identity(dtype: torch.dtype) -> None:
    for module in (fp8_block, fp8_group, fp8_tensor, fp8_channel, fp8_fnuz):
        x = make("outlier", (5, 9), dtype, 1).requires_grad_()
        fake = module.fake_quantize(x)
        assert fake.dtype == dtype and not torch.equal(fake, x)
        weights = torch.arange(45.0).view(5, 9).to(dtype)
        (fake * weights).sum().backward()
        assert x.grad is not None and torch.equal(x.grad, weights)


def test_a_given_scale_saturates_and_stops_the_gradient_there() -> None:
    x = torch.tensor([1.0, -447.0, 448.0, 449.0, -1e6], requires_grad=True)
    fake = fp8_tensor.fake_quantize(x, scale=torch.tensor([1.0]))
    assert fake.tolist() == [1.0, -448.0, 448.0, 448.0, -448.0]
    fake.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


@given(st.integers(1, 300), st.integers(1, 300))
@examples(30)
def test_storage_tells_what_quantize_gives(n: int, k: int) -> None:
    for module in (fp8_block, fp8_group, fp8_tensor, fp8_channel, fp8_fnuz):
        stored = module.quantize(torch.zeros(n, k))
        rows = module.storage((n, k))
        assert [(r.dtype, r.shape) for r in rows] == [(t.dtype, tuple(t.shape)) for t in stored]
        assert [r.nbytes for r in rows] == [t.numel() * t.itemsize for t in stored]


def test_names_on_disk() -> None:
    assert [r.name for r in fp8_block.storage((8, 8))] == ["weight", "weight_scale_inv"]
    assert [r.name for r in fp8_channel.storage((8, 8))] == ["weight", "weight_scale"]

"""MXFP8 and MXFP4: exponent rules, fixed vectors, edge cases and properties."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precision_plan.numerics import fp8_block, mxfp4, mxfp8
from precision_plan.numerics._common import NonFiniteInput, from_e2m1, from_ue8m0, unpack_nibbles
from tests._hypothesis import examples
from tests.numerics.drawing import make, tensors
from tests.numerics.scalar import E2M1, E4M3, e2m1, e4m3, exponent_ceil

NAN, INF = float("nan"), float("inf")
FORMATS = (mxfp8, mxfp4)
RULES = [(module, rule) for module in FORMATS for rule in module.RULES]
GREATEST = {mxfp8: 448.0, mxfp4: 6.0}


def one_block(*values: float) -> Tensor:
    return torch.tensor([[*values, *[0.0] * (32 - len(values))]])


def byte_of(module: ModuleType, amax: float, rule: str) -> int:
    return int(module.quantize(one_block(-amax), rule=rule).scale)


# --- Vectors computed by hand --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amax", "floor", "ceil", "ct", "even", "ceil_pow2"),
    [
        (448.0, 127, 127, 128, 127, 128),
        (447.99, 127, 127, 127, 127, 128),
        (449.0, 127, 128, 128, 127, 128),
        (480.0, 127, 128, 128, 127, 128),
        (496.0, 127, 128, 128, 128, 128),
        (511.0, 127, 128, 128, 128, 128),
        (256.0, 127, 127, 127, 127, 127),
        (512.0, 128, 128, 128, 128, 128),
        (1.75, 119, 119, 120, 119, 120),
        (1.7500001, 119, 120, 120, 119, 120),
        (1.0, 119, 119, 119, 119, 119),
        (0.0, 0, 0, 0, 0, 0),
        (2.0**-119, 0, 0, 0, 0, 0),
        (1.9375 * 2.0**-119, 0, 1, 1, 1, 1),
        (1e-45, 0, 0, 0, 0, 0),
        (3.4e38, 246, 247, 247, 247, 247),
    ],
)
def test_mxfp8_exponents(
    amax: float, floor: int, ceil: int, ct: int, even: int, ceil_pow2: int
) -> None:
    expected = {"floor": floor, "ceil": ceil, "ct": ct, "even": even, "ceil_pow2": ceil_pow2}
    assert {rule: byte_of(mxfp8, amax, rule) for rule in mxfp8.RULES} == expected


@pytest.mark.parametrize(
    ("amax", "floor", "rceil", "even", "ceil_pow2"),
    [
        (6.0, 127, 127, 127, 128),
        (6.1, 127, 128, 127, 128),
        (7.0, 127, 128, 128, 128),
        (4.0, 127, 127, 127, 127),
        (8.0, 128, 128, 128, 128),
        (0.0, 0, 0, 0, 0),
    ],
)
def test_mxfp4_exponents(amax: float, floor: int, rceil: int, even: int, ceil_pow2: int) -> None:
    expected = {"floor": floor, "rceil": rceil, "even": even, "ceil_pow2": ceil_pow2}
    expected |= {"ct": even, "modelopt": rceil}
    assert {rule: byte_of(mxfp4, amax, rule) for rule in mxfp4.RULES} == expected


def test_a_block_of_mxfp8_by_hand() -> None:
    """amax 480 saturates under floor and halves everything under ceil."""
    x = one_block(480.0, -1.0, -0.0, 17.0, 2.0**-10, 3 * 2.0**-10)
    floor = mxfp8.quantize(x, rule="floor")
    assert floor.q.view(torch.uint8)[0, :6].tolist() == [0x7E, 0xB8, 0x80, 0x58, 0x00, 0x02]
    ceil = mxfp8.quantize(x)
    assert ceil.q.view(torch.uint8)[0, :6].tolist() == [0x77, 0xB0, 0x80, 0x50, 0x00, 0x01]
    assert mxfp8.dequantize(ceil)[0, :2].tolist() == [480.0, -1.0]


def test_a_block_of_mxfp4_by_hand() -> None:
    x = one_block(6.0, -0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.0, -0.2)
    packed = {rule: mxfp4.quantize(x, rule=rule).packed[0, :5].tolist() for rule in mxfp4.RULES}
    assert packed["even"] == packed["floor"] == packed["rceil"] == [0x87, 0x22, 0x44, 0x66, 0x88]
    assert packed["ct"] == [0x87, 0x22, 0x44, 0x66, 0x80]
    assert packed["modelopt"] == [0x87, 0x21, 0x43, 0x65, 0x88]


def test_zeros_of_modelopt_carry_the_sign() -> None:
    stored = mxfp4.quantize(torch.zeros(1, 32), rule="modelopt")
    assert stored.packed.unique().tolist() == [0x88] and int(stored.scale) == 0
    assert not mxfp4.dequantize(stored).any()


@pytest.mark.parametrize("module", FORMATS)
def test_zeros_have_byte_zero(module: ModuleType) -> None:
    stored = module.quantize(torch.zeros(2, 64, dtype=torch.bfloat16))
    assert not stored[0].view(torch.uint8).any() and not stored.scale.any()
    assert not module.dequantize(stored).any()


# --- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("module", FORMATS)
def test_what_cannot_be_stored_is_named(module: ModuleType) -> None:
    x = torch.zeros(3, 70, 64)
    x[2, 69, 63] = -INF
    with pytest.raises(NonFiniteInput, match=r"^w2\[2, 69, 63\] is -inf$"):
        module.quantize(x, name="w2")
    with pytest.raises(ValueError, match="w2: the last dimension is 33, not a multiple of 32"):
        module.quantize(torch.zeros(2, 33), name="w2")
    with pytest.raises(ValueError, match="unknown rule 'up'; known: "):
        module.quantize(torch.zeros(2, 32), rule="up")
    with pytest.raises(ValueError, match="not a multiple of 32"):
        module.storage((4, 40))


@pytest.mark.parametrize(("module", "rule"), RULES)
def test_nan_makes_its_block_nan(module: ModuleType, rule: str) -> None:
    x = make("normal", (1, 64), torch.float32, 0)
    clean = module.dequantize(module.quantize(x, rule=rule))
    x[0, 5] = NAN
    stored = module.quantize(x, rule=rule, on_nonfinite="propagate")
    values = module.dequantize(stored)
    assert int(stored.scale[0, 0]) == 255 and torch.isnan(values[0, :32]).all()
    assert torch.equal(values[0, 32:], clean[0, 32:])


def test_inf_saturates_when_it_may_pass() -> None:
    x = one_block(INF, 1.0)
    stored = mxfp8.quantize(x, on_nonfinite="propagate")
    assert int(stored.scale) == 254 and float(stored.q[0, 0]) == 448.0
    assert int(mxfp8.quantize(x, rule="floor", on_nonfinite="propagate").scale) == 247


# --- Properties ----------------------------------------------------------------------------------


@given(tensors(columns=128, multiple=32))
@examples(60)
def test_mxfp8_agrees_with_exact_fractions(x: Tensor) -> None:
    x = x[:3]
    stored = mxfp8.quantize(x)
    for row, byte, code in zip(
        x.float().reshape(-1, 32).tolist(),
        stored.scale.flatten().tolist(),
        stored.q.view(torch.uint8).reshape(-1, 32).tolist(),
        strict=True,
    ):
        assert byte == exponent_ceil(max(map(abs, row)), E4M3[-1])
        assert code == [e4m3(math.ldexp(value, 127 - byte)) for value in row]


@given(tensors(columns=128, multiple=32))
@examples(60)
def test_mxfp4_agrees_with_exact_fractions(x: Tensor) -> None:
    x = x[:3]
    stored = mxfp4.quantize(x, rule="rceil")
    assert stored.scale.flatten().tolist() == [
        exponent_ceil(float(block.abs().max()), E2M1[-1]) for block in x.float().reshape(-1, 32)
    ]
    exact = mxfp4.quantize(x, rule="ct")
    codes = unpack_nibbles(exact.packed).reshape(-1, 32).tolist()
    blocks = x.float().reshape(-1, 32).tolist()
    for row, byte, code in zip(blocks, exact.scale.flatten().tolist(), codes, strict=True):
        products = torch.tensor([math.ldexp(value, 127 - byte) for value in row])
        assert code == [e2m1(product) for product in products.tolist()]  # as float32 holds them


@given(tensors(columns=128, multiple=32), st.sampled_from(RULES))
@examples(120)
def test_error_is_at_most_half_a_step(x: Tensor, chosen: tuple[ModuleType, str]) -> None:
    module, rule = chosen
    stored = module.quantize(x, rule=rule)
    scale = from_ue8m0(stored.scale).double().repeat_interleave(32, dim=-1)
    exact = x.double()
    values = stored.q if module is mxfp8 else from_e2m1(unpack_nibbles(stored.packed))
    error = (values.double() * scale - exact).abs()  # in float32 the greatest could overflow
    relative, absolute = (2**-4, 2**-10) if module is mxfp8 else (0.25, 0.25)
    bound = (exact.abs() * relative).maximum(scale * absolute)
    over = exact.abs() > GREATEST[module] * scale
    assert bool((error <= torch.where(over, exact.abs() - GREATEST[module] * scale, bound)).all())
    assert module.RULES[rule].saturates or not bool(over.any())


NOT_IDEMPOTENT = [(mxfp8, "ct"), (mxfp8, "ceil_pow2"), (mxfp4, "ceil_pow2")]
"""A maximum that is the greatest element moves the exponent of these rules up once more."""


@given(
    tensors(columns=128, multiple=32),
    st.sampled_from([chosen for chosen in RULES if chosen not in NOT_IDEMPOTENT]),
)
@examples(80)
def test_quantizing_twice_changes_nothing(x: Tensor, chosen: tuple[ModuleType, str]) -> None:
    module, rule = chosen
    once = module.dequantize(module.quantize(x, rule=rule))
    if not torch.isfinite(once).all():  # rounded up beyond the greatest float32
        return
    assert torch.equal(module.dequantize(module.quantize(once, rule=rule)), once)


@given(tensors(rows=4, columns=96, multiple=32), st.sampled_from(RULES))
@examples(60)
def test_order_is_kept_inside_a_block(x: Tensor, chosen: tuple[ModuleType, str]) -> None:
    module, rule = chosen
    values = module.dequantize(module.quantize(x, rule=rule)).reshape(-1, 32)
    order = x.float().reshape(-1, 32).argsort(dim=-1)
    ordered = values.gather(1, order)
    assert bool((ordered[:, 1:] >= ordered[:, :-1]).all())


# --- Other forms ---------------------------------------------------------------------------------


def test_block_fp8_with_powers_of_two_becomes_mxfp8_without_rounding() -> None:
    x = make("wide", (300, 160), torch.bfloat16, 5)
    stored = fp8_block.quantize(x, method="te_pow2")
    seen = mxfp8.from_block_fp8(stored)
    assert seen is not None and seen.scale.shape == (300, 5)
    assert torch.equal(mxfp8.dequantize(seen), fp8_block.dequantize(stored))
    assert mxfp8.from_block_fp8(fp8_block.quantize(x)) is None


@pytest.mark.parametrize(("module", "rule"), RULES)
def test_the_gradient_is_zero_only_where_a_value_saturates(module: ModuleType, rule: str) -> None:
    greatest = GREATEST[module] * 1.0625  # between the greatest element and the next exponent
    x = one_block(greatest, 1.0, -greatest).requires_grad_()
    module.fake_quantize(x, rule=rule).sum().backward()
    saturates = rule in ({"floor", "even"} if module is mxfp8 else {"floor", "even", "ct"})
    assert x.grad is not None
    assert x.grad[0, :3].tolist() == ([0.0, 1.0, 0.0] if saturates else [1.0, 1.0, 1.0])


@pytest.mark.parametrize("module", FORMATS)
def test_shapes_and_storage(module: ModuleType) -> None:
    for shape in [(32,), (1, 32), (3, 96), (2, 5, 64), (0, 64)]:
        stored = module.quantize(torch.zeros(shape, dtype=torch.bfloat16))
        rows = module.storage(shape)
        assert [(r.dtype, r.shape) for r in rows] == [(t.dtype, tuple(t.shape)) for t in stored]
        assert module.dequantize(stored, dtype=torch.bfloat16).shape == shape

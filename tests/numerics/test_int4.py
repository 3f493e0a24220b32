"""INT4 by groups and AWQ: formulas by hand, packing orders, edges, fake quantization."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.numerics import _common, int4, int4_awq
from precision_plan.numerics._common import NonFiniteInput
from precision_plan.numerics._int4_pack import AWQ_ORDER, PLAIN_ORDER, pack_words, unpack_words
from tests._hypothesis import examples
from tests.numerics.matrices import DTYPES, matrices, matrix, same

ALL = sorted(int4.VARIANTS)


def values(stored: int4.INT4) -> torch.Tensor:
    k = int(stored.weight_shape[-1])
    return unpack_words(stored.weight_packed, k).to(torch.int64) - 8


def hexadecimal(words: torch.Tensor) -> list[str]:
    return [f"{each & 0xFFFFFFFF:08x}" for each in words.flatten().tolist()]


def test_the_two_orders_by_hand() -> None:
    eight = torch.arange(8, dtype=torch.uint8)
    assert hexadecimal(pack_words(eight)) == ["76543210"]
    assert hexadecimal(pack_words(eight, AWQ_ORDER)) == ["75316420"]
    assert hexadecimal(pack_words(torch.full((9,), 15, dtype=torch.uint8))) == [
        "ffffffff",
        "0000000f",
    ]


@examples(60)
@given(
    k=st.integers(1, 41),
    rows=st.integers(1, 5),
    seed=st.integers(0, 999),
    order=st.sampled_from([PLAIN_ORDER, AWQ_ORDER]),
)
def test_packing_comes_back(k: int, rows: int, seed: int, order: tuple[int, ...]) -> None:
    made = torch.Generator().manual_seed(seed)
    some = torch.randint(0, 16, (rows, k), generator=made, dtype=torch.uint8)
    packed = pack_words(some, order)
    assert packed.shape == (rows, -(-k // 8))
    assert torch.equal(unpack_words(packed, k, order), some)


def test_symmetric_by_hand() -> None:
    x = torch.tensor([[7.5, -7.5, 3.4, -0.5, 0.5, 1.5, -0.0, 7.0]])
    stored = int4.quantize(x, group_size=8)
    assert stored.weight_scale.tolist() == [[1.0]]
    # 7.5 saturates at 7, its negative at -8; halves go to even
    assert values(stored).tolist() == [[7, -8, 3, 0, 0, 2, 0, 7]]
    assert hexadecimal(stored.weight_packed) == ["f8a88b0f"]
    assert stored.weight_shape.tolist() == [1, 8]
    assert stored.weight_zero_point is None
    assert int4.dequantize(stored).tolist() == [[7.0, -8.0, 3.0, 0.0, 0.0, 2.0, 0.0, 7.0]]
    by_seven = int4.quantize(x, group_size=8, divisor=7)
    assert by_seven.weight_scale.tolist() == [[pytest.approx(7.5 / 7)]]
    assert values(by_seven).tolist() == [[7, -7, 3, 0, 0, 1, 0, 7]]


def test_asymmetric_by_hand() -> None:
    x = torch.tensor([[-5.0, 10.0, 0.0, 2.5], [1.0, 15.0, 8.0, 3.0]])
    stored = int4.quantize(x, group_size=4, variant="ct_asym_fp32div")
    assert stored.weight_scale.tolist() == [[1.0], [1.0]]
    assert stored.weight_zero_point is not None
    # zero points -3 and -8, plus 8, in the two lowest nibbles
    assert hexadecimal(stored.weight_zero_point) == ["00000005"]
    assert values(stored).tolist() == [[-8, 7, -3, 0], [-7, 7, 0, -5]]
    assert int4.dequantize(stored).tolist() == [[-5.0, 10.0, 0.0, 3.0], [1.0, 15.0, 8.0, 3.0]]


def test_slime_divides_by_the_exact_scale_and_stores_a_rounded_one() -> None:
    x = matrix(40, 256, torch.bfloat16, 1, spread=0)
    stored = int4.quantize(x, variant="slime")
    groups = x.float().view(40, 2, 128)
    exact = (groups.abs().amax(-1) * torch.tensor(1 / 7)).clamp(min=1e-5)
    assert same(stored.weight_scale, exact.bfloat16())
    expected = (groups / exact.unsqueeze(-1)).round().view(40, 256)
    assert torch.equal(values(stored).float(), expected)
    assert int(values(stored).min()) == -7


def test_vime_keeps_float32_scales() -> None:
    stored = int4.quantize(torch.zeros(2, 128, dtype=torch.bfloat16), variant="vime")
    assert stored.weight_scale.dtype == torch.float32
    assert float(stored.weight_scale[0, 0]) == pytest.approx(1e-8 / 7)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_group_has_a_positive_scale_and_zero_codes(name: str, dtype: torch.dtype) -> None:
    x = matrix(9, 64, dtype, 0, spread=0)
    x[:, 32:] = -0.0
    stored = int4.quantize(x, group_size=32, variant=name)
    assert bool((stored.weight_scale > 0).all())
    assert not int4.dequantize(stored)[:, 32:].any()
    eps = float(torch.finfo(dtype).eps)
    if name.startswith("ct"):
        assert set(stored.weight_scale[:, 1].float().tolist()) == {eps}


@pytest.mark.parametrize("name", ALL)
def test_subnormal_groups_stay_finite(name: str) -> None:
    stored = int4.quantize(torch.full((2, 32), 1e-44), group_size=32, variant=name)
    assert torch.isfinite(stored.weight_scale).all()
    assert torch.isfinite(int4.dequantize(stored)).all()


@pytest.mark.parametrize("shape", [(1, 32), (9, 64), (2, 5, 32)])
@pytest.mark.parametrize("name", ["ct_sym_fp32div", "ct_asym_cpu"])
def test_storage_tells_what_is_stored(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).bfloat16()
    stored = int4.quantize(x, group_size=32, variant=name).stored()
    told = int4.storage(shape, group_size=32, symmetric=int4.VARIANTS[name].symmetric)
    assert [(each.name, each.dtype, each.shape) for each in told] == [
        (key, each.dtype, tuple(each.shape)) for key, each in stored.items()
    ]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_height_of_a_strip_and_a_third_dimension_change_nothing(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = torch.stack([matrix(19, 96, dtype, i) for i in range(3)])
    whole = int4.quantize(experts, group_size=32, variant=name)
    back = int4.dequantize(whole)
    monkeypatch.setattr(_common, "_STRIP_ELEMENTS", 96 * 5)
    for i, w in enumerate(experts):
        alone = int4.quantize(w, group_size=32, variant=name)
        for key, each in alone.stored().items():
            if key != "weight_shape":
                assert same(whole.stored()[key][i], each)
        assert same(back[i], int4.dequantize(alone))


@pytest.mark.parametrize("name", ALL)
@examples(30)
@given(x=matrices(multiple=16), seed=st.integers(0, 1))
def test_bounds_order_and_a_second_pass(name: str, x: torch.Tensor, seed: int) -> None:
    group = 16 if seed else -1
    wide = x.float()
    stored = int4.quantize(wide, group_size=group, variant=name)
    found = int4.dequantize(stored)
    groups = stored.weight_scale.shape[-1]
    step = stored.weight_scale.float().repeat_interleave(x.shape[1] // groups, dim=1)
    # half a step, a whole one for a zero point and for 7.5 that saturates at 7
    slack = 0.5001 if name in ("slime", "vime") else 1.0001
    assert bool(((found - wide).abs() <= slack * step).all())
    order = wide.view(-1, x.shape[1] // groups).argsort(dim=-1)
    sorted_back = found.view(-1, x.shape[1] // groups).gather(1, order)
    assert bool((sorted_back.diff(dim=-1) >= 0).all())
    if name in ("slime", "vime"):  # the maximum maps to 7 exactly, so the scale returns
        again = int4.dequantize(int4.quantize(found, group_size=group, variant=name))
        assert torch.allclose(found, again, rtol=1e-6, atol=0)


@pytest.mark.parametrize("columns", [128, 100, 7, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_fake_quantize_as_in_training(columns: int, dtype: torch.dtype) -> None:
    x = matrix(6, columns, dtype, columns)
    padded = torch.zeros(6, -(-columns // 32) * 32)
    padded[:, :columns] = x
    groups = padded.view(6, -1, 32)
    scale = (groups.abs().amax(-1, keepdim=True) / 7).clamp(min=1e-5)
    expected = ((groups / scale).round().clamp(-7, 7) * scale).view(6, -1)[:, :columns].to(dtype)
    leaf = x.clone().requires_grad_()
    fake = int4.fake_quantize(leaf, group_size=32)
    assert same(fake.detach(), expected)
    upstream = torch.randn(6, columns).to(dtype)
    fake.backward(upstream)
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, upstream)


def test_fake_quantize_carries_the_main_gradient() -> None:
    x = torch.randn(2, 128)
    x.main_grad = torch.zeros(2, 128)
    assert int4.fake_quantize(x).main_grad is x.main_grad


def test_the_checkpoint_is_near_what_training_saw() -> None:
    x = matrix(32, 256, torch.bfloat16, 8, spread=0)
    seen = int4.fake_quantize(x.float())
    served = int4.dequantize(int4.quantize(x, variant="slime"))
    apart = ~torch.isclose(seen, served, rtol=2**-8, atol=0)
    # training divides by 7, the packer multiplies by 1/7: a tie may fall to the other side
    assert 0 < int(apart.sum()) < 0.005 * x.numel()
    step = x.float().view(32, 2, 128).abs().amax(-1).repeat_interleave(128, dim=1) / 7
    assert bool(((seen - served).abs() <= 1.05 * step).all())


def test_awq_by_hand() -> None:
    x = torch.zeros(8, 2)
    x[:, 0], x[:, 1] = torch.arange(8.0), -7.5
    x[0] = torch.tensor([15.0, 0.0])
    stored = int4_awq.quantize(x, group_size=2)
    assert stored.scales.tolist()[0][0] == 1.0
    scales = (x.amax(1).clamp(min=0) - x.amin(1).clamp(max=0)).div(15).half()
    assert same(stored.scales, scales.view(1, 8))
    zeros = (-(x.amin(1).clamp(max=0) / scales.float()).round()).to(torch.uint8)
    assert torch.equal(unpack_words(stored.qzeros, 8, AWQ_ORDER)[0], zeros)
    assert unpack_words(stored.qweight, 8, AWQ_ORDER)[:, 0].tolist() == [15, 0]
    assert int4_awq.dequantize(stored)[0].tolist() == [15.0, 0.0]


def test_awq_of_a_group_without_a_change_of_sign() -> None:
    x = torch.linspace(10, 11, 32).repeat(8, 1)
    plain = int4_awq.dequantize(int4_awq.quantize(x, group_size=32, variant="autoawq"))
    assert bool((plain < 1.01).all())
    kept = int4_awq.dequantize(int4_awq.quantize(x, group_size=32))
    assert bool(((kept - x).abs() < 0.4).all())
    both = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    for a, b in zip(
        int4_awq.quantize(both, group_size=32),
        int4_awq.quantize(both, group_size=32, variant="autoawq"),
        strict=True,
    ):
        assert same(a, b)


@examples(30)
@given(x=matrices(multiple=16, row_multiple=8, rows=5))
def test_awq_bounds_order_and_strips(x: torch.Tensor) -> None:
    stored = int4_awq.quantize(x, group_size=16)
    found = int4_awq.dequantize(stored)
    wide = x.float()
    step = stored.scales.float().t().repeat_interleave(16, dim=1)
    assert bool(((found - wide).abs() <= 1.01 * step + 1e-6).all())
    order = wide.view(-1, 16).argsort(dim=-1)
    assert bool((found.view(-1, 16).gather(1, order).diff(dim=-1) >= 0).all())
    told = int4_awq.storage(tuple(x.shape), group_size=16)  # type: ignore[arg-type]
    assert [(each.name, each.dtype, each.shape) for each in told] == [
        (name, each.dtype, tuple(each.shape)) for name, each in stored.stored().items()
    ]
    leaf = x.clone().requires_grad_()
    fake = int4_awq.fake_quantize(leaf, group_size=16)
    assert same(fake.detach(), found.to(x.dtype))
    fake.sum().backward()
    assert leaf.grad is not None
    assert bool((leaf.grad == 1).all())


def test_awq_strips_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(48, 64, torch.bfloat16, 2)
    whole = int4_awq.quantize(x, group_size=32)
    monkeypatch.setattr(_common, "_STRIP_ELEMENTS", 64 * 8)
    parts = int4_awq.quantize(x, group_size=32)
    assert all(same(a, b) for a, b in zip(whole, parts, strict=True))
    assert same(int4_awq.dequantize(whole), int4_awq.dequantize(parts))


@pytest.mark.parametrize("quantize", [int4.quantize, int4_awq.quantize, int4.fake_quantize])
def test_what_is_not_finite_is_named(quantize) -> None:  # type: ignore[no-untyped-def]
    x = torch.zeros(8, 256)
    x[5, 200] = float("inf")
    with pytest.raises(NonFiniteInput, match=r"q_proj\[5, 200\] is inf"):
        quantize(x, name="q_proj")
    quantize(x, name="q_proj", on_nonfinite="propagate")


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="proj: the last dimension is 100, not a multiple of 128"):
        int4.quantize(torch.zeros(2, 100), name="proj")
    with pytest.raises(ValueError, match="unknown variant of INT4 'ct'; known: ct_sym_fp32div"):
        int4.quantize(torch.zeros(2, 128), variant="ct")
    with pytest.raises(ValueError, match=r"expected \[\.\.\., N, K\]"):
        int4.quantize(torch.zeros(128))
    with pytest.raises(ValueError, match="first dimension is 4, not a multiple of 8"):
        int4_awq.quantize(torch.zeros(4, 128))
    with pytest.raises(ValueError, match="more than float16 scales can hold"):
        int4_awq.quantize(torch.full((8, 128), 1e6))
    with pytest.raises(ValueError, match="not a multiple of 0"):
        int4.quantize(torch.zeros(2, 128), group_size=0)


def test_error_on_normal_values() -> None:
    x = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0)).bfloat16()

    def decibels(name: str, group: int) -> float:
        found = int4.dequantize(int4.quantize(x, group_size=group, variant=name))
        noise = (found - x.float()).pow(2).sum()
        return round(10 * float(torch.log10(x.float().pow(2).sum() / noise)), 1)

    assert decibels("ct_sym_fp32div", 128) == 19.1
    assert decibels("slime", 128) == 18.6
    assert decibels("ct_sym_fp32div", 32) == 20.5
    assert decibels("ct_asym_fp32div", 32) == 21.8

"""NVFP4: formulas by hand, ties and edges, conventions, tiles, shared scales, fake quantization."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.numerics import _common, nvfp4
from precision_plan.numerics._common import NonFiniteInput, unpack_nibbles
from tests._hypothesis import examples
from tests.numerics.matrices import DTYPES, matrices, matrix, same

ALL = sorted(nvfp4.VARIANTS)
OTHERS = ["vllm", "modelopt", "torchao", "ct", "ct_fp32in"]


def codes(stored: nvfp4.NVFP4) -> torch.Tensor:
    return unpack_nibbles(stored.packed)


def scale_bytes(stored: nvfp4.NVFP4) -> list[int]:
    return stored.scale.view(torch.uint8).flatten().tolist()


def unit(*values: float) -> torch.Tensor:
    """One row: a block with the maximum 2688, so that G is 1, then ``values`` beside a 6."""
    first = [2688.0] + [0.0] * 15
    second = [6.0, *values] + [0.0] * (15 - len(values))
    return torch.tensor([first + second])


def test_by_hand() -> None:
    stored = nvfp4.quantize(unit(0.5, -1.0, 1.5, 2.0, -3.0, 4.0))
    assert stored.scale.float().tolist() == [[448.0, 1.0]]
    assert stored.scale_2.tolist() == 1.0
    assert stored.global_scale.tolist() == [1.0]
    assert stored.amax.tolist() == [2688.0]
    # low nibble first: 6 is 7, .5 is 1; -1 is 10, 1.5 is 3; 2 is 4, -3 is 13; 4 is 6
    assert stored.packed[0, 8:12].tolist() == [0x17, 0x3A, 0xD4, 0x06]
    assert nvfp4.dequantize(stored)[0, 16:23].tolist() == [6.0, 0.5, -1.0, 1.5, 2.0, -3.0, 4.0]


def test_ties_go_to_the_even_code() -> None:
    ties = [0.25, -0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, -0.2, 5.25]
    stored = nvfp4.quantize(unit(*ties))
    assert codes(stored)[0, 17:28].tolist() == [0, 8, 2, 2, 4, 4, 6, 6, 14, 8, 7]


@pytest.mark.parametrize(
    ("amax", "block", "bytes_of"),
    [
        (0.765625, 0.68359375, {"te_1x16": 125, "vllm": 125, "modelopt": 124, "ct_fp32in": 124}),
        (1.84375, 0.1728515625, {"te_1x16": 99, "vllm": 98, "modelopt": 98, "torchao": 98}),
    ],
)
def test_the_order_of_the_arithmetic_decides_ties_of_the_scale(
    amax: float, block: float, bytes_of: dict[str, int]
) -> None:
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 16] = amax, block
    found = {name: scale_bytes(nvfp4.quantize(x, variant=name))[1] for name in bytes_of}
    assert found == bytes_of


@pytest.mark.parametrize(
    ("name", "byte"),
    [("te_1x16", 0), ("vllm", 0), ("modelopt", 0x38), ("torchao", 8), ("ct", 0x20)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_all_zero_tensor_has_finite_scales_and_zero_codes(
    name: str, byte: int, dtype: torch.dtype
) -> None:
    stored = nvfp4.quantize(torch.zeros(3, 32, dtype=dtype), variant=name)
    assert set(scale_bytes(stored)) == {byte}
    assert not stored.packed.any()
    assert torch.isfinite(stored.scale_2) and torch.isfinite(stored.global_scale)
    for decode in ("scale_2", "global_scale", "amax", "qat"):
        assert not nvfp4.dequantize(stored, decode=decode).any()


@pytest.mark.parametrize("name", ALL)
def test_a_zero_block_beside_others_has_zero_codes(name: str) -> None:
    x = matrix(16, 64, torch.bfloat16, 3, spread=0)
    x[:, 16:32] = 0
    stored = nvfp4.quantize(x, variant=name)
    assert not codes(stored)[:, 16:32].any()
    assert torch.isfinite(stored.scale.float()).all()


@pytest.mark.parametrize(
    ("name", "byte", "code"),
    [("te_1x16", 0, 7), ("vllm", 0, 0), ("modelopt", 1, 0), ("torchao", 8, 0), ("ct", 0x20, 0)],
)
def test_a_tiny_block_beside_a_large_one(name: str, byte: int, code: int) -> None:
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 16] = 1.0, 1e-7
    stored = nvfp4.quantize(x, variant=name)
    assert scale_bytes(stored)[1] == byte
    assert codes(stored)[0, 16] == code
    assert abs(float(nvfp4.dequantize(stored)[0, 16])) < 1e-6


def test_the_sign_of_zero() -> None:
    x = unit(-0.0, -0.1)
    assert codes(nvfp4.quantize(x))[0, 17:19].tolist() == [0, 8]
    assert codes(nvfp4.quantize(x, keep_negative_zero=True))[0, 17:19].tolist() == [8, 8]
    assert codes(nvfp4.quantize(x, variant="torchao"))[0, 17:19].tolist() == [8, 8]
    assert torch.signbit(nvfp4.fake_quantize(x)[0, 17:19]).all()


@pytest.mark.parametrize("value", [1e-44, 1e-36, 3.3e38])
def test_subnormal_and_huge_tensors(value: float) -> None:
    x = torch.tensor([[value, -value / 2] + [0.0] * 14])
    stored = nvfp4.quantize(x)
    assert torch.isfinite(stored.scale_2) and stored.scale_2 > 0
    assert torch.isfinite(stored.scale.float()).all()
    if value > 1e-37:  # below, both encode scales are cut at the greatest float32
        assert torch.allclose(nvfp4.dequantize(stored), x, rtol=0.04, atol=0)


def test_a_maximum_that_is_too_small_saturates() -> None:
    stored = nvfp4.quantize(unit(), amax=torch.tensor(1.0))
    assert stored.scale.float().tolist() == [[448.0, 448.0]]
    assert codes(stored)[0, 0] == 7
    assert float(nvfp4.dequantize(stored)[0, 0]) == pytest.approx(1.0)


def test_gate_and_up_share_a_scale() -> None:
    gate, up = matrix(8, 64, torch.bfloat16, 0), matrix(24, 64, torch.bfloat16, 1) * 3
    amax = nvfp4.tensor_amax(gate, up)
    assert float(amax) == float(torch.cat([gate, up]).abs().max())
    parts = [nvfp4.quantize(each, amax=amax) for each in (gate, up)]
    whole = nvfp4.quantize(torch.cat([gate, up]))
    assert same(torch.cat([each.packed for each in parts]), whole.packed)
    assert same(torch.cat([each.scale for each in parts]), whole.scale)
    assert {float(each.scale_2) for each in parts} == {float(whole.scale_2)}


@pytest.mark.parametrize("name", ["te_1x16", "te_16x16", "te_4over6_256_MSE", "ct"])
def test_each_expert_has_its_own_maximum(name: str) -> None:
    experts = torch.stack([matrix(20, 48, torch.bfloat16, i) * 2**i for i in range(3)])
    stored = nvfp4.quantize(experts, variant=name)
    for i, w in enumerate(experts):
        alone = nvfp4.quantize(w, variant=name)
        assert all(same(part[i], each) for part, each in zip(stored, alone, strict=True))
    one = nvfp4.dequantize(stored)
    assert same(one[1], nvfp4.dequantize(nvfp4.quantize(experts[1], variant=name)))
    assert same(nvfp4.tensor_amax(experts, experts * 2), experts.abs().amax((1, 2)).float() * 2)


@pytest.mark.parametrize("layout", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize("shape", [(1, 16), (33, 48), (3, 5, 32)])
def test_storage_tells_what_is_stored(layout: nvfp4.Layout, shape: tuple[int, ...]) -> None:
    stored = nvfp4.quantize(torch.randn(shape)).stored(layout)
    told = nvfp4.storage(shape, layout=layout)
    assert [(each.name, each.dtype, each.shape) for each in told] == [
        (name, each.dtype, tuple(each.shape)) for name, each in stored.items()
    ]
    assert sum(each.nbytes for each in told) == sum(t.nbytes for t in stored.values())


def test_both_conventions_decode_to_the_same_within_an_ulp() -> None:
    x = matrix(32, 64, torch.bfloat16, 5)
    stored = nvfp4.quantize(x)
    first = nvfp4.dequantize(stored)
    for decode in ("global_scale", "amax", "qat"):
        assert torch.allclose(first, nvfp4.dequantize(stored, decode=decode), rtol=4e-7, atol=0)


@pytest.mark.parametrize("rows", [1, 16, 17, 40])
def test_tiles_repeat_their_scale_in_each_row(rows: int) -> None:
    x = matrix(rows, 48, torch.float32, rows)
    stored = nvfp4.quantize(x, variant="te_16x16")
    for top in range(0, rows, 16):
        tile = x[top : top + 16]
        for left in range(0, 48, 16):
            values = stored.scale[top : top + 16, left // 16].float()
            assert len(set(values.tolist())) == 1
            spread = torch.zeros(1, 16)
            spread[0, 0] = tile[:, left : left + 16].abs().max()
            alone = nvfp4.quantize(spread, amax=stored.amax)
            assert float(values[0]) == float(alone.scale.float())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_height_of_a_strip_changes_nothing(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = matrix(70, 96, dtype, 11)
    whole = nvfp4.quantize(x, variant=name)
    monkeypatch.setattr(_common, "_STRIP_ELEMENTS", 96 * 5)
    parts = nvfp4.quantize(x, variant=name)
    assert all(same(a, b) for a, b in zip(whole, parts, strict=True))
    assert same(nvfp4.dequantize(whole), nvfp4.dequantize(parts))


def test_a_view_that_is_not_contiguous_gives_the_same() -> None:
    x = matrix(64, 32, torch.bfloat16, 2)
    wide = torch.stack([x, x], dim=-1)[..., 0]
    for name in ("te_1x16", "te_16x16", "ct"):
        found, expected = nvfp4.quantize(wide, variant=name), nvfp4.quantize(x, variant=name)
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["te_1x16", "te_16x16", *OTHERS])
@examples(40)
@given(x=matrices(multiple=16, most=6))
def test_a_second_pass_changes_nothing(name: str, x: torch.Tensor) -> None:
    stored = nvfp4.quantize(x.float(), variant=name)
    # a block whose scale is subnormal may have no code 6, so its maximum moves
    normal = (stored.scale.float() >= 2**-6).repeat_interleave(16, dim=-1)
    once = nvfp4.dequantize(stored)
    again = nvfp4.dequantize(nvfp4.quantize(once, variant=name, amax=stored.amax))
    assert torch.equal(once[normal], again[normal])


@pytest.mark.parametrize("name", ALL)
@examples(25)
@given(x=matrices(multiple=16, most=6))
def test_the_error_is_bounded_and_order_kept(name: str, x: torch.Tensor) -> None:
    how = nvfp4.VARIANTS[name]
    wide = x.float()
    stored = nvfp4.quantize(x, variant=name)
    found = nvfp4.dequantize(stored).view(-1, 16)
    step = stored.scale.float().view(-1, 1) * stored.scale_2  # what the code 1 is worth
    blocks = wide.view(-1, 16)
    # half the widest spacing, 1; with a maximum mapped to 4 the scale may saturate at 448
    slack = 1.07 if how.four_over_six is None else 2.2
    floor = 6.5 * 2**-10 * stored.scale_2  # a scale that rounds to 0
    assert bool(((found - blocks).abs() <= slack * step + floor).all())
    order = blocks.argsort(dim=-1)
    assert bool((found.gather(1, order).diff(dim=-1) >= 0).all())
    assert torch.equal(torch.sign(found) * torch.sign(blocks) < 0, torch.zeros_like(found).bool())


@pytest.mark.parametrize("name", ["te_1x16", "te_16x16"])
@examples(30)
@given(x=matrices(multiple=16, most=6), fp16=st.booleans(), error=st.sampled_from(["MAE", "MSE"]))
def test_four_over_six_is_never_worse_by_its_own_measure(
    name: str, x: torch.Tensor, fp16: bool, error: str
) -> None:
    wide, tile = x.float(), nvfp4.VARIANTS[name].tile_rows
    knobs = nvfp4.FourOverSix(448, error, fp16)  # type: ignore[arg-type]
    how = nvfp4.Variant(tile_rows=tile, four_over_six=knobs)
    chosen, six = nvfp4.quantize(x, variant=how), nvfp4.quantize(x, variant=name)

    def measure(stored: nvfp4.NVFP4) -> float:
        off = (nvfp4.dequantize(stored, decode="amax") - wide).double()
        return float(off.abs().sum() if error == "MAE" else (off * off).sum())

    # the base scale associates differently, so an E4M3 tie of the plain variant may be luckier
    assert measure(chosen) <= measure(six) * 1.01 + 1e-30


def test_four_over_six_by_hand() -> None:
    # with 4 and 3: a scale of 1 holds 4 and 3 exactly if the maximum maps to 4
    x = torch.tensor([[2688.0] + [0.0] * 15 + [4.0, 3.0] + [0.0] * 14])
    plain, chosen = nvfp4.quantize(x), nvfp4.quantize(x, variant="te_4over6_448_MAE")
    assert plain.scale.float()[0, 1] == 0.6875  # E4M3(4 / 6)
    assert chosen.scale.float()[0, 1] == 1.0
    assert codes(chosen)[0, 16:18].tolist() == [6, 5]
    assert nvfp4.dequantize(chosen)[0, 16:18].tolist() == [4.0, 3.0]
    # 6 and 1 are exact with a scale of 1: a tie keeps 6
    x = torch.tensor([[2688.0] + [0.0] * 15 + [6.0, 3.0] + [0.0] * 14])
    assert nvfp4.quantize(x, variant="te_4over6_448_MSE").scale.float()[0, 1] == 1.0
    wide = nvfp4.quantize(x, variant="te_4over6_256_MAE")
    assert float(wide.global_scale) == pytest.approx(1536 / 2688)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["te_1x16", "te_4over6_256_MAE", "modelopt", "ct"])
def test_fake_quantize_is_the_decoded_value_with_the_gradient_of_identity(
    name: str, dtype: torch.dtype
) -> None:
    x = matrix(17, 48, dtype, 4).requires_grad_()
    fake = nvfp4.fake_quantize(x, variant=name)
    how = nvfp4.VARIANTS[name]
    decode: nvfp4.Decode = {"te": "qat", "modelopt": "scale_2", "ct": "global_scale"}[how.order]
    stored = nvfp4.quantize(x.detach(), variant=name)
    expected = nvfp4.dequantize(stored, decode=decode, e4m3_max=how.e4m3_max, dtype=dtype)
    assert torch.equal(fake, expected)
    upstream = torch.randn(17, 48).to(dtype)
    fake.backward(upstream)
    assert x.grad is not None
    assert torch.equal(x.grad, upstream)


def test_fake_quantize_carries_the_main_gradient() -> None:
    x = torch.randn(2, 16)
    x.main_grad = torch.zeros(2, 16)
    assert nvfp4.fake_quantize(x).main_grad is x.main_grad
    assert not hasattr(nvfp4.fake_quantize(torch.randn(2, 16)), "main_grad")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named_or_passed_on(value: float) -> None:
    x = torch.randn(3, 5, 32)
    x[2, 4, 17] = value
    with pytest.raises(NonFiniteInput, match=r"experts\.w2\[2, 4, 17\] is"):
        nvfp4.quantize(x, name="experts.w2")
    with pytest.raises(NonFiniteInput):
        nvfp4.quantize(x[2], amax=torch.tensor(1.0))
    stored = nvfp4.quantize(x, on_nonfinite="propagate")
    assert same(stored.packed[0], nvfp4.quantize(x[0]).packed)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="proj: the last dimension is 40, not a multiple of 16"):
        nvfp4.quantize(torch.zeros(2, 40), name="proj")
    with pytest.raises(ValueError, match=r"expected \[N, K\] or \[experts, N, K\]"):
        nvfp4.quantize(torch.zeros(16))
    with pytest.raises(TypeError, match=r"torch\.int8"):
        nvfp4.quantize(torch.zeros(2, 16, dtype=torch.int8))
    with pytest.raises(ValueError, match="unknown variant of NVFP4 'te'; known: te_1x16"):
        nvfp4.quantize(torch.zeros(2, 16), variant="te")
    with pytest.raises(ValueError, match="e4m3_max is 440"):
        nvfp4.FourOverSix(440)
    with pytest.raises(ValueError, match="for Transformer Engine's order"):
        nvfp4.Variant("ct", tile_rows=16)


def test_error_on_normal_values() -> None:
    x = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0)).bfloat16()

    def decibels(name: str) -> float:
        how = nvfp4.VARIANTS[name]
        stored = nvfp4.quantize(x, variant=name)
        found = nvfp4.dequantize(stored, decode="amax", e4m3_max=how.e4m3_max)
        noise = (found - x.float()).pow(2).sum()
        return round(10 * float(torch.log10(x.float().pow(2).sum() / noise)), 1)

    found = {name: decibels(name) for name in ("te_1x16", "te_16x16", "te_4over6_448_MSE")}
    assert found == {"te_1x16": 20.4, "te_16x16": 19.1, "te_4over6_448_MSE": 21.2}

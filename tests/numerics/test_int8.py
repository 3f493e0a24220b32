"""INT8 by output channel and SmoothQuant."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from precision_plan.numerics import _common, int8
from precision_plan.numerics._common import NonFiniteInput
from precision_plan.numerics.smoothquant import smooth, smooth_scales
from tests._hypothesis import examples
from tests.numerics.matrices import DTYPES, matrices, matrix, same

ALL = sorted(int8.VARIANTS)


def test_by_hand() -> None:
    x = torch.tensor([[127.5, -127.5, 0.5, 1.5, -0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    stored = int8.quantize(x)
    assert stored.weight.tolist() == [[127, -128, 0, 2, 0], [0, 0, 0, 0, 0]]
    assert stored.weight_scale.tolist() == [[1.0], [torch.finfo(torch.float32).eps]]
    other = int8.quantize(torch.tensor([[127.0, -127.0, 2.5]]), variant="modelopt")
    assert other.weight.tolist() == [[127, -127, 2]]
    assert other.weight_scale.tolist() == [[1.0]]
    zero = int8.quantize(torch.zeros(1, 3, dtype=torch.bfloat16), variant="modelopt")
    assert (zero.weight.tolist(), zero.weight_scale.tolist()) == ([[0, 0, 0]], [[0.0]])
    assert int8.dequantize(stored)[0].tolist() == [127.0, -128.0, 0.0, 2.0, 0.0]


def test_arithmetic_in_the_dtype_of_the_input_rounds_twice() -> None:
    x = matrix(64, 64, torch.bfloat16, 0, spread=0)
    fast, exact = int8.quantize(x, variant="ct_cpu"), int8.quantize(x)
    assert same(fast.weight_scale, exact.weight_scale)
    off = (fast.weight.int() - exact.weight.int()).abs()
    assert 0 < int((off > 0).sum()) < 0.2 * x.numel()
    wide = int8.quantize(x, scale_dtype=torch.float32)
    assert wide.weight_scale.dtype == torch.float32


@pytest.mark.parametrize("name", ALL)
@examples(40)
@given(x=matrices(most=70))
def test_bounds_order_storage_and_gradient(name: str, x: torch.Tensor) -> None:
    wide = x.float()
    stored = int8.quantize(wide, variant=name)
    found = int8.dequantize(stored)
    slack = 0.5001 if name == "modelopt" else 0.501
    assert bool(((found - wide).abs() <= slack * stored.weight_scale.float()).all())
    order = wide.argsort(dim=-1)
    assert bool((found.gather(1, order).diff(dim=-1) >= 0).all())
    scale_dtype = torch.float32 if name == "modelopt" else x.dtype
    told = int8.storage(tuple(x.shape), scale_dtype=scale_dtype)
    kept = int8.quantize(x, variant=name)
    assert [(each.name, each.dtype, each.shape) for each in told] == [
        (key, each.dtype, tuple(each.shape)) for key, each in kept.stored().items()
    ]
    leaf = x.clone().requires_grad_()
    fake = int8.fake_quantize(leaf, variant=name)
    assert same(fake.detach(), int8.dequantize(kept, dtype=x.dtype))
    fake.sum().backward()
    assert leaf.grad is not None
    assert bool((leaf.grad == 1).all())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_strips_and_a_third_dimension_change_nothing(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = torch.stack([matrix(21, 33, dtype, i) for i in range(2)])
    whole = int8.quantize(experts, variant=name)
    monkeypatch.setattr(_common, "_STRIP_ELEMENTS", 33 * 4)
    for i, w in enumerate(experts):
        alone = int8.quantize(w, variant=name)
        assert all(same(a[i], b) for a, b in zip(whole, alone, strict=True))


def test_wrong_input_is_refused() -> None:
    x = torch.zeros(4, 8)
    x[3, 7] = float("nan")
    with pytest.raises(NonFiniteInput, match=r"up_proj\[3, 7\] is nan"):
        int8.quantize(x, name="up_proj")
    with pytest.raises(ValueError, match="unknown variant of INT8 'slime'"):
        int8.quantize(torch.zeros(2, 2), variant="slime")
    with pytest.raises(TypeError, match=r"torch\.int32"):
        int8.quantize(torch.zeros(2, 2, dtype=torch.int32))


def test_smooth_scales_by_hand() -> None:
    activation = torch.tensor([4.0, 16.0, 9.0, 0.0])
    weights = [torch.tensor([[0.5, -2.0, 0.0, 1.0]]), torch.tensor([[-0.25, 1.0, 0.0, 2.0]])]
    # sqrt(a / (2 w)); a where the column is zero; a floor for a silent channel
    expected = torch.tensor([2.0, 2.0, 9.0, 1e-5])
    assert torch.allclose(smooth_scales(activation, weights), expected)
    half = smooth_scales(activation, weights, style="modelopt", alpha=0.5)
    # sqrt(a / w) between 1e-4 and 1e4; 1 for a silent channel
    assert torch.allclose(half, torch.tensor([8.0**0.5, 8.0**0.5, 1e4, 1.0]))
    assert smooth_scales(activation, weights, style="modelopt").tolist() == [4.0, 16.0, 9.0, 1.0]


def test_smoothing_keeps_the_product() -> None:
    made = torch.Generator().manual_seed(0)
    x, w = torch.randn(5, 32, generator=made), torch.randn(8, 32, generator=made)
    x[:, 3] *= 100
    scales = smooth_scales(x.amax(0) - x.amin(0), [w])
    assert torch.allclose((x / scales) @ smooth(w, scales).t(), x @ w.t(), rtol=1e-4, atol=1e-4)
    before = int8.dequantize(int8.quantize(w)) @ int8.dequantize(int8.quantize(x)).t()
    smoothed = int8.dequantize(int8.quantize(smooth(w, scales)))
    after = smoothed @ int8.dequantize(int8.quantize(x / scales)).t()
    exact = w @ x.t()
    assert (after - exact).norm() < 0.5 * (before - exact).norm()
    assert smooth(w.bfloat16(), scales).dtype == torch.bfloat16


def test_smoothing_refuses_what_it_cannot_use() -> None:
    w = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"alpha is 1\.5; expected 0 to 1"):
        smooth_scales(torch.ones(3), [w], alpha=1.5)
    with pytest.raises(ValueError, match=r"activation has shape \[4\]; expected \[3\]"):
        smooth_scales(torch.ones(4), [w])
    with pytest.raises(ValueError, match="negative range"):
        smooth_scales(torch.tensor([1.0, -1.0, 1.0]), [w])
    with pytest.raises(ValueError, match="no weights"):
        smooth_scales(torch.ones(3), [])
    with pytest.raises(NonFiniteInput, match=r"weights\[1\]\[0, 2\] is nan"):
        smooth_scales(torch.ones(3), [w, torch.tensor([[0.0, 0.0, float("nan")]])])

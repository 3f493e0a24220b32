"""The list of formats: each offers the same four functions; importing it loads no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from precision_plan import numerics


@pytest.mark.parametrize("name", numerics.FORMATS)
def test_every_format_offers_the_same(name: str) -> None:
    module = numerics.load(name)
    x = torch.linspace(-4, 4, 32 * 128).view(32, 128)
    stored = module.quantize(x)
    assert all(isinstance(tensor, torch.Tensor) for tensor in stored if tensor is not None)
    assert torch.allclose(module.dequantize(stored), x, atol=0.7)  # E2M1: half of 6 - 4, scaled
    assert torch.allclose(module.fake_quantize(x), x, atol=0.7)
    assert sum(row.nbytes for row in module.storage((32, 128))) < x.numel() * 2
    assert (module.__doc__ and "Source" in module.__doc__) or "on disk" in str(module.__doc__)


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(KeyError, match="unknown format 'fp6'; known: fp8-block"):
        numerics.load("fp6")


def test_the_list_loads_no_torch() -> None:
    code = "import sys, precision_plan.numerics; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    assert done.returncode == 0

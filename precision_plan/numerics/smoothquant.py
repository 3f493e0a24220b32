"""SmoothQuant: move the range of activation channels into the weights before quantizing.

Activations are divided by s_j per input channel j and column j of the weight is multiplied by it.
Two libraries, all in float32 here:

    llmcompressor   s = a^alpha / (2 * w)^(1 - alpha), a the range max - min of the channel
                    (hence the 2), alpha 0.5; a where w is 0; at least 1e-5
    modelopt        p = w^(1 - alpha) / a^alpha, a = max |x| of the channel, alpha 1.0; 1 where
                    a <= 2^-31; within [1e-4, 1e4]; s = 1/p. The file holds p, ``pre_quant_scale``,
                    which multiplies activations

with w = max |W_j| over all layers that read these activations. (ModelOpt itself only looks for
channels without activations when some p is at most 2^-31; else they end at 1e4.)

Sources: llm-compressor@0.14.0.1:modifiers/transform/smoothquant/base.py
(``_calculate_smoothing_scales``); nvidia-modelopt@0.47.0:modelopt/torch/quantization/
model_calib.py (``smoothquant``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import torch
from torch import Tensor

from precision_plan.numerics._common import (
    OnNonFinite,
    amax_blocks,
    require_choice,
    require_finite,
    require_matrix,
)

Style = Literal["llmcompressor", "modelopt"]
ALPHA: Final[dict[Style, float]] = {"llmcompressor": 0.5, "modelopt": 1.0}
"""The default strength of each library."""
_FLOOR: Final = 1e-5
_SILENT: Final = 2.0**-31
_PRE_QUANT: Final = (1e-4, 1e4)


def smooth_scales(
    activation: Tensor,
    weights: Sequence[Tensor],
    *,
    alpha: float | None = None,
    style: Style = "llmcompressor",
    on_nonfinite: OnNonFinite = "raise",
) -> Tensor:
    """Factors s ``[K]`` (float32) that multiply the columns of each of ``weights`` ``[N, K]``.

    ``activation`` ``[K]``: max - min per channel (llmcompressor) or max |x| (modelopt).
    """
    require_choice(style, tuple(ALPHA), "style of SmoothQuant")
    strength = ALPHA[style] if alpha is None else alpha
    if not 0 <= strength <= 1:
        raise ValueError(f"alpha is {strength}; expected 0 to 1")
    require_finite(activation, "activation", on_nonfinite)
    a = activation.to(torch.float32)
    w = _column_amax(weights, on_nonfinite)
    if a.shape != w.shape:
        raise ValueError(f"activation has shape {list(a.shape)}; expected {list(w.shape)}")
    if bool((a < 0).any()):
        raise ValueError("activation holds a negative range")
    if style == "modelopt":
        inverse = w.pow(1 - strength) / a.pow(strength)
        inverse = torch.where(a <= _SILENT, torch.ones_like(a), inverse)
        return 1.0 / inverse.clamp_(*_PRE_QUANT)
    scale = a.pow(strength) / (2.0 * w).pow(1 - strength)
    return torch.where(w > 0, scale, a).clamp_(min=_FLOOR)


def _column_amax(weights: Sequence[Tensor], on_nonfinite: OnNonFinite) -> Tensor:
    if not weights:
        raise ValueError("no weights")
    found = []
    for i, weight in enumerate(weights):
        require_matrix(weight, f"weights[{i}]")
        amax = amax_blocks(weight, max(weight.shape[0], 1), 1).squeeze(0)
        require_finite(weight, f"weights[{i}]", on_nonfinite, amax)
        found.append(amax)
    return torch.stack(found).amax(dim=0)


def smooth(weight: Tensor, scales: Tensor) -> Tensor:
    """Columns of ``weight`` ``[N, K]`` times ``scales`` in float32, rounded once to its dtype."""
    return (weight.to(torch.float32) * scales).to(weight.dtype)

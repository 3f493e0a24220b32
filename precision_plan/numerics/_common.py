"""What every format needs: input checks, strips and block views, exact casts, the gradient.

A quantizer works in float32 after an exact upcast and in strips of whole rows, so its temporaries
have a fixed size whatever the tensor (:func:`strips`). Inside a strip everything is vectorised over
blocks. Every cast here gives the same bytes on each torch release: torch up to 2.11 turned values
above 464 into NaN in ``float8_e4m3fn``, later releases saturate, so values are clamped first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor

E4M3_MAX: Final = 448.0
E4M3_FNUZ_MAX: Final = 240.0
E5M2_MAX: Final = 57344.0
E2M1_MAX: Final = 6.0
E2M1_MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

OnNonFinite = Literal["raise", "propagate"]
"""``propagate`` lets NaN and Inf take the course that the format's arithmetic gives them."""

_INPUT_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
_MAGNITUDE_BITS: Final = {
    torch.float32: (torch.int32, 0x7FFFFFFF),
    torch.bfloat16: (torch.int16, 0x7FFF),
    torch.float16: (torch.int16, 0x7FFF),
}
_STRIP_ELEMENTS: Final = 1 << 18  # 1 MiB of float32: stays in a core's second-level cache
_STRIP_ELEMENTS_GPU: Final = 1 << 26


class Storage(NamedTuple):
    """One stored tensor of a format: its name on disk, dtype, shape and size."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class NonFiniteInput(ValueError):
    """An input holds NaN or Inf; ``name`` and ``index`` say where the first one is."""

    def __init__(self, name: str, index: tuple[int, ...], value: float, count: int) -> None:
        self.name, self.index, self.value, self.count = name, index, value, count
        more = f"; {count} elements in all are not finite" if count > 1 else ""
        super().__init__(f"{name}{list(index)} is {value}{more}")


# --- Input ---------------------------------------------------------------------------------------


def require_float(x: Tensor, name: str) -> None:
    """Refuse what has no exact upcast to float32."""
    if x.dtype not in _INPUT_DTYPES:
        raise TypeError(f"{name} has dtype {x.dtype}; expected float32, bfloat16 or float16")


def require_matrix(x: Tensor, name: str) -> None:
    """A float tensor of two dimensions (rows = output features, columns = input features)."""
    require_float(x, name)
    if x.dim() != 2:
        raise ValueError(f"{name} has shape {list(x.shape)}; expected two dimensions")


def require_multiple(size: int, of: int, name: str, what: str = "last dimension") -> None:
    if of < 1 or size % of:
        raise ValueError(f"{name}: the {what} is {size}, not a multiple of {of}")


def require_choice(value: str, choices: Sequence[str], what: str) -> None:
    if value not in choices:
        raise ValueError(f"unknown {what} {value!r}; known: {', '.join(choices)}")


def first_non_finite(x: Tensor, name: str) -> NonFiniteInput | None:
    """The error for the first NaN or Inf of ``x`` in row-major order, found strip by strip."""
    rows = as_rows(x)
    place: tuple[int, int] | None = None
    count = 0
    for strip in strips(rows):
        bad = ~torch.isfinite(rows[strip])
        found = int(bad.sum())
        if found and place is None:
            flat = int(bad.flatten().to(torch.uint8).argmax())
            place = (strip.start + flat // rows.shape[1], flat % rows.shape[1])
        count += found
    if place is None:
        return None
    flat = place[0] * rows.shape[1] + place[1]
    return NonFiniteInput(name, _unravel(flat, x.shape), float(rows[place]), count)


def require_finite(
    x: Tensor, name: str, on_nonfinite: OnNonFinite, amax: Tensor | None = None
) -> None:
    """Raise :class:`NonFiniteInput` unless told to propagate.

    ``amax``: maxima of ``|x|`` that the caller has anyway. NaN and Inf survive a maximum, so the
    elements are searched only when one of these is not finite.
    """
    require_choice(on_nonfinite, ("raise", "propagate"), "on_nonfinite")
    if on_nonfinite == "propagate" or (amax is not None and bool(torch.isfinite(amax).all())):
        return
    error = first_non_finite(x, name)
    if error is not None:
        raise error


def _unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


# --- Strips and blocks ---------------------------------------------------------------------------


def as_rows(x: Tensor) -> Tensor:
    """``x`` as a matrix of its last dimension; a scalar becomes 1x1. No copy when contiguous."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1]) if x.dim() else x.reshape(1, 1)


def strips(matrix: Tensor, height: int = 1) -> Iterator[slice]:
    """Row slices of bounded size that cover ``matrix``; each but the last a multiple of ``height``.

    A strip holds about 2^18 elements on a CPU (2^26 on a GPU), at least ``height`` rows.
    """
    rows, columns = matrix.shape
    if not columns:
        return
    wanted = _STRIP_ELEMENTS if matrix.device.type == "cpu" else _STRIP_ELEMENTS_GPU
    step = max(wanted // columns // height, 1) * height
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def blocks_of(size: int, block: int) -> int:
    """Number of blocks that cover ``size``, the last one perhaps ragged."""
    return -(-size // block)


def block_view(strip: Tensor, height: int, width: int) -> Tensor:
    """``[n, k]`` as ``[ceil(n/height), height, ceil(k/width), width]``, padded with zeros.

    Without a ragged edge this is a view of a contiguous strip; else one padded copy of the strip.
    """
    n, k = strip.shape
    down, across = blocks_of(n, height), blocks_of(k, width)
    pad = (0, across * width - k, 0, down * height - n)
    if any(pad):
        strip = torch.nn.functional.pad(strip, pad)
    return strip.reshape(down, height, across, width)


def from_blocks(blocks: Tensor, rows: int, columns: int) -> Tensor:
    """The inverse of :func:`block_view`, cropped to ``[rows, columns]``."""
    down, height, across, width = blocks.shape
    return blocks.reshape(down * height, across * width)[:rows, :columns]


def amax_blocks(strip: Tensor, height: int, width: int) -> Tensor:
    """``max |x|`` of each block as float32 ``[blocks down, blocks across]``; NaN and Inf survive.

    Taken as the integer maximum of the bits without the sign: exact in every input dtype, and on a
    CPU twice as fast as a floating-point maximum.
    """
    integer, mask = _MAGNITUDE_BITS[strip.dtype]
    bits = strip.contiguous().view(integer) & mask
    blocks = block_view(bits, height, width)
    columns = blocks.squeeze(1) if height == 1 else blocks.amax(dim=1)
    return columns.amax(dim=-1).view(strip.dtype).to(torch.float32)


def amax_rows(strip: Tensor) -> Tensor:
    """``max |x|`` of each row as float32 ``[rows]``, as :func:`amax_blocks`."""
    return amax_blocks(strip, 1, strip.shape[1]).squeeze(1)


def expand_blocks(scale: Tensor, height: int, width: int, rows: int, columns: int) -> Tensor:
    """One value per block ``[down, across]`` repeated for each element of ``[rows, columns]``."""
    spread = scale.repeat_interleave(width, dim=1)[:, :columns]
    return spread.repeat_interleave(height, dim=0)[:rows]


# --- Casts: round to nearest even, saturating, NaN stays NaN -------------------------------------


def to_e4m3(x: Tensor) -> Tensor:
    """float8_e4m3fn: RNE, beyond ±448 (and ±Inf) the code of ±448, NaN stays NaN, -0.0 kept."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def to_e5m2(x: Tensor) -> Tensor:
    """float8_e5m2: RNE, beyond ±57344 (and ±Inf) the code of ±57344, NaN stays NaN, -0.0 kept."""
    return x.clamp(-E5M2_MAX, E5M2_MAX).to(torch.float8_e5m2)


def to_e4m3_fnuz(x: Tensor) -> Tensor:
    """float8_e4m3fnuz: RNE, beyond ±240 saturated, NaN is 0x80, a negative zero becomes zero."""
    code = x.clamp(-E4M3_FNUZ_MAX, E4M3_FNUZ_MAX).to(torch.float8_e4m3fnuz).view(torch.uint8)
    # 0x80 is NaN here: a small negative value that rounds to zero must not end there.
    zero = (code == 0x80) & ~torch.isnan(x)
    return code.masked_fill_(zero, 0).view(torch.float8_e4m3fnuz)


def to_e2m1(x: Tensor, *, keep_negative_zero: bool = False) -> Tensor:
    """E2M1 codes 0..15 (bit 3 the sign) of float32 ``x`` as uint8: RNE, saturating at ±6.

    Ties: .25 to 0, .75 and 1.25 to 1, 1.75 and 2.5 to 2, 3.5 and 5 to 4. A negative value that
    rounds to zero keeps its sign (code 8); -0.0 gives 0, or 8 with ``keep_negative_zero``.
    NaN has no code: it gives some code 0..15, so its scale has to carry it.

    The magnitude is rounded by adding ``1.5 * 2^22 * p``, p the power of two below (at least 1):
    the sum's last bit is worth p/2, the spacing of E2M1 there. Bits of the sum then give the code.
    """
    magnitude = x.abs().clamp_(max=E2M1_MAX)
    power = (magnitude.view(torch.int32) & 0x7F800000).clamp_(min=0x3F800000)
    magic = power + ((22 << 23) | 0x400000)
    code = magnitude.add_(magic.view(torch.float32)).view(torch.int32).sub_(magic)
    code += power.bitwise_right_shift_(22).sub_(254)
    sign = torch.signbit(x) if keep_negative_zero else x < 0
    return code.bitwise_and_(7).to(torch.uint8) | sign.to(torch.uint8).bitwise_left_shift_(3)


def from_e2m1(codes: Tensor) -> Tensor:
    """float32 values of E2M1 codes 0..15; code 8 is -0.0."""
    table = torch.tensor(
        [*E2M1_MAGNITUDES, *(-value for value in E2M1_MAGNITUDES)], device=codes.device
    )
    return table[codes.to(torch.int64)]


# --- UE8M0: a power of two as its biased exponent ------------------------------------------------


def exponent_byte(positive: Tensor, carry: int = 0) -> Tensor:
    """Biased exponent (int32) of non-negative float32 values by their bits, no logarithm.

    ``carry`` is added to the 23 mantissa bits first: 0 rounds down to a power of two, 0x7FFFFF
    rounds up, 0x7FFFFF - t rounds up when the mantissa is above t.
    """
    return (positive.contiguous().view(torch.int32) + carry) >> 23


def from_ue8m0(byte: Tensor) -> Tensor:
    """``2^(byte - 127)`` as float32, exact: byte 0 is the subnormal 2^-127, byte 255 is NaN."""
    wide = byte.to(torch.int32)
    bits = wide << 23
    bits = torch.where(wide == 0, 0x00400000, bits)
    return torch.where(wide == 255, 0x7FC00000, bits).view(torch.float32)


def inverse_ue8m0(byte: Tensor) -> Tensor:
    """``2^(127 - byte)`` as float32, exact: byte 254 gives the subnormal 2^-127, 255 gives NaN."""
    wide = byte.to(torch.int32)
    return from_ue8m0(torch.where(wide == 255, 255, 254 - wide))


# --- Nibbles -------------------------------------------------------------------------------------


def pack_nibbles(codes: Tensor) -> Tensor:
    """uint8 codes 0..15 ``[..., K]`` to ``[..., K/2]``: element 2i low nibble, 2i+1 high."""
    require_multiple(codes.shape[-1], 2, "codes")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """The inverse of :func:`pack_nibbles`: uint8 ``[..., K/2]`` to codes 0..15 ``[..., K]``."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


# --- Gradient ------------------------------------------------------------------------------------


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fake: Tensor, inside: Tensor | None) -> Tensor:
        ctx.save_for_backward(*([] if inside is None else [inside]))
        return fake.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        if ctx.saved_tensors:
            gradient = gradient.masked_fill(~ctx.saved_tensors[0], 0.0)
        return gradient, None, None


def straight_through(x: Tensor, fake: Tensor, inside: Tensor | None = None) -> Tensor:
    """``fake`` in the dtype of ``x``, with the gradient of the identity.

    ``inside`` (bool, shape of ``x``): where false the value was saturated and the gradient is 0.
    Formats that scale by the maximum saturate nothing and pass None.
    """
    result: Tensor = _StraightThrough.apply(x, fake.detach(), inside)  # type: ignore[no-untyped-call]
    return result


def with_main_grad(x: Tensor, fake: Tensor) -> Tensor:
    """``fake`` with the ``main_grad`` of ``x``, where Megatron accumulates weight gradients."""
    if hasattr(x, "main_grad"):
        fake.main_grad = x.main_grad  # type: ignore[attr-defined]
    return fake

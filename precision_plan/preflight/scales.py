"""Values of the small scale tensors of one file: scalars and short vectors, never weights."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from precision_plan.preflight.files import Refused, read_at, regular_file
from precision_plan.preflight.safetensors_headers import Entry, Header

MOST_VALUES = 1024
"""Values of the largest tensor that is read: a scalar for each expert of a fused tensor."""

_NEAR = 1 << 16
_MOST_AT_ONCE = 1 << 22
_CODES: Mapping[str, str] = {"F32": "f", "F64": "d", "F16": "e", "I32": "i", "I64": "q"}


def read_scales(path: Path, header: Header, most: int) -> dict[str, tuple[float, ...]]:
    """Values by tensor name, as long as there are no more than ``most``.

    Neighbours are read together: a writer puts tensors of one dtype side by side, so that the
    scalars of a whole shard are a few reads.
    """
    wanted = sorted(
        ((name, entry) for name, entry in header.entries.items() if _is_wanted(name, entry)),
        key=lambda item: item[1].begin,
    )
    found: dict[str, tuple[float, ...]] = {}
    if not wanted:
        return found
    try:
        with regular_file(path) as (descriptor, _):
            for run in _runs(wanted):
                begin, end = run[0][1].begin, run[-1][1].end
                most -= sum(prod(entry.shape) for _, entry in run)
                if most < 0:
                    break
                data = read_at(descriptor, end - begin, header.data_start + begin)
                for name, entry in run:
                    part = data[entry.begin - begin : entry.end - begin]
                    found[name] = _values(entry.dtype, part)
    except Refused:  # the file went away since its header was read
        return {}
    return found


def _is_wanted(name: str, entry: Entry) -> bool:
    """True for scalars and short vectors; scales of blocks are as many as there are blocks."""
    last = name[name.rfind(".") + 1 :]
    if "scale" not in last and not last.endswith("_shape"):
        return False
    if entry.dtype not in _CODES and entry.dtype != "BF16":
        return False
    long = [size for size in entry.shape if size > 2]
    return len(long) < 2 and prod(entry.shape) <= MOST_VALUES


def _runs(items: list[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    """Neighbours in one piece, as long as little lies between them."""
    run: list[tuple[str, Entry]] = []
    for item in items:
        entry = item[1]
        if run and (
            entry.begin - run[-1][1].end > _NEAR or entry.end - run[0][1].begin > _MOST_AT_ONCE
        ):
            yield run
            run = []
        run.append(item)
    yield run


def _values(dtype: str, data: bytes) -> tuple[float, ...]:
    if dtype == "BF16":  # the upper half of a float32
        wide = array("I", (half << 16 for half in struct.unpack(f"<{len(data) // 2}H", data)))
        return struct.unpack(f"<{len(wide)}f", struct.pack(f"<{len(wide)}I", *wide))
    code = _CODES[dtype]
    return struct.unpack(f"<{len(data) // struct.calcsize('<' + code)}{code}", data)

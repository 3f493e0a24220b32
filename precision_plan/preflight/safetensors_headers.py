"""The header of one safetensors file: what its tensors are and what its reader would refuse.

A file is 8 bytes of length, a JSON header of that length and the tensors' bytes. The checks are
those of the safetensors library, but all at once and without reading a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from precision_plan.facts.safetensors import dtype_bits, header_limits
from precision_plan.preflight.files import LFS_MARK, Refused, read_at, regular_file

_TOO_MANY = 1 << 64


class Entry(NamedTuple):
    """One tensor of a header; ``begin`` and ``end`` count from the first byte of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Fault(NamedTuple):
    """What is wrong with a file: a rule's slug and the words for it."""

    slug: str
    message: str


class Header(NamedTuple):
    """What could be read of one file; ``data_start`` is the offset of the data in it."""

    entries: Mapping[str, Entry]
    faults: tuple[Fault, ...]
    data_start: int = 0


class _Broken(Exception):
    """The header cannot be read; ``fault`` says why."""

    def __init__(self, slug: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(slug, message)


def read_header(path: Path) -> Header:
    """Read the header of one file; whatever is wrong with it is in ``faults``."""
    try:
        with regular_file(path) as (descriptor, size):
            raw, data_start = _header_bytes(descriptor, size)
    except Refused as error:
        return Header({}, (Fault("checkpoint-file-unreadable", str(error)),))
    except _Broken as error:
        return Header({}, (error.fault,))
    try:
        entries, refused = _entries(_parsed(raw), has_flags=b"true" in raw or b"false" in raw)
    except _Broken as error:
        return Header({}, (error.fault,))
    return Header(entries, tuple(_faults(entries, refused, size - data_start)), data_start)


def _header_bytes(descriptor: int, size: int) -> tuple[bytes, int]:
    limits = header_limits()
    start = limits["length_bytes"]
    beginning = read_at(descriptor, len(LFS_MARK), 0)
    if beginning == LFS_MARK:
        raise _Broken("git-lfs-pointer", f"{size:,} bytes of text stand for the weights")
    if size < start:
        what = "the file is empty" if not size else f"the file has {size} bytes"
        raise _Broken("shard-cut-in-header", f"{what}; a header's length alone takes {start}")
    length = int.from_bytes(beginning[:start], "little")
    if length > limits["header_bytes"]:
        raise _Broken(
            "shard-header-too-large",
            f"the header is said to have {length:,} bytes; at most {limits['header_bytes']:,} are"
            " read",
        )
    if start + length > size:
        raise _Broken(
            "shard-cut-in-header",
            f"the file ends after {size:,} bytes, its header after {start + length:,}",
        )
    return read_at(descriptor, length, start), start + length


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=str)
    except UnicodeDecodeError as error:
        raise _Broken("shard-header-broken", f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        text = f"{error.msg[0].lower()}{error.msg[1:]} at character {error.pos}"
        raise _Broken("shard-header-broken", f"not JSON: {text}") from None
    except (RecursionError, ValueError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else "not a number"
        raise _Broken("shard-header-broken", f"not JSON: {text}") from None
    if not isinstance(value, dict):
        raise _Broken("shard-header-broken", "the header is not a JSON object")
    metadata = value.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(map(_is_text, metadata.values())):
        raise _Broken("shard-header-broken", "__metadata__ is not an object of texts")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _entries(table: dict[str, Any], *, has_flags: bool) -> tuple[dict[str, Entry], list[str]]:
    """The tensors whose dtype is known, and ``NAME is DTYPE`` of the others.

    A shape that was seen is not looked at again, unless the text has booleans (``has_flags``):
    true equals 1. Floating-point numbers were parsed as texts for the same reason.
    """
    known = dtype_bits()
    entries: dict[str, Entry] = {}
    refused = []
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    for name, fields in table.items():
        try:
            dtype, (begin, end) = fields["dtype"], fields["data_offsets"]
            shape = tuple(fields["shape"])
            if shape not in shapes or has_flags:
                if not _is_shape(fields["shape"]):
                    raise _not_a_tensor(name)
                shapes[shape] = shape
        except (TypeError, KeyError, ValueError):
            raise _not_a_tensor(name) from None
        if type(begin) is not int or type(end) is not int or begin < 0 or end < 0:
            raise _not_a_tensor(name)
        if not isinstance(dtype, str):
            raise _not_a_tensor(name)
        if dtype in known:
            entries[name] = Entry(dtype, shapes[shape], begin, end)
        else:
            refused.append(f"{shortened(name)} is {shortened(dtype)}")
    return entries, refused


def _not_a_tensor(name: str) -> _Broken:
    return _Broken(
        "shard-header-broken",
        f"{shortened(name)} is not described by a dtype, a shape and two data_offsets",
    )


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(
        type(size) is int and 0 <= size < _TOO_MANY for size in shape
    )


def _faults(entries: dict[str, Entry], refused: list[str], data: int) -> Iterator[Fault]:
    if refused:
        yield Fault("tensor-dtype-unknown", listed(refused))
    wrong = [name for name, entry in entries.items() if not _fits(entry)]
    if wrong:
        yield Fault("tensor-size-disagrees", listed([_size(name, entries[name]) for name in wrong]))
    if refused:  # the offsets of what was left out are missing in the sum
        return
    apart, end = _apart(entries)
    if apart:
        yield Fault("tensor-offsets-overlap-or-gap", listed(apart))
    if end > data:
        last = max(entries, key=lambda name: entries[name].end)
        yield Fault(
            "shard-truncated",
            f"the tensors take {end:,} bytes, the file holds {data:,} of them; "
            f"{shortened(last)} is cut off",
        )
    elif end < data:
        yield Fault("shard-has-trailing-data", f"{data - end:,} bytes follow the last tensor")


def _apart(entries: dict[str, Entry]) -> tuple[list[str], int]:
    """The tensors that do not begin where the one before them ends, and the end of the last."""
    apart, end = [], 0
    if not all(map(_are_side_by_side, entries.values(), list(entries.values())[1:])):
        entries = dict(sorted(entries.items(), key=_by_offset))
    for name, entry in entries.items():
        if entry.begin != end or entry.end < end:
            where = f"{shortened(name)} lies at {entry.begin:,} to {entry.end:,}"
            apart.append(f"{where}, the tensors before it end at {end:,}")
        end = max(end, entry.end)
    return apart, end


def _are_side_by_side(first: Entry, second: Entry) -> bool:
    return first.end == second.begin


def _by_offset(item: tuple[str, Entry]) -> tuple[int, int]:
    return item[1].begin, item[1].end


@lru_cache(maxsize=65536)
def _bytes_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor; ``None`` if they are no whole number (a packed format of odd size)."""
    bits = 1
    for size in (*shape, dtype_bits()[dtype]):
        bits *= size
        if bits >= _TOO_MANY:  # the library counts in 64 bits, in this order
            return None
    return None if bits % 8 else bits // 8


def _fits(entry: Entry) -> bool:
    return _bytes_of(entry.dtype, entry.shape) == entry.end - entry.begin


def _size(name: str, entry: Entry) -> str:
    dtype, shape, begin, end = entry
    return f"{shortened(name)} is {dtype} {list(shape)[:8]} and takes {end - begin:,} bytes"


def shortened(text: str) -> str:
    """A name as messages show it."""
    return text if len(text) <= 120 else f"{text[:117]}..."


def listed(texts: list[str], most: int = 3) -> str:
    """The first few of ``texts`` and how many more there are."""
    rest = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {rest:,} more" if rest > 0 else "")

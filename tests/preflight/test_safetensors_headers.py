"""Our reader refuses what the safetensors library refuses, and says which fault it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save_file

from precision_plan.facts.safetensors import dtype_bits, header_limits
from precision_plan.preflight.safetensors_headers import Header, read_header
from tests._hypothesis import examples
from tests.preflight.folders import blob, header_of

TWO = header_of({"a": ("BF16", [4, 8]), "b": ("F32", [2])})
LIMIT = header_limits()["header_bytes"]


def changed(**fields: Any) -> dict[str, Any]:
    """:data:`TWO` with other fields of ``b``."""
    return {**TWO, "b": {**TWO["b"], **fields}}


def read(path: Path, data: bytes) -> Header:
    file = path / "model.safetensors"
    file.write_bytes(data)
    return read_header(file)


def accepted(data: bytes) -> bool:
    """True if the library reads it."""
    try:
        deserialize(data)
    except SafetensorError:
        return False
    return True


def test_a_file_of_the_library(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.weight": np.zeros((4, 6), np.float16),
        "model.layers.0.weight_scale": np.ones((4, 1), np.float32),
        "scalar": np.array(3, np.int64),
    }
    file = tmp_path / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    header = read_header(file)
    assert header.faults == ()
    assert {name: (entry.dtype, entry.shape) for name, entry in header.entries.items()} == {
        "model.layers.0.weight": ("F16", (4, 6)),
        "model.layers.0.weight_scale": ("F32", (4, 1)),
        "scalar": ("I64", ()),
    }
    size = sum(array.nbytes for array in tensors.values())
    assert header.data_start + size == file.stat().st_size


FAULTS: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "shard-cut-in-header", "the file is empty"),
    "seven bytes": (b"\0" * 7, "shard-cut-in-header", "has 7 bytes"),
    "cut in the header": (blob(TWO, 72)[:40], "shard-cut-in-header", "ends after 40 bytes"),
    "length beyond the end": (blob(TWO, 0, 10_000), "shard-cut-in-header", "after 10,008"),
    "length beyond the limit": (blob(TWO, 72, LIMIT + 1), "shard-header-too-large", "100,000,001"),
    "length of text": (b"<!DOCTYPE html><html>", "shard-header-too-large", "at most 100,000,000"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
                "git-lfs-pointer", "text stand"),
    "no JSON": (blob(b"{'a': 1}", 0), "shard-header-broken", "not JSON"),
    "not UTF-8": (blob(b'{"\xff": 1}', 0), "shard-header-broken", "byte 2 is not UTF-8"),
    "NaN": (blob(b'{"a": NaN}', 0), "shard-header-broken", "not JSON"),
    "a list": (blob([], 0), "shard-header-broken", "not a JSON object"),
    "deep": (blob(b'{"a":' + b"[" * 100_000, 0), "shard-header-broken", "nested too deeply"),
    "metadata": (blob({**TWO, "__metadata__": {"a": 1}}, 72), "shard-header-broken", "texts"),
    "no shape": (blob({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4),
                 "shard-header-broken", "a is not described"),
    "three offsets": (blob(changed(data_offsets=[64, 72, 80]), 72), "shard-header-broken", "b is"),
    "negative size": (blob(changed(shape=[-2]), 72), "shard-header-broken", "b is not"),
    "broken size": (blob(changed(shape=[2.0]), 72), "shard-header-broken", "b is not"),
    "boolean size": (blob(changed(shape=[True, 2]), 72), "shard-header-broken", "b is not"),
    "a boolean after a one": (
        blob({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
              "b": {"dtype": "U8", "shape": [True], "data_offsets": [1, 2]}}, 2),
        "shard-header-broken", "b is not"),
    "an object for a shape": (
        blob({"a": {"dtype": "U8", "shape": {}, "data_offsets": [0, 1]}}, 1),
        "shard-header-broken", "a is not"),
    "more than 64 bits": (
        blob({"a": {"dtype": "U8", "shape": [2**63, 2, 0], "data_offsets": [0, 0]}}, 0),
        "tensor-size-disagrees", "takes 0 bytes"),
    "nested shape": (blob(changed(shape=[[2]]), 72), "shard-header-broken", "b is not"),
    "negative offset": (blob(changed(data_offsets=[-8, 0]), 72), "shard-header-broken", "b is"),
    "unknown dtype": (blob(changed(dtype="F8_E4M3FN"), 72), "tensor-dtype-unknown", "F8_E4M3FN"),
    "shape and bytes": (blob(changed(shape=[3]), 72), "tensor-size-disagrees", "takes 8 bytes"),
    "odd packing": (blob({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, 2),
                    "tensor-size-disagrees", "F4 [3]"),
    "gap": (blob(changed(data_offsets=[68, 76]), 76), "tensor-offsets-overlap-or-gap", "end at 64"),
    "overlap": (blob(changed(data_offsets=[60, 68]), 68), "tensor-offsets-overlap-or-gap", "60"),
    "cut": (blob(TWO, 71), "shard-truncated", "take 72 bytes, the file holds 71"),
    "only the header": (blob(TWO, 0), "shard-truncated", "b is cut off"),
    "too long": (blob(TWO, 80), "shard-has-trailing-data", "8 bytes follow"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_name(name: str, tmp_path: Path) -> None:
    data, slug, words = FAULTS[name]
    faults = read(tmp_path, data).faults
    assert [fault.slug for fault in faults] == [slug]
    assert words in faults[0].message
    assert not accepted(data)


def test_a_folder_or_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name, words in {
        "folder": "it is a folder",
        "pipe": "not a regular file",
        "link": "its symbolic link leads nowhere",
        "loop": "its symbolic links form a loop",
        "none": "it does not exist",
    }.items():
        (fault,) = read_header(tmp_path / name).faults
        assert fault.slug == "checkpoint-file-unreadable"
        assert words in fault.message


def test_many_wrong_tensors_are_one_message(tmp_path: Path) -> None:
    header = header_of({f"layer.{number}": ("F32", [1]) for number in range(1000)})
    for entry in header.values():
        entry["shape"] = [2]
    (fault,) = read(tmp_path, blob(header, 4000)).faults
    assert fault.message.endswith("and 997 more")
    assert len(fault.message) < 400


@pytest.mark.parametrize("dtype", dtype_bits())
def test_every_dtype_is_the_librarys(dtype: str, tmp_path: Path) -> None:
    data = blob(header_of({"a": (dtype, [8])}), dtype_bits()[dtype])
    assert accepted(data)
    assert read(tmp_path, data).faults == ()


dtypes = st.sampled_from([*dtype_bits(), "F8_E4M3FN", "f32", "", "I4"])
sizes = st.one_of(st.integers(-1, 9), st.sampled_from([2.0, True, None, 2**63, 2**64, "2", [1]]))
numbers = st.one_of(st.integers(0, 64), st.sampled_from([-1, 1.5, None, 2**64]))
entries = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "shape": st.lists(sizes, max_size=3),
        "data_offsets": st.lists(numbers, min_size=1, max_size=3),
    }
)
sound = st.lists(
    st.tuples(st.sampled_from(sorted(dtype_bits())), st.lists(st.integers(0, 4), max_size=3)),
    max_size=4,
).map(lambda found: header_of({f"t{number}": tensor for number, tensor in enumerate(found)}))


def agrees(path: Path, data: bytes) -> None:
    found = read(path, data)
    assert (found.faults == ()) == accepted(data), (found.faults, data)


@examples(1000)
@given(header=st.dictionaries(st.text(max_size=3), entries, max_size=3), size=st.integers(0, 80))
def test_generated_headers(header: dict[str, Any], size: int, tmp_path_factory: Any) -> None:
    agrees(tmp_path_factory.getbasetemp(), blob(header, size))


@examples(1000)
@given(header=sound, cut=st.integers(-9, 9), extra=st.sampled_from([b"", b" ", b"\0", b"x"]))
def test_sound_headers_and_sizes(
    header: dict[str, Any], cut: int, extra: bytes, tmp_path_factory: Any
) -> None:
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    data = blob(json.dumps(header).encode() + extra, max(end + cut, 0))
    agrees(tmp_path_factory.getbasetemp(), data)


@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes, tmp_path_factory: Any) -> None:
    agrees(tmp_path_factory.getbasetemp(), data)


@examples(500)
@given(data=st.data())
def test_one_changed_byte(data: st.DataObject, tmp_path_factory: Any) -> None:
    whole = bytearray(blob(TWO, 72))
    position = data.draw(st.integers(0, len(whole) - 73))
    whole[position] = data.draw(st.integers(0, 255))
    agrees(tmp_path_factory.getbasetemp(), bytes(whole))

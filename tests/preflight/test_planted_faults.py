"""One fault at a time, planted into a sound folder of two shards: each has an id of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from precision_plan.api import lint
from precision_plan.plan.compiled import LintReport
from tests.preflight.folders import blob, folder, header_of, index, shard

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
A = header_of({"a.weight": ("BF16", [4, 8])})
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def sound(path: Path) -> Path:
    """Two shards and their index."""
    folder(path)
    shard(path / ONE, **{"a.weight": ("BF16", [4, 8])})
    shard(path / TWO, **{"b.weight": ("BF16", [4, 8])})
    index(path, {"a.weight": ONE, "b.weight": TWO}, total_size=128)
    return path


def written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(data)


def entry(**fields: object) -> bytes:
    """The first shard with other fields of its tensor, and 64 bytes of data."""
    return blob({"a.weight": {**A["a.weight"], **fields}}, 64)


def indexed(**weight_map: str) -> Callable[[Path], object]:
    names = {name.replace("_", "."): shard for name, shard in weight_map.items()}
    return lambda path: index(path, names, total_size=128)


def no_index(change: Callable[[Path], object]) -> Callable[[Path], object]:
    def plant(path: Path) -> None:
        (path / INDEX).unlink()
        change(path)

    return plant


def removed(*names: str) -> Callable[[Path], object]:
    return lambda path: [(path / name).unlink() for name in names]


def as_folder(path: Path) -> None:
    (path / ONE).unlink()
    (path / ONE).mkdir()


def unfinished(path: Path) -> None:
    (path / TWO).rename(path / f"{TWO}.incomplete")


def pickled(path: Path) -> None:
    removed(ONE, TWO, INDEX)(path)
    (path / "pytorch_model.bin").write_bytes(b"\x80")


FAULTS: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "no config.json": (removed("config.json"), {"PP710"}),
    "config.json is cut": (written("config.json", b'{"model_type": "qwen3",'), {"PP711"}),
    "index is cut": (written(INDEX, b'{"weight_map": {"a.weight": '), {"PP712"}),
    "a key twice": (written("config.json", b'{"model_type": "a", "model_type": "b"}'), {"PP713"}),
    "no weights": (removed(ONE, TWO, INDEX), {"PP714"}),
    "pickled weights": (pickled, {"PP715"}),
    "a shard is absent": (removed(TWO), {"PP716"}),
    "a number is absent": (no_index(removed(TWO)), {"PP717"}),
    "pointer": (written(ONE, POINTER), {"PP718"}),
    "half a download": (unfinished, {"PP716", "PP719"}),
    "empty shard": (written(ONE, b""), {"PP720"}),
    "cut in the header": (written(ONE, blob(A, 64)[:30]), {"PP720"}),
    "a page of text": (written(ONE, b"<html><body>Not found</body>"), {"PP726"}),
    "header is no JSON": (written(ONE, blob(b'{"a.weight": {', 64)), {"PP727"}),
    "half the data": (written(ONE, blob(A, 32)), {"PP728"}),
    "too much data": (written(ONE, blob(A, 96)), {"PP729"}),
    "a gap": (written(ONE, blob({"a.weight": {**A["a.weight"], "data_offsets": [8, 72]}}, 72)),
              {"PP730"}),
    "unknown dtype": (written(ONE, entry(dtype="F8_E4M3FN")), {"PP735"}),
    "shape and bytes": (written(ONE, entry(shape=[4, 9])), {"PP736"}),
    "a tensor twice": (
        lambda path: shard(
            path / TWO, **{"a.weight": ("BF16", [4, 8]), "b.weight": ("BF16", [4, 8])}
        ),
        {"PP737"},
    ),
    "a tensor is absent": (indexed(a_weight=ONE, b_weight=TWO, c_weight=TWO), {"PP738"}),
    "places exchanged": (indexed(a_weight=TWO, b_weight=ONE), {"PP739"}),
    "a file outside": (lambda path: shard(path / "mtp.safetensors", mtp=("BF16", [2])), {"PP740"}),
    "a tensor outside": (
        lambda path: shard(path / TWO, **{"b.weight": ("BF16", [4, 7]), "b.scale": ("BF16", [4])}),
        {"PP741"},
    ),
    "another size": (lambda path: index(path, {"a.weight": ONE, "b.weight": TWO}, total_size=64),
                     {"PP742"}),
    "a folder for a shard": (as_folder, {"PP743"}),
}  # fmt: skip


def ids(report: LintReport) -> set[str]:
    return {found.id for found in report.diagnostics if found.id.startswith("PP7")}


def test_the_folder_is_sound(tmp_path: Path) -> None:
    assert ids(lint([sound(tmp_path / "m")])) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_each_has_its_id(name: str, tmp_path: Path) -> None:
    plant, expected = FAULTS[name]
    path = sound(tmp_path / "m")
    plant(path)
    report = lint([path])
    assert ids(report) == expected
    for found in report.diagnostics:
        if found.id in expected:
            assert found.origin.file.startswith(str(path)), found.origin
            assert found.fix and "\n" not in found.message

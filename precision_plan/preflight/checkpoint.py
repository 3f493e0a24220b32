"""A checkpoint folder -> :class:`CheckpointFiles`: its configuration, index and headers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_plan.plan import CheckpointFiles, Origin, TensorHeader, Unreadable
from precision_plan.plan.json_text import BrokenJson, Parsed, Positions, keys, parse_object
from precision_plan.preflight.files import LFS_MARK, Refused, read_whole
from precision_plan.preflight.safetensors_headers import Header, listed, read_header
from precision_plan.preflight.scales import read_scales

CONFIG = "config.json"
QUANT_CONFIG = "hf_quant_config.json"
INDEX = "model.safetensors.index.json"

_CONFIG_LIMIT = 1 << 26
_INDEX_LIMIT = 1 << 30
_SCALES_LIMIT = 2_000_000
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".safetensors")
_NOT_WEIGHTS = frozenset(
    {"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"}
)
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_UNFINISHED = ".incomplete"


def read_checkpoint(folder: Path, shown: str) -> CheckpointFiles:
    """Read what lies in ``folder``; messages name it as ``shown``. Nothing is raised.

    What cannot be read, or contradicts itself, is in ``unreadable``.
    """
    return _Reader(folder, shown).read()


class _Reader:
    """One pass over one folder; collects what it cannot read."""

    def __init__(self, folder: Path, shown: str) -> None:
        self.folder, self.shown = folder, shown.rstrip("/") or "/"
        self.faults: list[Unreadable] = []
        self.scales_left = _SCALES_LIMIT
        self.names = _names(folder)

    def read(self) -> CheckpointFiles:
        config = self._config()
        found, key, separate = self._quantization(config)
        index = self._index()
        weight_map = None if index is None else index["weight_map"]
        shards, left_out = self._shards(weight_map)
        others = tuple(sorted(filter(self._is_other, self.names)))
        tensors, scales, data_bytes = self._tensors(shards)
        self._numbered([*shards, *left_out], weight_map)
        self._unfinished(weight_map, shards)
        texts = [("", f"{self.shown}/{CONFIG}", config.text)] if config else []
        if separate:
            texts.append((f"{QUANT_CONFIG}:", f"{self.shown}/{QUANT_CONFIG}", separate.text))
        return CheckpointFiles(
            folder=self.shown,
            config=config.value if config else {},
            quantization_config=found,
            quantization_key=key,
            tensors=tensors if shards or weight_map is not None or not others else None,
            weight_map=weight_map,
            shards=tuple(shards),
            scales=scales,
            unreadable=tuple(self.faults),
            positions=Positions(*texts),
            hf_quant_config=separate.value if separate else None,
            left_out=self._left_out(left_out),
            others=others,
            index_size=None if index is None else _total_size(index),
            data_bytes=data_bytes,
        )

    # Descriptions ---------------------------------------------------------------------------
    def _config(self) -> Parsed | None:
        if CONFIG not in self.names:
            self._fault("checkpoint-without-config", CONFIG, self._without_config())
            return None
        return self._json(CONFIG, "checkpoint-config-unreadable", _CONFIG_LIMIT)

    def _without_config(self) -> str:
        if "params.json" in self.names:
            return "the folder has params.json (Mistral's format), which is not read"
        return "the folder is empty" if not self.names else "the folder has none"

    def _quantization(
        self, config: Parsed | None
    ) -> tuple[Mapping[str, Any] | None, str | None, Parsed | None]:
        """The quantization config that the engine finds, its place, and the separate file.

        In vLLM's order: the separate file counts if ``config.json`` has none at its top level.
        """
        value: Mapping[str, Any] = config.value if config else {}
        separate = None
        if QUANT_CONFIG in self.names:
            used = config is not None and value.get("quantization_config") is None
            slug = "checkpoint-json-unreadable" if used else None
            separate = self._json(QUANT_CONFIG, slug, _CONFIG_LIMIT)
        nested = value.get("text_config")
        inner: Mapping[str, Any] = nested if isinstance(nested, dict) else {}
        for key, found in (
            ("quantization_config", value.get("quantization_config")),
            (QUANT_CONFIG, separate.value if separate else None),
            ("compression_config", value.get("compression_config")),
            ("text_config.quantization_config", inner.get("quantization_config")),
            ("text_config.compression_config", inner.get("compression_config")),
        ):
            if isinstance(found, dict):
                return found, key, separate
        return None, None, separate

    def _index(self) -> dict[str, Any] | None:
        if INDEX not in self.names:
            return None
        parsed = self._json(INDEX, "checkpoint-json-unreadable", _INDEX_LIMIT)
        if parsed is None:
            return None
        weight_map = parsed.value.get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(shard, str) for shard in weight_map.values()
        ):
            self._fault("checkpoint-json-unreadable", INDEX, "it has no weight_map of file names")
            return None
        known: dict[str, str] = {}
        for name, shard in weight_map.items():
            weight_map[name] = known.setdefault(shard, shard)
        return parsed.value

    def _json(self, name: str, slug: str | None, limit: int) -> Parsed | None:
        """A JSON object of the folder; ``slug`` is the fault to note if it cannot be read."""
        try:
            data = read_whole(self.folder / name, limit)
            if data.startswith(LFS_MARK):
                if slug is not None:
                    self._fault(
                        "git-lfs-pointer", name, "the text of a pointer stands for the file"
                    )
                return None
            parsed = parse_object(data, repeats=name != INDEX)
        except Refused as error:
            if slug is not None:
                self._fault(slug, name, str(error))
        except BrokenJson as error:
            if slug is not None:
                self._fault(slug, name, str(error), error.line, error.column)
        else:
            self._repeated(name, parsed)
            return parsed
        return None

    def _repeated(self, name: str, parsed: Parsed) -> None:
        if not parsed.repeats:
            return
        file = f"{self.shown}/{name}"
        positions = Positions(("", file, parsed.text))
        for path in dict.fromkeys(key.path for key in keys(parsed.text) if key.repeated):
            where = positions[path]
            message = f"{path} stands twice; the parser keeps the last"
            self._fault("config-key-repeated", name, message, where.line, where.column)

    # Weights --------------------------------------------------------------------------------
    def _shards(self, weight_map: Mapping[str, str] | None) -> tuple[list[str], list[str]]:
        """The shards that the engine loads, and those that the index keeps from it."""
        present = sorted(
            name
            for name in self.names
            if name.endswith(".safetensors") and not name.startswith("consolidated")
        )
        if weight_map is None:
            return present, []
        named = set(weight_map.values())
        return [name for name in present if name in named], [
            name for name in present if name not in named
        ]

    def _is_other(self, name: str) -> bool:
        if name in _NOT_WEIGHTS or not name.endswith(_OTHER_WEIGHTS):
            return False
        return name.startswith("consolidated") or not name.endswith(".safetensors")

    def _tensors(
        self, shards: list[str]
    ) -> tuple[dict[str, TensorHeader], dict[str, tuple[float, ...]], int]:
        tensors: dict[str, TensorHeader] = {}
        scales: dict[str, tuple[float, ...]] = {}
        total = 0
        for shard in shards:
            header = self._header(shard)
            twice = sorted(header.entries.keys() & tensors.keys())
            if twice:
                pairs = [f"{name} also in {tensors[name].shard}" for name in twice]
                self._fault("tensor-in-two-shards", shard, listed(pairs))
            known: dict[tuple[str, tuple[int, ...]], TensorHeader] = {}
            for name, (dtype, shape, begin, end) in header.entries.items():
                found = known.get((dtype, shape))
                if found is None:
                    found = known[dtype, shape] = TensorHeader(dtype, shape, shard)
                tensors[name] = found
                total += end - begin
            if self.scales_left > 0 and not header.faults:
                path = self.folder / shard
                values = read_scales(path, header, self.scales_left)
                self.scales_left -= sum(map(len, values.values()))
                scales.update(values)
        return tensors, scales, total

    def _left_out(self, shards: list[str]) -> dict[str, TensorHeader]:
        return {
            name: TensorHeader(entry.dtype, entry.shape, shard)
            for shard in shards
            for name, entry in read_header(self.folder / shard).entries.items()
        }

    def _header(self, shard: str) -> Header:
        header = read_header(self.folder / shard)
        for fault in header.faults:
            self._fault(fault.slug, shard, fault.message)
        return header

    def _numbered(self, present: list[str], weight_map: Mapping[str, str] | None) -> None:
        """Name the shards of ``-00001-of-00010`` that are not there and that no index names."""
        series: dict[tuple[str, str], set[int]] = {}
        for name in present:
            match = _NUMBERED.fullmatch(name)
            if match:
                series.setdefault((match[1], match[3]), set()).add(int(match[2]))
        named = set(weight_map.values()) if weight_map else set()
        for (stem, total), numbers in series.items():
            whole = (
                f"{stem}-{number:05}-of-{total}.safetensors" for number in _absent(numbers, total)
            )
            absent = [name for name in whole if name not in named]
            if absent and (weight_map is None or any(name.startswith(stem) for name in named)):
                self._fault(
                    "numbered-shard-missing", absent[0], f"not in the folder: {listed(absent)}"
                )

    def _unfinished(self, weight_map: Mapping[str, str] | None, shards: list[str]) -> None:
        """Name the pieces of a download that was not finished, if files are missing indeed."""
        missing = set(weight_map.values()).difference(shards) if weight_map else set()
        absent = {"checkpoint-file-unreadable", "numbered-shard-missing", "shard-truncated"}
        if shards and not missing and absent.isdisjoint(each.fault for each in self.faults):
            return
        pieces = list(_pieces(self.folder))
        if pieces:
            what = "an unfinished file is left" if len(pieces) == 1 else f"{len(pieces)} are left"
            self._fault("download-not-finished", pieces[0], what)

    def _fault(self, slug: str, name: str, message: str, line: int = 0, column: int = 0) -> None:
        origin = Origin(f"{self.shown}/{name}", line, column)
        self.faults.append(Unreadable(slug, message, origin))


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names, thousands of them
    except (OSError, ValueError):
        return frozenset()


def _total_size(index: Mapping[str, Any]) -> int | None:
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if type(size) is int else None


def _absent(numbers: set[int], total: str) -> list[int]:
    """Numbers up to ``total`` that are not there; a total beyond any real series says nothing."""
    return [number for number in range(1, int(total) + 1) if number not in numbers]


def _pieces(folder: Path) -> Iterator[str]:
    """Unfinished files beside the folder's own, below its download cache, or among its blobs."""
    cache = folder / ".cache" / "huggingface" / "download"
    blobs = Path(os.path.realpath(folder)).parent.parent / "blobs"
    for place in (folder, cache, blobs):
        for name in sorted(_names(place)):
            if name.endswith(_UNFINISHED):
                yield os.path.relpath(place / name, folder)

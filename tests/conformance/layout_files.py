"""Headers of checkpoints that other libraries wrote, kept as YAML, and folders made from them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import yaml

from tests.checkpoints import expanded
from tests.preflight.folders import blob, folder, header_of

LAYOUTS = Path(__file__).parent / "layouts"
_NUMBER = re.compile(r"(?<=layers\.)\d+(?=\.)|(?<=experts\.)\d+(?=\.)")
_HEADER = re.compile(r"(\w+) \[([\d, ]*)\]")

Headers = dict[str, tuple[str, list[int]]]
Values = Mapping[str, Any]


def layout(name: str) -> dict[str, Any]:
    """``{written_by, config, hf_quant_config, tensors, scales}`` of one kept checkpoint."""
    found = yaml.safe_load((LAYOUTS / f"{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


def headers(described: Mapping[str, Any]) -> Headers:
    """Every tensor of a layout, in the order of its file."""
    found: Headers = {}
    for pattern, text in described["tensors"].items():
        match = _HEADER.fullmatch(text)
        assert match, text
        shape = [int(size) for size in match[2].split(", ") if size]
        found |= dict.fromkeys(expanded(pattern), (match[1], shape))
    return found


def values(described: Mapping[str, Any]) -> dict[str, Any]:
    """Every scalar (and shape) of a layout whose value was kept."""
    return {
        name: value
        for pattern, kept in described.get("scales", {}).items()
        for name, value in zip(expanded(pattern), kept, strict=True)
    }


def written(path: Path, described: Mapping[str, Any]) -> Path:
    """A folder with the configuration and one shard: zeros, and the scalars that were kept."""
    folder(path, described["config"])
    if described.get("hf_quant_config"):
        (path / "hf_quant_config.json").write_text(json.dumps(described["hf_quant_config"]))
    return save(path, headers(described), values(described))


def save(path: Path, tensors: Headers, scalars: Values) -> Path:
    """``model.safetensors`` of these headers and values."""
    header = header_of(tensors)
    size = max(entry["data_offsets"][1] for entry in header.values())
    data = bytearray(size)
    for name, value in scalars.items():
        if name in header:
            packed = _packed(tensors[name][0], value if isinstance(value, list) else [value])
            begin = header[name]["data_offsets"][0]
            data[begin : begin + len(packed)] = packed
    (path / "model.safetensors").write_bytes(blob(header, bytes(data)))
    return path


def _packed(dtype: str, numbers: list[float]) -> bytes:
    if dtype == "BF16":
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    letter = {"F32": "f", "F16": "e", "I64": "q"}[dtype]
    return struct.pack(f"<{len(numbers)}{letter}", *numbers)


def folded(items: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Alike names as one pattern: numbers of layers and experts become ``{0..3}``."""
    groups: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for name, item in items.items():
        numbers = tuple(int(number) for number in _NUMBER.findall(name))
        groups.setdefault((_NUMBER.sub("#", name), str(item)), []).append(numbers)
    found = []
    for (form, _), numbers in groups.items():
        axes = [sorted(set(axis)) for axis in zip(*numbers, strict=True)]
        if axes and sorted(numbers) == list(product(*axes)) and all(map(_whole, axes)):
            texts = [_text(axis) for axis in axes]
            found.append((_filled(form, texts), [_filled(form, each) for each in product(*axes)]))
        else:
            found += [(name, [name]) for name in (_filled(form, each) for each in numbers)]
    return found


def _whole(axis: list[int]) -> bool:
    return axis == list(range(axis[0], axis[-1] + 1))


def _text(axis: list[int]) -> str:
    return str(axis[0]) if len(axis) == 1 else f"{{{axis[0]}..{axis[-1]}}}"


def _filled(form: str, numbers: Iterable[object]) -> str:
    for number in numbers:
        form = form.replace("#", str(number), 1)
    return form


def kept(folder: Path, written_by: str) -> dict[str, Any]:
    """What is kept of a checkpoint folder: configuration, headers, and scalars' values."""
    from safetensors import safe_open

    tensors: dict[str, str] = {}
    scalars: dict[str, Any] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        with safe_open(shard, "pt") as file:
            for name in list(file.keys()):
                part = file.get_slice(name)
                shape = list(part.get_shape())
                tensors[name] = f"{part.get_dtype()} {shape}"
                if name.endswith(".weight_shape"):
                    scalars[name] = file.get_tensor(name).tolist()
                elif prod(shape) == 1 and part.get_dtype() in {"F32", "BF16", "F16"}:
                    scalars[name] = float(file.get_tensor(name).flatten()[0])
    separate = folder / "hf_quant_config.json"
    quantization = json.loads(separate.read_text()) if separate.exists() else None
    return {
        "written_by": written_by,
        "config": json.loads((folder / "config.json").read_text()),
        "hf_quant_config": quantization,
        "tensors": {pattern: tensors[names[0]] for pattern, names in folded(tensors)},
        "scales": {
            pattern: [scalars[name] for name in names]
            for pattern, names in folded(dict.fromkeys(scalars))
        },
    }


def keep(name: str, folder: Path, written_by: str) -> None:
    """Write ``layouts/NAME.yaml``."""
    text = yaml.safe_dump(kept(folder, written_by), sort_keys=False, width=100)
    (LAYOUTS / f"{name}.yaml").write_text(text)

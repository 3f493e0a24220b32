"""Cost of checking a checkpoint of 1 TB by its headers (budget: 10 s and 500 MB).

    python benchmarks/checkpoint.py [--layers N] [--experts N] [--format FORMAT] [--keep DIR]

Writes the headers of a mixture-of-experts checkpoint into sparse files without data, lints the
folder in a fresh process and prints seconds, the ratio to a bare ``json.loads`` of the same
headers and index in a process of its own, and the peak resident memory. Exits 1 if a budget is
missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HIDDEN, EXPERT, HEADS, HEAD = 7168, 2048, 64, 128
SHARD_BYTES = 6.5e9
BITS = {"BF16": 16, "F32": 32, "F8_E4M3": 8, "U8": 8, "I32": 32}
SECONDS, MEGABYTES = 10.0, 500.0

Tensor = tuple[str, str, tuple[int, ...]]

BARE = """
import json, sys
from pathlib import Path
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with path.open("rb") as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")))
json.loads((Path(sys.argv[1]) / "model.safetensors.index.json").read_bytes())
"""
MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

QUANTIZATION = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "nvfp4": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "*self_attn*", "*mlp.gate"],
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16}}},
        "producer": {"name": "modelopt", "version": "0.37.0"},
    },
    "int4": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4, "type": "int", "symmetric": True,
                    "strategy": "group", "group_size": 32,
                },
            }
        },
    },
}  # fmt: skip


def linear(name: str, rows: int, columns: int, format: str) -> Iterator[Tensor]:
    """The tensors of one quantized matrix."""
    if format == "fp8":
        yield f"{name}.weight", "F8_E4M3", (rows, columns)
        blocks = (math.ceil(rows / 128), math.ceil(columns / 128))
        yield f"{name}.weight_scale_inv", "F32", blocks
    elif format == "nvfp4":
        yield f"{name}.weight", "U8", (rows, columns // 2)
        yield f"{name}.weight_scale", "F8_E4M3", (rows, columns // 16)
        yield f"{name}.weight_scale_2", "F32", ()
        yield f"{name}.input_scale", "F32", ()
    else:
        yield f"{name}.weight_packed", "I32", (rows, columns // 8)
        yield f"{name}.weight_scale", "BF16", (rows, columns // 32)
        yield f"{name}.weight_shape", "I32", (2,)


def tensors(layers: int, experts: int, format: str) -> Iterator[Tensor]:
    """Every tensor of the model, in order of the layers."""
    yield "model.embed_tokens.weight", "BF16", (163840, HIDDEN)
    attention = format if format == "fp8" else "bf16"
    for layer in range(layers):
        base = f"model.layers.{layer}"
        for part, rows, columns in (
            ("q_proj", HEADS * HEAD, HIDDEN),
            ("k_proj", 8 * HEAD, HIDDEN),
            ("v_proj", 8 * HEAD, HIDDEN),
            ("o_proj", HIDDEN, HEADS * HEAD),
        ):
            name = f"{base}.self_attn.{part}"
            if attention == "fp8":
                yield from linear(name, rows, columns, format)
            else:
                yield f"{name}.weight", "BF16", (rows, columns)
        yield f"{base}.input_layernorm.weight", "BF16", (HIDDEN,)
        yield f"{base}.post_attention_layernorm.weight", "BF16", (HIDDEN,)
        yield f"{base}.mlp.gate.weight", "BF16", (experts, HIDDEN)
        for expert in range(experts):
            name = f"{base}.mlp.experts.{expert}"
            yield from linear(f"{name}.gate_proj", EXPERT, HIDDEN, format)
            yield from linear(f"{name}.up_proj", EXPERT, HIDDEN, format)
            yield from linear(f"{name}.down_proj", HIDDEN, EXPERT, format)
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield "lm_head.weight", "BF16", (163840, HIDDEN)


def size(tensor: Tensor) -> int:
    """Bytes of one tensor."""
    return math.prod(tensor[2]) * BITS[tensor[1]] // 8


def shards(layers: int, experts: int, format: str) -> Iterator[list[Tensor]]:
    """The tensors in portions of one file each."""
    portion: list[Tensor] = []
    filled = 0
    for tensor in tensors(layers, experts, format):
        if filled + size(tensor) > SHARD_BYTES and portion:
            yield portion
            portion, filled = [], 0
        portion.append(tensor)
        filled += size(tensor)
    yield portion


def write_shard(path: Path, portion: list[Tensor]) -> int:
    """Write the header as the safetensors library orders it, small scales, a hole for the rest."""
    portion = sorted(portion, key=lambda tensor: (-BITS[tensor[1]], tensor[1], tensor[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    values: list[tuple[int, bytes]] = []
    packed: dict[str, tuple[int, int]] = {}
    for name, _, shape in portion:
        if name.endswith(".weight_packed"):
            packed[name.removesuffix("packed")] = (shape[0], shape[1] * 8)
    for name, dtype, shape in portion:
        if dtype == "F32" and not shape:
            values.append((offset, struct.pack("<f", 2.0**-11)))
        elif name.endswith(".weight_shape"):
            values.append((offset, struct.pack("<2i", *packed[name.removesuffix("shape")])))
        end = offset + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    data = json.dumps(header, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        for place, value in values:
            file.seek(8 + len(data) + place)
            file.write(value)
        file.truncate(8 + len(data) + offset)
    return offset


def write_checkpoint(folder: Path, layers: int, experts: int, format: str) -> tuple[int, int, int]:
    """Write the folder; returns the numbers of tensors, files and bytes."""
    portions = list(shards(layers, experts, format))
    weight_map: dict[str, str] = {}
    total = 0
    for number, portion in enumerate(portions, 1):
        name = f"model-{number:05}-of-{len(portions):05}.safetensors"
        total += write_shard(folder / name, portion)
        weight_map.update((tensor[0], name) for tensor in portion)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": HIDDEN,
        "intermediate_size": EXPERT,
        "moe_intermediate_size": EXPERT,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 8,
        "head_dim": HEAD,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 163840,
        "quantization_config": QUANTIZATION[format],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return len(weight_map), len(portions), total


def measured(command: list[str]) -> tuple[float, float, int]:
    """Wall seconds, peak megabytes and exit code of one command in a fresh process."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], cwd=ROOT, capture_output=True, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    seconds = time.perf_counter() - start
    code, kilobytes = map(int, done.stdout.split())
    return seconds, kilobytes / 1024, code


def main() -> int:
    """Generate, measure, print, compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--experts", type=int, default=384)
    parser.add_argument("--format", choices=tuple(QUANTIZATION), default="fp8")
    parser.add_argument("--keep", type=Path, help="write here, and leave the folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        count, files, total = write_checkpoint(
            folder, options.layers, options.experts, options.format
        )
        print(f"{count:,} tensors in {files} files, {total / 1e12:.2f} TB ({options.format})")
        bare, _, _ = measured([sys.executable, "-c", BARE, str(folder)])
        target = ["--target", "gpu=b200", "vllm=0.33.0", "tensor_parallel_size=8"]
        seconds, megabytes, code = measured(
            [sys.executable, "-m", "precision_plan", "lint", str(folder), *target]
        )
    figures = [
        ("lint of the folder, seconds", seconds, SECONDS),
        ("peak resident memory, MB", megabytes, MEGABYTES),
    ]
    for label, value, budget in figures:
        verdict = "ok" if value <= budget else "MISSED"
        print(f"{label:32} {value:7.2f}  (budget {budget:.0f})  {verdict}")
    print(f"{'lint / bare json.loads':32} {seconds / bare:7.2f}  (bare: {bare:.2f} s)")
    print(f"{'exit code of lint':32} {code:7d}")
    return int(any(value > budget for _, value, budget in figures) or code == 2)


if __name__ == "__main__":
    sys.exit(main())

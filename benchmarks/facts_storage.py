"""Which storage form of the facts loads fastest, as ratios to JSON within one run.

    python benchmarks/facts_storage.py [--repeat N]

Every form holds the real tables of ``precision_plan/facts/data``. A Python module is measured
twice: compiled from source (a first run, a read-only installation) and from cached bytecode.
The last lines give the cost of the typed readers on top of the parsed tables.
"""

from __future__ import annotations

import argparse
import json
import marshal
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "precision_plan" / "facts" / "data"

READERS = (
    "megatron.megatron_flags", "megatron_shape.shape_flags", "gpus.gpus", "formats.formats",
    "transformer_engine.te_recipes", "env_vars.env_vars", "vllm.engine_args",
    "vllm_quant.quant_methods",
)  # fmt: skip


def forms() -> dict[str, Callable[[], Any]]:
    """One loader for each storage form, each over the bytes of every table."""
    texts = [path.read_bytes() for path in sorted(DATA.glob("*.json"))]
    tables = [json.loads(text) for text in texts]
    yamls = [yaml.safe_dump(table, sort_keys=False).encode() for table in tables]
    sources = [f"TABLE = {table!r}\n" for table in tables]
    codes = [marshal.dumps(compile(source, "table", "exec")) for source in sources]
    pickles = [pickle.dumps(table, protocol=5) for table in tables]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        "json": lambda: [json.loads(text) for text in texts],
        "yaml (C parser)": lambda: [yaml.load(text, loader) for text in yamls],
        "python, from source": lambda: [exec(source, {}) for source in sources],
        "python, from bytecode": lambda: [exec(marshal.loads(code), {}) for code in codes],
        "pickle": lambda: [pickle.loads(text) for text in pickles],
    }


def median_ms(load: Callable[[], Any], repeat: int) -> float:
    """Median processor milliseconds of one call."""
    taken = []
    for _ in range(repeat):
        start = time.process_time()
        load()
        taken.append(1000 * (time.process_time() - start))
    return statistics.median(taken)


def reader_ms(name: str, repeat: int) -> float:
    """Median processor milliseconds of one reader's first call, each in a fresh interpreter."""
    module, function = name.split(".")
    code = (
        f"import time; from precision_plan.facts import {module} as m; "
        f"start = time.process_time(); m.{function}(); print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", code]
    runs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(repeat)
    ]
    return 1000 * statistics.median(map(float, runs))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    kilobytes = sum(path.stat().st_size for path in DATA.glob("*.json")) / 1024
    print(f"{len(list(DATA.glob('*.json')))} tables, {kilobytes:.0f} KiB")
    times = {
        name: median_ms(load, 3 if name.startswith("yaml") else repeat)
        for name, load in forms().items()
    }
    for name, spent in times.items():
        print(f"{name:<24} {spent:8.2f} ms   {spent / times['json']:7.2f} x json")
    for name in READERS:
        print(f"reader {name:<32} {reader_ms(name, 5):6.2f} ms, parsing included")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

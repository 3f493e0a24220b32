"""Agreement with recorded verdicts of the real code, version by version.

    python benchmarks/agreement.py FOLDER

FOLDER holds ``megatron/VERSION.jsonl``: rows as ``precision-plan lint --jsonl`` reads them, with
the real outcome beside (``ok``, ``stage`` and ``source`` of a refusal, ``resolved`` of an
acceptance), and ``te_hardware.jsonl``: recipe, compute capability, CUDA and Transformer Engine
version with ``accepted``; and ``vllm/VERSION.jsonl``, rows with a model configuration. Errors of
stage ``build``, ``worker`` and ``policy`` are counted apart: the real code raises the former later
and the latter never. Every disagreement is listed. Exits 1 if there is one.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_plan.batch import lint_lines
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.transformer_engine import te_accepts

LATER = frozenset({"build", "worker", "policy"})
OUTCOME = frozenset({"ok", "stage", "source", "resolved", "error"})


def questions(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows without their outcome."""
    for row in rows:
        yield json.dumps({key: value for key, value in row.items() if key not in OUTCOME})


def compare(file: Path) -> tuple[Counter[str], list[str], float]:
    """Counts, disagreements and rows a second of one file."""
    rows = [json.loads(line) for line in file.open(encoding="utf-8")]
    asked = list(questions(rows))
    start = time.perf_counter()
    answers = [json.loads(answer) for answer, _ in lint_lines(asked)]
    rate = len(rows) / (time.perf_counter() - start)
    counts: Counter[str] = Counter(cases=len(rows))
    listed: list[str] = []
    for row, answer in zip(rows, answers, strict=True):
        refused = [error for error in answer["errors"] if error["stage"] not in LATER]
        if answer["errors"] and not refused:
            counts["build or policy only"] += 1
        if row["ok"] and refused:
            counts["false refusals"] += 1
            listed.append(f"{row['id']}: we refuse, {refused[0]['id']} {refused[0]['message']}")
        elif not row["ok"] and not refused:
            counts["false accepts"] += 1
            listed.append(f"{row['id']}: refused in {row['stage']}, {row.get('source', '')}")
        elif row["ok"]:
            for dest, value in row["resolved"].items():
                ours = answer["resolved"].get(dest, "absent")
                if str(ours) != str(value):
                    counts["resolved mismatches"] += 1
                    listed.append(f"{row['id']}: {dest} is {value!r}, we say {ours!r}")
    return counts, listed, rate


def hardware(file: Path) -> tuple[Counter[str], list[str]]:
    """Counts and disagreements about Transformer Engine's support checks."""
    counts: Counter[str] = Counter()
    listed: list[str] = []
    for line in file.open(encoding="utf-8"):
        row = json.loads(line)
        found = row["compute_capability"]
        capability = parse_capability(found) if isinstance(found, str) else tuple(found)
        ours = te_accepts(row["recipe"], capability, row["cuda"], row["transformer_engine"])
        counts["cases"] += 1
        if ours is not row["accepted"]:
            counts["false accepts" if ours else "false refusals"] += 1
            listed.append(f"{line.strip()}: we say {ours}")
    return counts, listed


def main(arguments: list[str]) -> int:
    """Compare, print, and tell by the exit code whether everything agrees."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    columns = ("cases", "false accepts", "false refusals", "resolved mismatches")
    print(f"{'':24}" + "".join(f"{name:>21}" for name in (*columns, "build or policy only")))
    wrong: list[str] = []
    for kind in ("megatron", "vllm"):
        for file in sorted((folder / kind).glob("*.jsonl")):
            counts, listed, rate = compare(file)
            shown = "".join(f"{counts[name]:>21}" for name in (*columns, "build or policy only"))
            print(f"{f'{kind} {file.stem}':24}{shown}   {rate:,.0f} rows/s")
            wrong += listed
    counts, listed = hardware(folder / "te_hardware.jsonl")
    print(f"{'te_hardware':24}" + "".join(f"{counts[name]:>21}" for name in columns[:3]))
    wrong += listed
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Public reports of wrong precision settings against what the linter says of them.

    python benchmarks/cases.py [FOLDER]

FOLDER (default ``tests/cases``) holds one folder a report. Prints for each family how many
verdicts are right and wrong and how many reports the plan cannot express, then every wrong one
with what is wrong about it. Exits 1 if there is one.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cases.judging import Case, cases, faults  # noqa: E402

FAMILIES = {
    "A": "hardware or toolkit cannot run the format",
    "B": "environment variables",
    "C": "trainer and rollout differ",
    "D": "weight-sync contract",
    "E": "FP8 parameters, optimizer, offload, masters",
    "F": "contradicting or unread settings",
    "G": "fp16, bf16, loss scale, activation dtype",
    "H": "divisibility",
    "I": "KV cache and recurrent state",
    "J": "quantization_config and tensors",
    "K": "converters",
    "L": "graphs, recompute, parallelism, exempt layers",
    "M": "resume",
    "N": "expectations",
}
COLUMNS = ("right", "wrong", "not expressible")


def outcome(case: Case) -> tuple[str, list[str]]:
    """One of :data:`COLUMNS`, and what is wrong."""
    if case.not_expressible is not None:
        return "not expressible", []
    wrong = faults(case)
    return ("wrong" if wrong else "right"), wrong


def main(arguments: list[str]) -> int:
    """Judge, print, and tell by the exit code whether every verdict is right."""
    folder = Path(arguments[0]) if arguments else ROOT / "tests" / "cases"
    if len(arguments) > 1 or not folder.is_dir():
        print(__doc__)
        return 2
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    listed: list[str] = []
    silent: list[str] = []
    for case in cases(folder):
        verdict, wrong = outcome(case)
        counts[case.family][verdict] += 1
        listed += [f"{case.name}: {text}" for text in wrong]
        if case.not_expressible:
            silent.append(f"{case.name}: {' '.join(case.not_expressible.split())}")
    print(f"{'':48}" + "".join(f"{name:>17}" for name in COLUMNS))
    for family in sorted(counts):
        shown = "".join(f"{counts[family][name]:>17}" for name in COLUMNS)
        print(f"{family} {FAMILIES.get(family, ''):46}{shown}")
    total: Counter[str] = sum(counts.values(), Counter())
    print(f"{'all':48}" + "".join(f"{total[name]:>17}" for name in COLUMNS))
    if silent:
        print("\nnot expressible", *silent, sep="\n")
    if listed:
        print("\nwrong", *listed, sep="\n")
    return int(bool(total["wrong"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

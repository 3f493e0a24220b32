"""Start-up and lint cost, as ratios within one run (budgets: docs/architecture.md).

    python benchmarks/startup.py [--repeat N]

Prints one line per figure and exits 1 if a budget is missed. Ratios, not seconds: a slow machine
slows both sides.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "qwen3-30b-fp8"
BARE_COMPOSE = (
    "import sys\n"
    "from hydra import compose, initialize_config_dir\n"
    "with initialize_config_dir(sys.argv[1], version_base=None):\n"
    "    compose('config')\n"
)


def median_seconds(commands: dict[str, list[str]], repeat: int) -> dict[str, float]:
    """Median wall seconds of each command; the commands take turns so that drift hits all."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
            taken[name].append(time.perf_counter() - start)
            if done.returncode:
                sys.exit(f"{name} exited {done.returncode}: {done.stderr.decode()[-500:]}")
    return {name: statistics.median(times) for name, times in taken.items()}


def many_recipes(count: int, folder: Path) -> None:
    """Copy the recipes of ``conf/`` under new names until there are ``count``."""
    originals = sorted((ROOT / "conf" / "recipes").glob("*.yaml"))
    for index in range(count):
        source = originals[index % len(originals)]
        shutil.copy(source, folder / f"{source.stem}-{index}.yaml")


def loads_torch(arguments: list[str]) -> bool:
    """True if a command of the CLI imports torch."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "precision_plan", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return any(line.rstrip().endswith("| torch") for line in done.stderr.splitlines())


def main() -> int:
    """Measure, print, compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    python = sys.executable
    tool = [python, "-m", "precision_plan"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many_recipes(200, folder)
        seconds = median_seconds(
            {
                "bare": [python, "-c", "pass"],
                "version": [*tool, "--version"],
                "hydra": [python, "-c", BARE_COMPOSE, str(ROOT / "conf")],
                "plan": [*tool, "plan", RECIPE, "--format", "json"],
            },
            repeat,
        )
        lint = median_seconds({"lint": [*tool, "lint", str(folder), "--format", "json"]}, 3)["lint"]
    figures = [
        ("--version / bare interpreter", seconds["version"] / seconds["bare"], 3.0),
        ("plan / bare Hydra compose", seconds["plan"] / seconds["hydra"], 1.3),
        ("lint of 200 recipes, seconds", lint, 3.0),
        ("torch loaded by plan", float(loads_torch(["plan", RECIPE])), 0.0),
        ("torch loaded by lint", float(loads_torch(["lint", "conf/recipes"])), 0.0),
    ]
    for label, value, budget in figures:
        verdict = "ok" if value <= budget else "MISSED"
        print(f"{label:32} {value:6.2f}  (budget {budget:.2f})  {verdict}")
    return int(any(value > budget for _, value, budget in figures))


if __name__ == "__main__":
    sys.exit(main())

"""One task runner for people and CI; needs nothing but Python 3.10 or newer.

    python3 tools/dev.py plan     set up and print the plan of recipe qwen3-30b-fp8
    python3 tools/dev.py test     set up everything and run the whole test suite

Each task makes ``.venv`` if it is missing, installs what it needs at the versions of
``constraints.txt`` and then runs. Further arguments go to the program that the task runs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("PRECISION_PLAN_VENV", ROOT / ".venv"))
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
CONSTRAINTS = ROOT / "constraints.txt"

# Transformer Engine's recipes are plain Python; its compiled core needs a GPU toolkit. Without
# dependencies and with this variable it installs and imports on any machine.
CPU_ONLY_TE = {"NVTE_PROJECT_BUILDING": "1"}
ALL_TESTS = {"PRECISION_PLAN_ALL_TESTS": "1"}  # a missing package is an error, not a skip

# Releases whose wheels the tests read beside the installed one, without installing them.
TE_RELEASES = ("2.8.0", "2.14.1", "2.20.2")
TE_WHEELS = Path(os.environ.get("PRECISION_PLAN_TE_WHEELS", ROOT / ".cache" / "te"))

TASKS = {
    "plan": ("core", ["launch.py", "+recipe=qwen3-30b-fp8", "dry_run=true"]),
    "test": ("full", ["-m", "pytest"]),
    "lint": ("full", ["-m", "ruff", "check", "."]),
    "format": ("full", ["-m", "ruff", "format", "."]),
    "format-check": ("full", ["-m", "ruff", "format", "--check", "."]),
    "types": ("full", ["-m", "mypy"]),
    "docs": ("core", ["-m", "precision_plan", "rules", "--format", "markdown", "-o", "docs/rules"]),
    "bench": ("core", ["benchmarks/startup.py"]),
}


def run(*command: str | Path, env: dict[str, str] | None = None) -> int:
    """Run a command from the repository root; returns its exit code."""
    return subprocess.run(
        [str(part) for part in command], cwd=ROOT, env={**os.environ, **(env or {})}, check=False
    ).returncode


def pip(*arguments: str) -> None:
    """Install quietly at the pinned versions; stops the task with pip's exit code if it fails."""
    code = run(
        PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check",
        "-c", CONSTRAINTS, *arguments, env=CPU_ONLY_TE,
    )  # fmt: skip
    if code:
        sys.exit(f"pip install {' '.join(arguments)} failed (exit code {code})")


def fetch_te_wheels() -> None:
    """Download the wheels that are not there yet; stops the task if one cannot be had."""
    for release in TE_RELEASES:
        if any(TE_WHEELS.glob(f"transformer_engine-{release}-*.whl")):
            continue
        code = run(
            PYTHON, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "-d", TE_WHEELS, f"transformer-engine=={release}",
        )  # fmt: skip
        if code:
            sys.exit(f"pip download transformer-engine=={release} failed (exit code {code})")


def set_up(level: str) -> None:
    """Make the environment of one level; a stamp skips what is installed already."""
    wanted = hashlib.sha256(
        CONSTRAINTS.read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    ).hexdigest()
    stamp = VENV / f".precision-plan-{level}"
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    if level == "core":
        pip("-e", ".")
    else:
        pip("torch")
        pip("-e", ".[dev,megatron]")
        pip("--no-deps", "transformer-engine")
    stamp.write_text(wanted)


def main(arguments: list[str]) -> int:
    """Set up and run the task named first."""
    if not arguments or arguments[0] not in TASKS:
        print(__doc__)
        print("tasks:", " ".join(TASKS))
        return 2
    level, command = TASKS[arguments[0]]
    set_up(level)
    run(PYTHON, "-m", "compileall", "-q", "precision_plan")  # see tools/hatch_build.py
    env = CPU_ONLY_TE if level == "full" else {}
    if arguments[0] == "test":
        fetch_te_wheels()
        env = {**env, **ALL_TESTS}
    return run(PYTHON, *command, *arguments[1:], env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The functions of ``precision_plan.api`` are loaded one by one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from precision_plan import api

ROOT = Path(__file__).parents[2]


def test_every_name_leads_somewhere() -> None:
    assert sorted(api._HOME) == sorted(api.__all__)
    assert all(callable(getattr(api, name)) for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        api.no_such  # noqa: B018


def test_a_dry_run_loads_nothing_of_the_others() -> None:
    code = (
        "import sys\nfrom precision_plan.__main__ import main\n"
        "main(['plan', 'qwen3-30b-fp8', '-o', '/dev/null'])\n"
        "print(*(name for name in sys.modules if name.startswith('precision_plan.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "precision_plan.api.compiling" in loaded
    others = {"api.linting", "api.comparing", "api.tracing", "api.support", "plan.snapshot",
              "plan.comparison", "plan.lock", "plan.tracing", "plan.names"}  # fmt: skip
    assert loaded.isdisjoint(f"precision_plan.{name}" for name in others)

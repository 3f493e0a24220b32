"""What the tests of several rooms share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from tests._hypothesis import load_profile

load_profile()

UPSTREAM = ("torch", "megatron-core", "transformer-engine")
"""The real packages that the conformance tests are about; without one, its tests are skipped."""

Committed = Callable[[Path, str], None]


def pytest_sessionstart(session: pytest.Session) -> None:
    """README's test command promises the real packages: none may be missing or another release.

    The releases are those of ``constraints.txt``; with others, tests would be skipped quietly.
    """
    if not os.environ.get("PRECISION_PLAN_ALL_TESTS"):
        return
    text = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(line.split("==") for line in text.split() if "==" in line)
    for name in UPSTREAM:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "none"
        if found.split("+")[0] != pins[name]:
            message = f"{name} {pins[name]} is needed, found {found}: its tests would be skipped"
            pytest.exit(message, returncode=3)


@pytest.fixture
def committed() -> Committed:
    """Compare a text with a committed file; ``UPDATE_SNAPSHOTS=1 pytest`` writes it instead."""

    def compare(path: Path, text: str) -> None:
        if os.environ.get("UPDATE_SNAPSHOTS"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), "committed", "now", lineterm="", n=2
            )
            shown = "\n".join(list(lines)[:60])
            pytest.fail(f"{path.name} differs (UPDATE_SNAPSHOTS=1 writes it):\n{shown}", False)

    return compare

"""Trees made from the facts, changed in one place and checked."""

from __future__ import annotations

import re
from pathlib import Path

from precision_plan.drift.changes import Change, Report
from precision_plan.drift.check import check_megatron, check_transformer_engine
from tests.drift import trees

VERSION = "0.16.1"
TE = "2.20.2"


def megatron(tmp_path: Path, files: trees.Files, version: str = VERSION) -> Report:
    path = trees.wheel(tmp_path / "megatron.whl", files)
    return check_megatron(str(path), version)


def engine(tmp_path: Path, files: trees.Files, version: str | None = None) -> Report:
    return check_transformer_engine(str(trees.wheel(tmp_path / "te.whl", files)), version)


def edit(files: trees.Files, path: str, pattern: str, text: str) -> trees.Files:
    """The tree with one place of one file rewritten."""
    changed, count = re.subn(pattern, text, files[path], flags=re.MULTILINE)
    assert count == 1, f"{pattern} stands {count} times in {path}"
    return {**files, path: changed}


def add(files: trees.Files, path: str, text: str) -> trees.Files:
    """The tree with lines added to one file."""
    return {**files, path: files[path] + text}


def argument(files: trees.Files, text: str) -> trees.Files:
    """The tree with one more ``add_argument`` call."""
    return edit(files, trees.ARGUMENTS, r"^    return parser", f"    {text}\n    return parser")


def summary(change: Change) -> tuple[object, ...]:
    return (change.kind, change.subject, change.name, change.aspect)

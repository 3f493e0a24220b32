"""A small configuration folder to compose in, and short ways to ask for findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from precision_plan.compose import Composer, Composition
from precision_plan.plan import Diagnostic

FILES = {
    "config.yaml": """\
defaults:
  - model: null
  - hardware: null
  - training: null
  - rollout: null
  - _self_

dry_run: false
launcher: null
""",
    "model/small.yaml": "name: small\nnum_layers: 4\n",
    "hardware/h100.yaml": "# Hopper\ngpu: h100\ngpus_per_node: 8\n",
    "hardware/b200.yaml": "gpu: b200\ngpus_per_node: 8\n",
    "training/fp8.yaml": "bf16: true\nfp8_format: e4m3\nfp8_recipe: blockwise\n",
    "training/bf16.yaml": "bf16: true\n",
    "rollout/bf16.yaml": "dtype: bfloat16\n",
    "recipes/base.yaml": """\
# @package _global_
defaults:
  - override /model: small
  - override /hardware: h100
  - override /training: fp8

recipe:
  title: A small recipe
  source: [somewhere]
  maturity: stable

hardware:
  nodes: 2

training:
  seq_length: 4096
""",
}

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``conf/`` of a temporary folder, which is the current one."""
    folder = tmp_path / "conf"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def write(conf: Path) -> Write:
    """Write a file below ``conf/`` and return its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.fixture
def compose(conf: Path) -> Callable[..., Composition]:
    """Compose a recipe of that folder under overrides."""
    return lambda recipe=None, *overrides: Composer(conf).compose(recipe, overrides)


def told(diagnostics: tuple[Diagnostic, ...]) -> list[str]:
    """``ID position message`` of each finding."""
    return [f"{found.id} {found.origin} {found.message}" for found in diagnostics]

"""Byte-compiles the package when it is built or installed in place.

pip compiles what it copies, but not an editable install; where Python is told not to write
bytecode (``PYTHONDONTWRITEBYTECODE``, common in containers), every start would then compile the
sources again, which costs more than everything else that the tool does.
"""

from __future__ import annotations

import compileall
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ByteCompile(BuildHookInterface[Any]):
    """Writes ``__pycache__`` beside the sources; what is up to date is left alone."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds the wheel, editable or not."""
        compileall.compile_dir(str(Path(self.root) / "precision_plan"), quiet=2)

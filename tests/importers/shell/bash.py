"""What the real bash makes of a script whose programs do not exist: the words it would start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BASH = shutil.which("bash")
TOOLS = ("bash", "basename", "cat", "dirname", "realpath", "seq")
"""Programs that only rewrite text; the reader follows them, too."""

_PRELUDE = r"""
command_not_found_handle() { { printf '%s\0' "$@"; printf '\1\0'; } >&3; }
export -f command_not_found_handle
source "$1"
"""


def started(script: Path, folder: Path, env: dict[str, str] | None = None) -> list[list[str]]:
    """The commands that bash looks for and does not find, as lists of words."""
    if BASH is None:
        pytest.skip("no bash on this machine")
    record = folder / "record"
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    with record.open("wb") as file:
        subprocess.run(
            [BASH, "-c", f"exec 3>&{file.fileno()};{_PRELUDE}", "bash", str(script)],
            cwd=folder,
            env={"PATH": str(tools), **(env or {})},
            pass_fds=(file.fileno(),),
            check=False,
            timeout=20,
            capture_output=True,
        )
    words: list[list[str]] = [[]]
    for word in record.read_bytes().decode().split("\0")[:-1]:
        if word == "\1":
            words.append([])
        else:
            words[-1].append(word)
    return words[:-1]

"""Which repository a run takes place in."""

from __future__ import annotations

import os
from pathlib import Path


def folders() -> tuple[str, str]:
    """The current folder, and the root of the repository that it lies in.

    Outside a repository both are the current folder. Nothing is started to find out.
    """
    try:
        here = Path.cwd()
    except OSError:  # the current folder was removed
        return "", ""
    for folder in (here, *here.parents):
        if os.path.lexists(folder / ".git"):  # a folder, or a file in a work tree or submodule
            return str(here), str(folder)
    return str(here), str(here)

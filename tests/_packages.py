"""Releases of upstream packages that tests read without installing them.

``python3 tools/dev.py test`` downloads the wheels; a test that needs one which is not there
fails and says so, since a skipped comparison with the real code would go unseen.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_RECIPES = "transformer_engine/common/recipe/__init__.py"
_numbers = itertools.count()


def _task_runner() -> Any:
    path = Path(__file__).resolve().parents[1] / "tools" / "dev.py"
    spec = importlib.util.spec_from_file_location("precision_plan_dev", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_DEV = _task_runner()
TE_RELEASES: tuple[str, ...] = _DEV.TE_RELEASES


def installed_version(distribution: str) -> str:
    """The version of an installed distribution, which is not imported; else a skip."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")


def te_wheel(release: str) -> Path:
    """The wheel of one of :data:`TE_RELEASES`."""
    found = sorted(_DEV.TE_WHEELS.glob(f"transformer_engine-{release}-*.whl"))
    if not found:
        pytest.fail(
            f"transformer-engine {release} is not in {_DEV.TE_WHEELS}: "
            "python3 tools/dev.py test downloads it",
            pytrace=False,
        )
    return Path(found[0])


@contextmanager
def only_nvte(env: Mapping[str, str]) -> Iterator[None]:
    """The environment with exactly these ``NVTE_*`` variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("NVTE_")]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        yield


def te_recipe_module(release: str, env: Mapping[str, str] | None = None) -> ModuleType:
    """``transformer_engine.common.recipe`` of a release, executed under a name of its own.

    The module needs neither torch nor the native library. Its classes read their ``NVTE_*``
    defaults when they are defined, so it is executed anew for every environment.
    """
    path = te_wheel(release)
    with zipfile.ZipFile(path) as wheel:
        source = wheel.read(_RECIPES).decode()
    name = f"te_recipe_{release.replace('.', '_')}_{next(_numbers)}"
    module = ModuleType(name)
    module.__file__ = f"{path}/{_RECIPES}"
    sys.modules[name] = module  # dataclasses look their module up to resolve annotations
    with only_nvte(env or {}):
        exec(compile(source, module.__file__, "exec"), vars(module))
    return module

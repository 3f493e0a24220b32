"""What Hydra itself makes of the same files and overrides, in the form that the tests compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from precision_plan.compose import Composer, Composition
from precision_plan.compose.defaults import expand
from precision_plan.compose.hydra_plugin import register
from precision_plan.compose.overrides import parse_overrides
from precision_plan.compose.search_path import SearchPath
from precision_plan.plan.codes import is_broken_input

REFUSED = "refused"
"""What both sides are said to answer where a composition is not possible."""


def by_hydra(conf: Path, overrides: Sequence[str]) -> Any:
    """The composed mapping without Hydra's own section and without empty sections."""
    register()
    try:
        with initialize_config_dir(str(conf.absolute()), version_base=None):
            config = compose("config", overrides=list(overrides))
        data = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError, AssertionError):
        return REFUSED
    assert isinstance(data, dict)
    data.pop("hydra", None)
    return without_empty(data)


def by_us(conf: Path, overrides: Sequence[str]) -> Any:
    """The same from this project's composer."""
    composition = Composer(conf).compose(None, overrides)
    if broken(composition):
        return REFUSED
    return without_empty({**composition.data, **composition.options})


def includes_a_file_twice(conf: Path, overrides: Sequence[str]) -> bool:
    """True if one file is part of the composition more than once.

    Hydra 1.3 then merges into the cached tree of the first use, and the second sees the result.
    """
    search_path = SearchPath((conf,))
    parsed, _ = parse_overrides(overrides)
    groups = [each for each in parsed if search_path.is_group(each.key)]
    files = [layer.document.path for layer in expand(search_path, groups).layers]
    return len(set(files)) < len(files)


def broken(composition: Composition) -> list[str]:
    """The findings that make a composition unusable."""
    return [
        f"{found.id} {found.origin}: {found.message}"
        for found in composition.diagnostics
        if is_broken_input(found)
    ]


def without_empty(data: dict[Any, Any]) -> dict[Any, Any]:
    """Without empty top-level mappings: the plugin opens every section, set or not."""
    return {key: value for key, value in data.items() if value != {}}

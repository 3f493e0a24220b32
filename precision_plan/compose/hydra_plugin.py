"""Lets Hydra itself see what this project's composer sees.

``launch.py`` registers two plugins through Hydra's own extension points, so that ``--help``,
``--cfg``, ``--info``, sweeps and completion work with ``+recipe=NAME`` and with settings that no
file mentions. No argument is rewritten and nothing of Hydra is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, HydraException
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from precision_plan.compose.document import Document, read_document
from precision_plan.compose.merge import copied
from precision_plan.compose.reading import display_path
from precision_plan.compose.search_path import PRIMARY, RECIPE_GROUP, SearchPath
from precision_plan.plan.precision_plan import SECTIONS

SCHEME = "precision-plan"


class RecipeConfigSource(ConfigSource):
    """Serves a configuration folder to Hydra: group ``recipe`` from ``recipes/``, open sections.

    Sections are marked as open (``struct`` off), so that a setting which no file mentions can be
    overridden without ``+``; whether it exists is this project's schema to say, not Hydra's.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._search_path = SearchPath((Path(self.path),))

    @staticmethod
    def scheme() -> str:
        """``precision-plan``, as in ``precision-plan:///etc/recipes``."""
        return SCHEME

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def is_group(self, config_path: str) -> bool:
        return not config_path or self._search_path.is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return self._search_path.find(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names: list[str] = []
        if not config_path:
            if results_filter != ObjectType.CONFIG:
                names += self._search_path.groups()
            if results_filter != ObjectType.GROUP:
                names += (PRIMARY,)
        elif results_filter != ObjectType.GROUP:
            names += self._search_path.choices(config_path)
        return sorted(set(names))

    def load_config(self, config_path: str) -> ConfigResult:
        path = self._search_path.find(config_path)
        if path is None:
            raise ConfigLoadError(f"there is no {config_path} in {display_path(Path(self.path))}")
        document = read_document(path, display_path(path))
        if document.problems:
            raise ConfigCompositionException("\n".join(_lines(document)))
        if config_path != PRIMARY and _configures_hydra(document):
            raise ConfigCompositionException(
                f"{document.file}: only {PRIMARY}.yaml may configure Hydra"
            )
        is_recipe = config_path.startswith(f"{RECIPE_GROUP}/")
        package = document.package or ("_global_" if is_recipe else None)
        is_global = config_path == PRIMARY or package == "_global_"
        return ConfigResult(
            config=_open(document, sections=is_global, all_sections=config_path == PRIMARY),
            path=f"{SCHEME}://{self.path}",
            provider=self.provider,
            header={"package": package},
        )


def _configures_hydra(document: Document) -> bool:
    """True if the file sets something of Hydra's, which can name code to run."""
    packages = [document.package, *(entry.package for entry in document.entries)]
    names = [entry.name.removeprefix("/") for entry in document.entries]
    return (
        "hydra" in document.data
        or any(re.match(r"(_global_\.)?hydra(\.|$)", package or "") for package in packages)
        or any(name == "hydra" or name.startswith("hydra/") for name in names)
    )


def _lines(document: Document) -> Iterator[str]:
    for problem in document.problems:
        yield f"error[{problem.id}] {problem.origin}: {problem.message}"


def _open(document: Document, *, sections: bool, all_sections: bool) -> DictConfig:
    """The document for Hydra, with its sections (or itself, if it fills one) marked as open."""
    data: dict[str, Any] = {key: copied(value) for key, value in document.data.items()}
    if all_sections:
        for name in SECTIONS:
            data.setdefault(name, {})
    if document.entries:
        data["defaults"] = [entry.raw() for entry in document.entries]
    config = OmegaConf.create(data)
    if not sections:
        OmegaConf.set_struct(config, False)
        return config
    for name in SECTIONS:
        if isinstance(config._get_node(name), DictConfig):
            OmegaConf.set_struct(config[name], False)
    return config


class RecipeSearchPath(SearchPathPlugin):
    """Puts the application's configuration folder in front of itself, served by this source."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for element in search_path.get_path():
            folder = (element.path or "").removeprefix("file://")
            if element.provider == "main" and "://" not in folder:
                search_path.prepend(
                    SCHEME, f"{SCHEME}://{folder}", anchor=SearchPathQuery(provider="main")
                )
                return


def register() -> None:
    """Make Hydra know both plugins; does nothing the second time."""
    plugins = Plugins.instance()
    plugins.register(RecipeConfigSource)
    plugins.register(RecipeSearchPath)


@dataclass(frozen=True, slots=True)
class Job:
    """What Hydra was asked for: the overrides of this job and the folders that it searches."""

    overrides: tuple[str, ...]
    conf_dir: str
    search_paths: tuple[str, ...]


def current_job() -> Job:
    """The running job, as the arguments of the API.

    Raises:
        HydraException: if another primary config was chosen (``--config-name``); recipes are
            written for one.
    """
    config = HydraConfig.get()
    if config.job.config_name != PRIMARY:
        raise HydraException(
            f"the primary config is {PRIMARY}, not {config.job.config_name}: name a recipe instead"
        )
    main, added = "", []
    for source in config.runtime.config_sources:
        if source.provider == "main":
            main = source.path
        elif source.provider != SCHEME and source.schema in ("file", SCHEME):
            added.append(source.path)
    return Job(tuple(config.overrides.task), main, tuple(added))

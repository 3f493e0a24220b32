"""Where recipes and group choices lie: a list of folders, of which the first with a file wins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from precision_plan.compose.document import Document, document_of, read_document
from precision_plan.compose.reading import display_path, is_folder

RECIPE_GROUP = "recipe"
"""The group of ``+recipe=NAME``; its files lie in the folder ``recipes``."""
_RECIPE_FOLDER = "recipes"
PRIMARY = "config"
"""Name of the primary config: ``config.yaml``."""

_SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parents[1]


def conf_folder(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The configuration folder to use.

    ``explicit`` if given; else ``./conf`` if it holds ``config.yaml`` and ``recipes/`` (a bare
    ``config.yaml`` may belong to another program); else the installed copy, or the repository's
    own when the package runs from a checkout.
    """
    if explicit is not None:
        return Path(explicit)
    local = Path("conf")
    if (local / f"{PRIMARY}.yaml").is_file() and (local / _RECIPE_FOLDER).is_dir():
        return local.absolute()
    installed = _PACKAGE / "conf"
    return installed if installed.is_dir() else _PACKAGE.parent / "conf"


class SearchPath:
    """Folders that hold ``config.yaml``, ``recipes/`` and one folder per group.

    ``texts`` stand in for files, by their real path: what they would hold after an edit.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        recipe: Path | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.folders = tuple(folders)
        self._recipe = recipe
        self._texts = dict(texts or {})
        beside = () if recipe is None else (recipe.parent,)
        self._recipe_folders = (*beside, *(each / _RECIPE_FOLDER for each in self.folders))

    def beside(self, recipe: Path) -> SearchPath:
        """The same with the file ``recipe`` as a recipe, and with its folder searched first."""
        return SearchPath(self.folders, recipe, self._texts)

    def with_folders(self, folders: Iterable[Path]) -> SearchPath:
        """The same with more folders, searched last."""
        return SearchPath((*self.folders, *folders), self._recipe, self._texts)

    def read(self, path: Path) -> Document:
        """The parsed file; a text that stands in for the file is taken in its place."""
        shown = display_path(path)
        text = self._texts.get(os.path.realpath(path)) if self._texts else None
        return read_document(path, shown) if text is None else document_of(text, path, shown)

    def find(self, config_path: str) -> Path | None:
        """The file of ``group/choice`` or of a top-level config; ``None`` if no folder has it.

        A recipe may also be named by the path of a YAML file.
        """
        group, _, rest = config_path.partition("/")
        if group == RECIPE_GROUP and rest:
            if self._recipe is not None and rest == self._recipe.name:
                return self._recipe
            return _first(self._recipe_folders, rest) or _named_file(rest)
        return _first(self.folders, config_path)

    def is_group(self, group: str) -> bool:
        """True if some folder has files for ``group``."""
        return any(map(is_folder, self._of(group)))

    def choices(self, group: str) -> tuple[str, ...]:
        """Sorted names of the choices of ``group``; empty if there is no such group."""
        names: set[str] = set()
        for folder in self._of(group):
            try:
                names.update(
                    entry.name[: -len(".yaml")]
                    for entry in os.scandir(folder)
                    if entry.name.endswith(".yaml")
                )
            except OSError:
                continue
        return tuple(sorted(names))

    def groups(self) -> tuple[str, ...]:
        """Sorted names of the top-level groups, ``recipe`` among them."""
        names: set[str] = set()
        for folder in self.folders:
            try:
                names.update(entry.name for entry in os.scandir(folder) if entry.is_dir())
            except OSError:
                continue
        names = {RECIPE_GROUP if name == _RECIPE_FOLDER else name for name in names}
        return tuple(sorted(name for name in names if not name.startswith((".", "_"))))

    def _of(self, group: str) -> tuple[Path, ...]:
        first, _, rest = group.partition("/")
        if first != RECIPE_GROUP:
            return tuple(folder / group for folder in self.folders)
        return tuple(folder / rest for folder in self._recipe_folders)


def _first(folders: Iterable[Path], name: str) -> Path | None:
    file_name = name if name.endswith(_SUFFIXES) else f"{name}.yaml"
    for folder in folders:
        path = folder / file_name
        if os.path.lexists(path):  # a broken link is found, and reading it says what is wrong
            return path
    return None


def _named_file(text: str) -> Path | None:
    return Path(text) if looks_like_path(text) and os.path.lexists(text) else None


def looks_like_path(text: str) -> bool:
    """True if a recipe is named by its file and not by its name."""
    return text.endswith(_SUFFIXES) or os.sep in text

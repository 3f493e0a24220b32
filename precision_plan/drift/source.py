"""Source files of one distribution: a folder, a wheel, an archive, or what is installed.

Archives are read in place; nothing is unpacked to disk and nothing is imported.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from importlib import metadata, util
from pathlib import Path, PurePosixPath

INSTALLED = "installed"

_CODE = (".py", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp")
_NAMED = frozenset({"VERSION.txt", "METADATA", "PKG-INFO"})
_MAX_FILE = 8 << 20  # no source file of these packages is larger; an archive may claim any size


class SourceError(Exception):
    """Sources that cannot be read: what is wrong, and how to go on."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution that the facts speak of.

    ``name`` is its key in the facts' version ranges, ``distribution`` its name in the package
    index, ``folder`` its import package, ``anchor`` a file that every release has.
    """

    name: str
    distribution: str
    folder: str
    anchor: str


MEGATRON = Package("megatron_core", "megatron-core", "megatron", "megatron/core/package_info.py")
TRANSFORMER_ENGINE = Package(
    "transformer_engine",
    "transformer-engine",
    "transformer_engine",
    "transformer_engine/common/recipe/__init__.py",
)
VLLM = Package("vllm", "vllm", "vllm", "vllm/envs.py")


class SourceTree:
    """Text files by path from the root of the sources.

    ``label`` says where they come from. Only source code and version files are listed.
    """

    def __init__(self, label: str, paths: Iterator[str], read: Callable[[str], bytes]) -> None:
        self.label = label
        self.paths = frozenset(paths)
        self._read = read

    def __contains__(self, path: str) -> bool:
        return path in self.paths

    def text(self, path: str) -> str:
        """The content of one file; what is no UTF-8 is replaced.

        Raises:
            KeyError: if there is no such file.
        """
        if path not in self.paths:
            raise KeyError(path)
        return self._read(path).decode("utf-8", "replace")

    def under(self, folder: str, *suffixes: str) -> list[str]:
        """Paths below ``folder`` that end with one of ``suffixes``, sorted."""
        prefix = folder.rstrip("/") + "/"
        return sorted(
            path for path in self.paths if path.startswith(prefix) and path.endswith(suffixes)
        )

    @cached_property
    def metadata_version(self) -> str | None:
        """The version of ``METADATA`` or ``PKG-INFO``, if the sources carry one of them."""
        for path in sorted(self.paths, key=lambda path: path.count("/")):
            if PurePosixPath(path).name in ("METADATA", "PKG-INFO"):
                found = HeaderParser().parsestr(self.text(path)).get("Version")
                if found:
                    return found.strip()
        return None


def open_tree(package: Package, where: str) -> SourceTree:
    """The sources of ``package`` at a path, or of its installed distribution.

    Args:
        where: ``installed``; a checkout, a ``site-packages`` folder or an unpacked wheel; or a
            ``.whl``, ``.zip`` or ``.tar.*`` file.

    Raises:
        SourceError: if nothing of ``package`` can be read there.
    """
    if where == INSTALLED:
        return _installed(package)
    path = Path(where).expanduser()
    if path.is_dir():
        return _folder(package, path, str(path))
    if not path.exists():
        raise SourceError(f"{where}: there is no such file or folder", _expected(package))
    if zipfile.is_zipfile(path):
        return _zip(package, path)
    if tarfile.is_tarfile(path):
        return _tar(package, path)
    raise SourceError(f"{path}: neither a folder nor a wheel nor an archive", _expected(package))


def _expected(package: Package) -> str:
    return (
        f"name a checkout, a site-packages folder, a .whl or .tar.gz file with {package.anchor}, "
        "or the word installed"
    )


def _wanted(path: str) -> bool:
    return path.endswith(_CODE) or PurePosixPath(path).name in _NAMED


def _installed(package: Package) -> SourceTree:
    try:
        found = metadata.distribution(package.distribution)
    except metadata.PackageNotFoundError:
        raise SourceError(
            f"{package.distribution} is not installed in this environment",
            f"pip install --no-deps {package.distribution}, or name a folder or an archive",
        ) from None
    label = f"{package.distribution} {found.version}, installed"
    folders = [Path(str(found.locate_file("")))]
    spec = util.find_spec(package.folder)  # of a top-level name: imports nothing
    folders += [Path(place).parent for place in (spec and spec.submodule_search_locations) or ()]
    for folder in folders:
        if (folder / package.anchor).is_file():
            info = folder / f"{package.distribution.replace('-', '_')}-{found.version}.dist-info"
            return _folder(package, folder, label, info)
    raise SourceError(
        f"{label}: no {package.anchor} among its files", "name a folder or an archive instead"
    )


def _folder(package: Package, path: Path, label: str, info: Path | None = None) -> SourceTree:
    candidates = [path, path.parent, *sorted(item for item in path.iterdir() if item.is_dir())]
    root = next((item for item in candidates if (item / package.anchor).is_file()), None)
    if root is None:
        raise SourceError(f"{path}: no {package.anchor} there", _expected(package))
    if info is None:
        name = package.distribution.replace("-", "_")
        info = next(iter(sorted(root.glob(f"{name}-*.dist-info"))), None)
    places = [root / package.folder, root / "build_tools"] + ([info] if info else [])
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    files += [file for file in (root / "PKG-INFO",) if file.is_file()]
    names = (file.relative_to(root).as_posix() for file in files)
    return SourceTree(label, filter(_wanted, names), lambda name: (root / name).read_bytes())


def _prefix(package: Package, names: list[str], label: str) -> str:
    """What stands before the anchor's path in an archive (``megatron_core-0.16.1/``)."""
    found = [name for name in names if f"/{name}".endswith(f"/{package.anchor}")]
    if not found:
        raise SourceError(f"{label}: no {package.anchor} in it", _expected(package))
    return min(found, key=len)[: -len(package.anchor)]


def _zip(package: Package, path: Path) -> SourceTree:
    archive = zipfile.ZipFile(path)
    entries = {
        info.filename: info
        for info in archive.infolist()
        if _wanted(info.filename) and info.file_size <= _MAX_FILE
    }
    prefix = _prefix(package, list(entries), str(path))
    names = (name.removeprefix(prefix) for name in entries if name.startswith(prefix))
    return SourceTree(str(path), names, lambda name: archive.read(prefix + name))


def _tar(package: Package, path: Path) -> SourceTree:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:  # one pass: a compressed archive cannot be read at random
                if not member.isfile() or member.size > _MAX_FILE or not _wanted(member.name):
                    continue
                stream = archive.extractfile(member)
                if stream is not None:
                    contents[member.name.removeprefix("./")] = stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"{path}: broken archive ({error})", _expected(package)) from error
    prefix = _prefix(package, list(contents), str(path))
    names = (name.removeprefix(prefix) for name in contents if name.startswith(prefix))
    return SourceTree(str(path), names, lambda name: contents[prefix + name])

"""Where sources may lie, and that reading them runs nothing."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from precision_plan.drift.check import check_megatron
from precision_plan.drift.source import MEGATRON, TRANSFORMER_ENGINE, SourceError, open_tree
from tests._packages import installed_version
from tests.drift import trees

FILES = {
    "megatron/core/package_info.py": trees.package_info("0.16.1"),
    "megatron/core/model.py": "x = 1\n",
    "megatron/core/notes.md": "not source code\n",
}
SOURCES = {"megatron/core/package_info.py", "megatron/core/model.py"}


def test_checkout(tmp_path: Path) -> None:
    assert open_tree(MEGATRON, str(trees.folder(tmp_path, FILES))).paths == SOURCES


def test_unpacked_archive_in_its_own_folder(tmp_path: Path) -> None:
    trees.folder(tmp_path / "megatron_core-0.16.1", FILES)
    tree = open_tree(MEGATRON, str(tmp_path))
    assert tree.paths == SOURCES
    assert tree.text("megatron/core/model.py") == "x = 1\n"


def test_the_package_folder_itself(tmp_path: Path) -> None:
    trees.folder(tmp_path, FILES)
    assert open_tree(MEGATRON, str(tmp_path / "megatron")).paths == SOURCES


def test_site_packages_hold_other_packages_that_are_not_read(tmp_path: Path) -> None:
    other = {"torch/__init__.py": "x = 1\n", "torch-2.13.0.dist-info/METADATA": "Version: 2.13.0\n"}
    info = "megatron_core-0.16.1.dist-info/METADATA"
    trees.folder(tmp_path, {**FILES, **other, info: "Version: 0.16.1\n"})
    tree = open_tree(MEGATRON, str(tmp_path))
    assert tree.paths == SOURCES | {info}
    assert tree.metadata_version == "0.16.1"


@pytest.mark.parametrize("prefix", ["", "./", "megatron_core-0.16.1/"])
def test_archives(tmp_path: Path, prefix: str) -> None:
    path = trees.archive(tmp_path / "sources.tar.gz", FILES, prefix)
    assert open_tree(MEGATRON, str(path)).paths == SOURCES


def test_wheel(tmp_path: Path) -> None:
    path = trees.wheel(tmp_path / "any.whl", FILES)
    assert open_tree(MEGATRON, str(path)).paths == SOURCES


def test_installed() -> None:
    version = installed_version("transformer-engine")
    tree = open_tree(TRANSFORMER_ENGINE, "installed")
    assert TRANSFORMER_ENGINE.anchor in tree
    assert tree.metadata_version == version


def test_installed_without_a_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(SourceError, match="megatron-core is not installed") as error:
        open_tree(MEGATRON, "installed")
    assert "pip install" in error.value.hint


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        open_tree(MEGATRON, str(tmp_path / "absent"))


def test_another_package(tmp_path: Path) -> None:
    trees.folder(tmp_path, {"torch/__init__.py": ""})
    with pytest.raises(SourceError, match=r"no megatron/core/package_info\.py there") as error:
        open_tree(MEGATRON, str(tmp_path))
    assert "checkout" in error.value.hint


def test_another_package_in_an_archive(tmp_path: Path) -> None:
    path = trees.wheel(tmp_path / "any.whl", {"torch/__init__.py": ""})
    with pytest.raises(SourceError, match=r"no megatron/core/package_info\.py in it"):
        open_tree(MEGATRON, str(path))


def test_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "any.whl"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(SourceError, match="neither a folder nor a wheel nor an archive"):
        open_tree(MEGATRON, str(path))


def test_truncated_archive(tmp_path: Path) -> None:
    content = trees.archive(tmp_path / "whole.tar.gz", trees.megatron("0.16.1")).read_bytes()
    path = tmp_path / "half.tar.gz"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match="broken archive"):
        open_tree(MEGATRON, str(path))


def test_nothing_is_run_or_imported(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'trace')!r}, 'w')\nraise SystemExit('run')\n"
    files = {name: text + trap for name, text in trees.megatron("0.16.1").items()}
    trees.folder(tmp_path / "sources", files)
    before = set(sys.modules)
    report = check_megatron(str(tmp_path / "sources"))
    assert report.changes == ()
    assert not (tmp_path / "trace").exists()
    assert not [name for name in set(sys.modules) - before if name.startswith("megatron")]


@pytest.mark.parametrize("text", ["def broken(:\n", "x = 1\0\n", "print 'old'\n"])
def test_a_file_that_is_no_python_is_named(tmp_path: Path, text: str) -> None:
    files = {**trees.megatron("0.16.1"), "megatron/core/broken.py": f"{text}# os.environ\n"}
    report = check_megatron(str(trees.folder(tmp_path, files)))
    assert report.changes == ()
    assert any(gap.what.startswith("megatron/core/broken.py: not parsed") for gap in report.gaps)


def test_version_of_the_sources(tmp_path: Path) -> None:
    trees.folder(tmp_path, FILES)
    info = tmp_path / "megatron/core/package_info.py"
    info.write_text(info.read_text().replace("''", "'rc1'"))
    report = check_megatron(str(tmp_path))
    assert (report.found, report.facts) == ("0.16.1rc1", "0.16.1")


def test_version_that_is_not_told(tmp_path: Path) -> None:
    trees.folder(tmp_path, {**FILES, "megatron/core/package_info.py": "VERSION = read()\n"})
    with pytest.raises(SourceError, match="do not tell their version") as error:
        check_megatron(str(tmp_path))
    assert "--version" in error.value.hint
    assert check_megatron(str(tmp_path), "0.16.1").found is None

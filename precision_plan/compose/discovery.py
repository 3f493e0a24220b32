"""Finds the recipes and group files below the paths that a person names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from precision_plan.compose.reading import FILE_LIMIT
from precision_plan.compose.search_path import PRIMARY
from precision_plan.plan import SECTIONS

_SUFFIXES = (".yaml", ".yml")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_JOB = re.compile(r"^\s*[-{]?\s*[\"']?(env_vars|services|apiVersion)[\"']?[ \t]*:", re.MULTILINE)
"""Keys of Ray's runtime environments, of docker compose and of Kubernetes."""
_LAUNCHER = ".py"
_STARTS = re.compile(
    rb"\bexecute_train\s*\(|\b(?:torchrun|ray job submit|vllm serve)\b|[\"']vllm[\"'],\s*[\"']serve"
    rb"|(?:pretrain_\w+|train(?:_async)?)\.py\b"
)
_CALLS = re.compile(
    rb"\bexecute_train\s*\(|\bsubprocess\b|\bos\.(?:system|exec|popen)|\bexec_command"
)
_SHEBANG = re.compile(rb"#![^\n]*\b(bash|sh|zsh|dash)\b")
_RECIPE_FOLDER = "recipes"
_CONFIG, _QUANT_CONFIG = "config.json", "hf_quant_config.json"
_MODEL_KEY = re.compile(r'"(model_type|architectures)"')
_HEADER = re.compile(r"^\s*#\s*@package\s+_global_\b", re.MULTILINE)
_TOP_LEVEL_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file to check.

    ``section`` is set for a group file (``hardware/h100.yaml`` of a configuration folder): the
    plan section that it fills. ``conf`` is the configuration folder that the file lies in, and
    ``None`` for a recipe that lies elsewhere.
    """

    path: Path
    section: str | None = None
    conf: Path | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """What lies below the named paths, in sorted order within each.

    ``skipped`` are YAML files that are neither recipes nor group files; ``missing`` are paths that
    do not exist, ``foreign`` files that were named but are no YAML by their suffix.
    ``checkpoints`` are folders of Hugging Face checkpoints, ``scripts`` are shell scripts and
    files that describe jobs. ``others`` were named and are none of these by their names: what is
    in them decides.
    """

    candidates: tuple[Candidate, ...]
    skipped: tuple[Path, ...]
    missing: tuple[str, ...]
    foreign: tuple[Path, ...]
    checkpoints: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()


def discover(paths: Iterable[str | Path], *, skip_others: bool = False) -> Discovery:
    """Look below ``paths``: a file is taken as named, a folder is searched recursively.

    With ``skip_others`` a file that is named is judged like one that is found in a folder, and
    is skipped if it is no recipe: a hook names every file that was changed.

    A YAML file of a folder is a recipe if it has a ``# @package _global_`` line or a ``recipe:``
    block, or if at least half of its top-level keys are sections of the plan. Hidden folders are
    left out, links to folders are not followed, and a file is taken once.

    A folder that holds a ``config.json`` beside safetensors files is a checkpoint. Of a folder
    that was named, one of them is enough, if ``config.json`` describes a model.

    A shell script has the suffix of one, or begins with ``#!`` and the name of a shell. YAML that
    is no recipe describes a job if it has a key of Ray, docker compose or Kubernetes that does.
    A file of Python that starts programs and knows one that trains or serves is a launcher.
    """
    candidates: dict[str, Candidate] = {}
    skipped: dict[str, Path] = {}
    missing: list[str] = []
    foreign: list[Path] = []
    checkpoints: dict[str, Path] = {}
    scripts: dict[str, Path] = {}
    others: list[Path] = []
    for name in map(str, paths):
        path = Path(name)
        if not name:  # an unset variable of a script, not the current folder
            missing.append(name)
        elif path.is_dir():
            folders: list[Path] = [path] if _is_named_checkpoint(path) else []
            for file in _files(path, folders):
                _take(file, candidates, skipped, scripts)
            for folder in folders:
                checkpoints.setdefault(os.path.realpath(folder), folder)
        elif not os.path.lexists(path):
            missing.append(name)
        elif skip_others:
            _take(path, candidates, skipped, scripts)
        elif is_script(path) or (path.suffix == _LAUNCHER and path.is_file()):
            scripts.setdefault(_real(path), path)
        elif path.suffix not in _SUFFIXES:
            (others if path.is_file() else foreign).append(path)
        elif is_job_file(path):
            scripts.setdefault(_real(path), path)
        else:
            named = _group_file(path) or Candidate(path, conf=_conf_of_recipe(path))
            candidates[os.path.realpath(path)] = named
    left_out = tuple(file for key, file in skipped.items() if key not in candidates)
    return Discovery(
        tuple(candidates.values()),
        left_out,
        tuple(missing),
        tuple(foreign),
        tuple(checkpoints.values()),
        tuple(scripts.values()),
        tuple(others),
    )


def _take(
    file: Path,
    candidates: dict[str, Candidate],
    skipped: dict[str, Path],
    scripts: dict[str, Path],
) -> None:
    """Put a file that was not asked for by name where it belongs."""
    if file.suffix == _LAUNCHER:
        if is_launcher(file):
            scripts.setdefault(_real(file), file)
        return
    if is_script(file) or (file.suffix in _SUFFIXES and is_job_file(file)):
        scripts.setdefault(_real(file), file)
        return
    candidate = _candidate(file) if file.suffix in _SUFFIXES else None
    if candidate is not None:
        candidates.setdefault(os.path.realpath(file), candidate)
    elif not _is_primary(file):
        skipped.setdefault(os.path.realpath(file), file)


def _real(file: Path) -> str:
    """The file behind links; a link that leads nowhere is itself."""
    try:
        return os.path.realpath(file, strict=True)
    except OSError:
        return str(file)


def is_script(file: Path) -> bool:
    """True for a shell script by its suffix or, if it has none, by its first line."""
    if file.suffix:
        return file.suffix in _SCRIPTS
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return _SHEBANG.match(opened.read(128)) is not None
    except OSError:
        return False


def is_launcher(file: Path) -> bool:
    """True for a file of Python that may start a training run or an engine."""
    try:
        if not file.is_file() or file.stat().st_size > FILE_LIMIT:
            return False
        data = file.read_bytes()
    except OSError:
        return False
    return _CALLS.search(data) is not None and _STARTS.search(data) is not None


def is_job_file(file: Path) -> bool:
    """True for YAML that describes a job and is no recipe."""
    if _group_file(file) is not None or _conf_of_recipe(file) is not None:
        return False
    text = _beginning(file)
    return _JOB.search(text) is not None and not looks_like_recipe(text)


def _files(folder: Path, checkpoints: list[Path]) -> Iterator[Path]:
    """YAML files and scripts below ``folder``; checkpoint folders are added to the list."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        if _CONFIG in files and any(map(_is_of_weights, files)):
            checkpoints.append(Path(root))
        for name in sorted(files):
            is_named_so = name.endswith((*_SUFFIXES, *_SCRIPTS, _LAUNCHER))
            if is_named_so or ("." not in name and is_script(Path(root, name))):
                yield Path(root, name)


def _is_of_weights(name: str) -> bool:
    return name.endswith((".safetensors", ".safetensors.index.json"))


def _is_named_checkpoint(folder: Path) -> bool:
    """True if a folder that a person named is a checkpoint, be it an incomplete one."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is asked
    except OSError:
        return False
    if _QUANT_CONFIG in names or any(map(_is_of_weights, names)):
        return True
    return _CONFIG in names and bool(_MODEL_KEY.search(_beginning(folder / _CONFIG)))


def _candidate(file: Path) -> Candidate | None:
    group = _group_file(file)
    if group is not None:
        return group
    conf = _conf_of_recipe(file)
    if conf is not None or looks_like_recipe(_beginning(file)):
        return Candidate(file, conf=conf)
    return None


def _is_primary(file: Path) -> bool:
    """True for the config that every recipe of its folder is composed with, and so checked."""
    return file.name == f"{PRIMARY}.yaml" and _is_conf(file.absolute().parent)


def looks_like_recipe(text: str) -> bool:
    """True if the text of a YAML file has the marks of a recipe; it need not parse."""
    if _HEADER.search(text):
        return True
    keys = set(_TOP_LEVEL_KEY.findall(text)) - {"defaults"}
    known = keys.intersection(SECTIONS)
    return "recipe" in keys or (bool(known) and 2 * len(known) >= len(keys))


def _beginning(file: Path) -> str:
    """The text of a file; empty if it cannot be read or is larger than any recipe."""
    try:
        if not file.is_file() or file.stat().st_size > FILE_LIMIT:
            return ""
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _group_file(file: Path) -> Candidate | None:
    """``CONF/SECTION/NAME.yaml``, where CONF is a configuration folder."""
    folder = file.absolute().parent
    if folder.name in SECTIONS and _is_conf(folder.parent):
        return Candidate(file, folder.name, folder.parent)
    return None


def _conf_of_recipe(file: Path) -> Path | None:
    """The configuration folder whose ``recipes`` folder holds ``file``."""
    for folder in file.absolute().parents:
        if folder.name == _RECIPE_FOLDER and _is_conf(folder.parent):
            return folder.parent
    return None


def _is_conf(folder: Path) -> bool:
    return (folder / f"{PRIMARY}.yaml").is_file() and (folder / _RECIPE_FOLDER).is_dir()

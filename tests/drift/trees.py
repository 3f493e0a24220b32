"""Source trees that tests write: small ones by hand, and whole ones made from the facts.

A tree made from the facts declares exactly what the facts say of one version, so that it shows
no drift, and every change made to it is one.
"""

from __future__ import annotations

import io
import re
import tarfile
import textwrap
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from precision_plan.drift.flags_against import known_flags
from precision_plan.drift.modules import Modules, Scope
from precision_plan.drift.source import SourceTree
from precision_plan.drift.values import Values
from precision_plan.facts.env_vars import EnvVar, env_vars
from precision_plan.facts.megatron import MegatronFlag
from precision_plan.facts.megatron_config import fields_without_flag
from precision_plan.facts.transformer_engine import TeField, te_recipes

Files = dict[str, str]

ARGUMENTS = "megatron/training/arguments.py"
POST_TRAINING = "megatron/post_training/arguments.py"
CONFIGS = "megatron/core/configs.py"
READER = "megatron/core/reader.py"
RECIPES = "transformer_engine/common/recipe/__init__.py"
TE_READER = "transformer_engine/pytorch/reader.py"


def tree(files: Mapping[str, str]) -> SourceTree:
    """A tree in memory."""
    texts = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    return SourceTree("a test", iter(texts), texts.__getitem__)


def values_of(files: Mapping[str, str], path: str) -> tuple[Values, Scope]:
    """An evaluator of a tree, and the scope of one of its modules."""
    modules = Modules(tree(files))
    module = modules.at(path)
    assert module is not None, modules.unreadable
    return Values(modules), Scope(module)


def folder(root: Path, files: Mapping[str, str]) -> Path:
    """The files under a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def wheel(path: Path, files: Mapping[str, str]) -> Path:
    """The files as a zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, textwrap.dedent(text))
    return path


def archive(path: Path, files: Mapping[str, str], prefix: str = "") -> Path:
    """The files as a compressed tar archive, below ``prefix``."""
    with tarfile.open(path, "w:gz") as out:
        for name, text in files.items():
            content = textwrap.dedent(text).encode()
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return path


def package_info(version: str) -> str:
    """``megatron/core/package_info.py`` of a release; the development head is 0.20.0."""
    major, minor, patch = ("0.20.0" if version == "HEAD" else version).split(".")
    return f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n"


@lru_cache
def megatron(version: str) -> Files:
    """Megatron-LM as the facts know it at one version; copy it to change it."""
    flags = known_flags(version)
    post = [flag for flag in flags if (flag.group or "").startswith("post_training")]
    main = [flag for flag in flags if flag not in post]
    return {
        "megatron/core/package_info.py": package_info(version),
        ARGUMENTS: _parser("add_megatron_arguments", main),
        POST_TRAINING: _parser("add_modelopt_args", post),
        CONFIGS: _configs(flags, version),
        READER: _reads("megatron_core", version),
    }


@lru_cache
def transformer_engine(version: str) -> Files:
    """Transformer Engine as the facts know it at one version; copy it to change it."""
    lines = [
        "import os",
        "from enum import Enum",
        "from dataclasses import dataclass",
        "class Format(Enum):",
        *(f"    {name} = '{name}'" for name in ("E2M1", "E4M3", "E5M2", "HYBRID")),
        "class Recipe: pass",
        "@dataclass(frozen=True)",
        "class MMParams:",
        "    use_split_accumulator: bool = True",
    ]
    for name, recipe in te_recipes().items():
        if version in recipe.versions:
            lines += ["@dataclass()", f"class {name}(Recipe):"]
            fields = recipe.fields_at(version).values()
            lines += [f"    {_te_declaration(field)}" for field in fields]
            lines += ["    def __post_init__(self):", "        pass"]
            lines += [f"        assert {check}" for field in fields for check in _te_check(field)]
    return {
        "build_tools/VERSION.txt": f"{version}\n",
        RECIPES: "\n".join(lines) + "\n",
        TE_READER: _reads("transformer_engine", version),
    }


def _parser(function: str, flags: list[MegatronFlag]) -> str:
    calls = "\n".join(f"    group.add_argument({argument(flag)})" for flag in flags)
    return (
        "import argparse\nimport enum\n"
        "class Enumeration(enum.Enum):\n    MEMBER = 1\n"
        f"def {function}(parser):\n"
        "    group = parser.add_argument_group(title='all')\n"
        f"{calls}\n"
        "    return parser\n"
    )


def argument(flag: MegatronFlag) -> str:
    """The arguments of the ``add_argument`` call that declares a flag."""
    parts = [repr(name) for name in flag.flags]
    if flag.action == "boolean_optional":
        parts = [part for part in parts if not part.startswith("'--no-")]
        parts.append("action=argparse.BooleanOptionalAction")
    elif flag.action != "store":
        parts.append(f"action={flag.action!r}")
    elif flag.type not in (None, "enum name", "enum_type_handler"):
        parts.append(f"type={flag.type}")
    elif flag.type is not None:
        parts.append("type=lambda name: Enumeration[name]")
    parts.append(f"dest={flag.dest!r}")
    if flag.field:
        parts.append(f"default={flag.default!r}")
    if flag.nargs is not None:
        parts.append(f"nargs={flag.nargs!r}")
    if flag.choices is not None:
        parts.append(f"choices={list(flag.choices)!r}")
    return ", ".join(parts)


def _configs(flags: list[MegatronFlag], version: str) -> str:
    classes: dict[str, set[str]] = {}
    for flag in flags:
        for feed in flag.feeds:
            match = re.fullmatch(r"(\w+)\.(\w+)", feed)
            if match:
                classes.setdefault(match[1], set()).add(match[2])
    for field in fields_without_flag():
        if version in field.versions:
            classes.setdefault(field.config, set()).add(field.name)
    lines = ["from dataclasses import dataclass"]
    for name, fields in sorted(classes.items()):
        lines += ["@dataclass", f"class {name}:"]
        lines += [f"    {field}: object = None" for field in sorted(fields)]
    return "\n".join(lines) + "\n"


def _reads(package: str, version: str) -> str:
    lines = ["import os"]
    for variable in env_vars().values():
        if _is_read(variable, package, version):
            default = "" if variable.default is None else f", {variable.default!r}"
            lines.append(f"os.getenv({variable.name!r}{default})")
    return "\n".join(lines) + "\n"


def _is_read(variable: EnvVar, package: str, version: str) -> bool:
    here = package in variable.read_by and variable.exists_in(package, version)
    return bool(here) and variable.platforms is None


def _te_declaration(field: TeField) -> str:
    if field.required:
        return f"{field.name}: object"
    text = _te_value(field, field.default)
    if field.env is not None:
        unset = "None" if field.default is None else repr(str(field.default))
        text = f"os.getenv({field.env!r}, {unset})"
        text = f"os.getenv({field.env!r}, '0') == '1'" if field.default is False else text
    return f"{field.name}: {'Format' if field.type == 'Format' else 'object'} = {text}"


def _te_check(field: TeField) -> list[str]:
    if field.allowed is None:
        return []
    accepted = [_te_value(field, item) for item in field.allowed]
    if hasattr(field.default, "keys"):
        return [f"self.{field.name}.{key}" for key in field.default]
    if field.default is None:
        accepted.insert(0, "None")
    return [f"self.{field.name} in ({', '.join(accepted)},)"]


def _te_value(field: TeField, value: Any) -> str:
    if field.type == "Format":
        return f"Format.{value}"
    if hasattr(value, "keys"):
        return f"MMParams({', '.join(f'{key}={item}' for key, item in value.items())})"
    return repr(value)

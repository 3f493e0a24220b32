"""The rooms: who may import whom, and where torch, Hydra, processes and print may appear."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "precision_plan"
ROOT = "precision_plan"

COMMON = frozenset({"plan", "facts"})
ALLOWED: dict[str, frozenset[str]] = {
    "facts": frozenset(),
    "plan": frozenset({"facts"}),
    "compose": COMMON,
    "rules": COMMON,
    "lower": COMMON,
    "estimate": COMMON,
    "preflight": COMMON,
    "importers": COMMON | {"compose"},
    "render": frozenset({"plan"}),
    "numerics": frozenset(),
    "convert": COMMON | {"numerics", "preflight"},
    "launching": frozenset({"plan", "preflight"}),
    "audit": COMMON,
    "drift": COMMON,
    "api": frozenset({"compose", "rules", "lower", "importers", "preflight", "estimate", "plan"}),
    "batch": frozenset({"rules", "importers", "plan", "facts"}),
}
"""Room to the rooms it may import besides itself; ``cli`` may import every one."""

ROOMS = frozenset(ALLOWED) | {"cli"}
LIMITED: dict[str, frozenset[str]] = {
    "torch": frozenset({"numerics", "convert", "audit"}),
    "safetensors": frozenset({"convert"}),
    "hydra": frozenset({"compose"}),
    "omegaconf": frozenset({"compose"}),
    "yaml": frozenset({"compose"}),
    "pydantic": frozenset({"plan", "compose", "api"}),
    "subprocess": frozenset({"launching", "preflight"}),
    "multiprocessing": frozenset({"convert", "launching"}),
}
"""Modules that only some rooms may import."""

FACTS_MAY_USE = frozenset({"packaging"}) | sys.stdlib_module_names
TOP_LEVEL = frozenset({"__init__", "__main__", "_version"})


@dataclass(frozen=True)
class Import:
    """One import statement, wherever it stands in a file."""

    file: Path
    line: int
    module: str

    @property
    def room(self) -> str:
        return room_of(self.file)

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE.parent)}:{self.line} imports {self.module}"


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple(
        (file, ast.parse(file.read_text(encoding="utf-8"), str(file)))
        for file in sorted(PACKAGE.rglob("*.py"))
    )


def imports() -> Iterator[Import]:
    for file, tree in trees():
        package = (ROOT, *file.relative_to(PACKAGE).parts[:-1])
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield Import(file, node.lineno, name.name)
            elif isinstance(node, ast.ImportFrom):
                above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                module = ".".join(part for part in (above, node.module) if part)
                if module == ROOT:  # "from precision_plan import rules" names a room
                    yield from (
                        Import(file, node.lineno, f"{ROOT}.{name.name}") for name in node.names
                    )
                else:
                    yield Import(file, node.lineno, module)


def calls(name: str) -> Iterator[tuple[Path, int]]:
    for file, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == name
            ):
                yield file, node.lineno


def test_every_file_belongs_to_a_room() -> None:
    assert {room_of(file) for file, _ in trees()} <= ROOMS | TOP_LEVEL


def test_rooms_import_only_what_they_may() -> None:
    wrong = []
    for found in imports():
        parts = found.module.split(".")
        if parts[0] != ROOT or found.room in TOP_LEVEL or found.room == "cli":
            continue
        target = parts[1] if len(parts) > 1 else ""
        if target == found.room or target == "_version":
            continue
        if target not in ALLOWED[found.room]:
            wrong.append(str(found))
    assert not wrong


def test_only_the_command_line_imports_the_command_line() -> None:
    users = {found.room for found in imports() if found.module.startswith(f"{ROOT}.cli")}
    assert users <= {"cli", "__main__"}


@pytest.mark.parametrize("module", sorted(LIMITED))
def test_limited_modules(module: str) -> None:
    wrong = [
        str(found)
        for found in imports()
        if found.module.split(".")[0] == module and found.room not in LIMITED[module]
    ]
    assert not wrong


def test_facts_use_the_standard_library_and_packaging_only() -> None:
    wrong = [
        str(found)
        for found in imports()
        if found.room == "facts"
        and found.module.split(".")[0] != ROOT
        and found.module.split(".")[0] not in FACTS_MAY_USE
    ]
    assert not wrong


def test_only_the_command_line_prints() -> None:
    wrong = [f"{file}:{line}" for file, line in calls("print") if room_of(file) != "cli"]
    assert not wrong
    writing = [
        str(found.file)
        for found in imports()
        if found.module == "sys" and found.room not in TOP_LEVEL | {"cli"}
        if "sys.stdout" in found.file.read_text(encoding="utf-8")
    ]
    assert not writing


@pytest.mark.parametrize("function", ["eval", "exec", "__import__"])
def test_nothing_evaluates_text(function: str) -> None:
    assert not list(calls(function))


def loaded(code: str) -> set[str]:
    """Modules in ``sys.modules`` after ``code`` has run in a fresh interpreter."""
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    return set(done.stderr.split())


def test_the_version_needs_nothing_but_its_number() -> None:
    before = loaded("")
    after = loaded("from precision_plan.__main__ import main\nmain(['--version'])")
    assert after - before == {
        "precision_plan",
        "precision_plan.__main__",
        "precision_plan._version",
    }


@pytest.mark.parametrize(
    "arguments", [["plan", "qwen3-30b-fp8"], ["lint", "conf/recipes"], ["rules"]], ids=" ".join
)
def test_checking_loads_no_heavy_library(arguments: list[str]) -> None:
    modules = loaded(f"from precision_plan.__main__ import main\nmain({arguments!r})")
    assert "precision_plan.rules.registry" in modules
    heavy = {"torch", "numpy", "rich", "safetensors", "transformer_engine", "hydra", "omegaconf"}
    assert modules.isdisjoint(heavy)
    of_folders = {"precision_plan.preflight.checkpoint", "precision_plan.importers.hf_config"}
    assert modules.isdisjoint(of_folders)
